package kafka

import (
	"fmt"
	"strings"

	"github.com/IBM/sarama"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
)

// BridgeLog sends what the client libraries themselves say to log, at debug. Sarama's logger is global to the process and not guarded: call
// this once, before the first Open or Inspect. Without it they are silent.
func BridgeLog(log zerolog.Logger) {
	sarama.Logger = saramaLog{log}
	bridged = log
}

// bridged is for franz-go.
var bridged = zerolog.Nop()

type saramaLog struct{ log zerolog.Logger }

func (l saramaLog) Print(v ...any)   { l.write(func() string { return fmt.Sprint(v...) }) }
func (l saramaLog) Println(v ...any) { l.write(func() string { return fmt.Sprintln(v...) }) }
func (l saramaLog) Printf(format string, v ...any) {
	l.write(func() string { return fmt.Sprintf(format, v...) })
}

func (l saramaLog) write(text func() string) {
	if e := l.log.Debug(); e.Enabled() {
		e.Str("reason", strings.TrimSpace(text())).Msg("client library said")
	}
}

// clientLog sends what franz-go says to bridged, at debug.
type clientLog struct{}

// Level leaves out what the client says about each request.
func (clientLog) Level() kgo.LogLevel {
	if bridged.Debug().Enabled() {
		return kgo.LogLevelInfo
	}
	return kgo.LogLevelNone
}

func (clientLog) Log(_ kgo.LogLevel, text string, pairs ...any) {
	for i := 0; i+1 < len(pairs); i += 2 {
		text += fmt.Sprintf("; %v: %v", pairs[i], pairs[i+1])
	}
	bridged.Debug().Str("reason", text).Msg("client library said")
}
