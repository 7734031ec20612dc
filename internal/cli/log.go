package cli

import (
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/config"
)

// newLogger makes the logger of a command that logs. Format auto is console on a terminal and JSON otherwise. Colours
// need a terminal and no NO_COLOR. The level is one that config has validated.
func (a *app) newLogger(cfg config.Log) zerolog.Logger {
	level := new(logLevel)
	level.configure(cfg)
	return a.newLeveledLogger(cfg, level)
}

// newLeveledLogger makes the logger of a command that changes its level while it runs.
func (a *app) newLeveledLogger(cfg config.Log, level *logLevel) zerolog.Logger {
	logUnits()
	w := a.Stderr
	if cfg.Format == "console" || cfg.Format == "auto" && isTerminal(a.Stderr) {
		w = zerolog.ConsoleWriter{Out: a.Stderr, NoColor: !a.colour(a.Stderr), TimeFormat: "15:04:05.000"}
	}
	return zerolog.New(w).Level(zerolog.TraceLevel).Sample(level).With().Timestamp().Logger()
}

// logLevel is the least level that is written, of a logger and of all that are made from it. It is a zerolog.Sampler, which is asked
// before a line is made: what is not written costs a load. Any goroutine may change it.
type logLevel struct{ least atomic.Int32 } // a zerolog.Level; zero: debug

// Sample tells whether a line of the level is written.
func (l *logLevel) Sample(level zerolog.Level) bool { return level >= l.get() }

func (l *logLevel) get() zerolog.Level { return zerolog.Level(l.least.Load()) } //nolint:gosec // from an int8

func (l *logLevel) set(level zerolog.Level) { l.least.Store(int32(level)) }

// configure sets what a configuration says.
func (l *logLevel) configure(cfg config.Log) {
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

// colour tells whether w gets colours and a progress line.
func (a *app) colour(w io.Writer) bool {
	return isTerminal(w) && a.env("NO_COLOR") == "" && a.env("TERM") != "dumb"
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}
