// Package logging makes loggers out of the section [log], whose level can change while they are in use.
package logging

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/terminal"
)

// newLogger makes a logger that writes to w, at a level that may change while it runs. Format auto is console on a terminal and JSON
// otherwise.
func New(w io.Writer, cfg config.Log, level *Level, colour bool) zerolog.Logger {
	logUnits()
	if cfg.Format == "console" || cfg.Format == "auto" && terminal.IsTerminal(w) {
		w = zerolog.ConsoleWriter{Out: w, NoColor: !colour, TimeFormat: "15:04:05.000"}
	}
	return zerolog.New(w).Level(zerolog.TraceLevel).Sample(level).With().Timestamp().Logger()
}

// logLevel is the least level that is written, of a logger and of all that are made from it. It is a zerolog.Sampler, which is asked
// before a line is made: what is not written costs a load. Any goroutine may change it.
type Level struct{ least atomic.Int32 } // a zerolog.Level; zero: debug

// Sample tells whether a line of the level is written.
func (l *Level) Sample(level zerolog.Level) bool { return level >= l.Get() }

func (l *Level) Get() zerolog.Level { return zerolog.Level(l.least.Load()) } //nolint:gosec // from an int8

func (l *Level) set(level zerolog.Level) { l.least.Store(int32(level)) }

// configure sets what a configuration says.
func (l *Level) Configure(cfg config.Log) {
	level, err := zerolog.ParseLevel(cfg.Level)
	if err != nil {
		level = zerolog.InfoLevel
	}
	l.set(level)
}

// logUnits sets what zerolog keeps in globals, once, since commands of several tests run side by side. Durations are
// seconds, and times have fractions: latencies of milliseconds are what people look for.
var logUnits = sync.OnceFunc(func() {
	zerolog.DurationFieldUnit = time.Second
	zerolog.TimeFieldFormat = time.RFC3339Nano
})
