package kafka

import (
	"fmt"
	"strings"

	"github.com/IBM/sarama"
	"github.com/rs/zerolog"
)

// BridgeLog sends what sarama itself says to log, at debug. Sarama's logger is global to the process and not guarded: call
// this once, before the first Open or Inspect. Without it sarama is silent.
func BridgeLog(log zerolog.Logger) {
	sarama.Logger = saramaLog{log}
}

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
