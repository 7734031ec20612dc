// Package logging makes loggers from the section [log]. Their level can change while they are in
// use.
package logging

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/terminal"
)

// New makes a logger that writes to w, at a level that may change while it runs. Format auto is
// console on a terminal and JSON otherwise.
func New(w io.Writer, cfg config.Log, level *Level, colour bool) zerolog.Logger {
	logUnits()
	if cfg.Format == "console" || cfg.Format == "auto" && terminal.IsTerminal(w) {
		w = zerolog.ConsoleWriter{
			Out: w, NoColor: !colour, TimeFormat: "15:04:05.000",
			FormatPrepare:    printableMessage,
			FormatFieldValue: printable,
		}
	}
	return zerolog.New(w).Level(zerolog.TraceLevel).Sample(level).With().Timestamp().Logger()
}

// printableMessage keeps a message from commanding the terminal, as text of a server in it could.
func printableMessage(line map[string]any) error {
	if text, ok := line[zerolog.MessageFieldName].(string); ok {
		line[zerolog.MessageFieldName] = terminal.Printable(text)
	}
	return nil
}

// printable writes the value of a field. Of several values zerolog has left in what it escapes in
// a single one.
func printable(value any) string { return terminal.Printable(fmt.Sprintf("%s", value)) }

// Level is the least level that is written, of a logger and of all loggers made from it. It is a
// zerolog.Sampler, so a line that is not written costs one atomic load. Any goroutine may change
// it.
type Level struct{ least atomic.Int32 } // a zerolog.Level; zero: debug

// Sample reports whether a line of the level is written.
func (l *Level) Sample(level zerolog.Level) bool { return level >= l.Get() }

func (l *Level) Get() zerolog.Level {
	return zerolog.Level(l.least.Load()) //nolint:gosec // from an int8
}

// Configure sets the level of a configuration.
func (l *Level) Configure(cfg config.Log) {
	level, err := zerolog.ParseLevel(cfg.Level)
	if err != nil {
		level = zerolog.InfoLevel
	}
	l.least.Store(int32(level))
}

// logUnits sets the globals of zerolog once, since commands of several tests run in parallel.
// Durations are in seconds, and times have fractions, for latencies of milliseconds.
var logUnits = sync.OnceFunc(func() {
	zerolog.DurationFieldUnit = time.Second
	zerolog.TimeFieldFormat = time.RFC3339Nano
})
