package cli

import (
	"io"
	"os"
	"sync"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"

	"postrider/config"
)

// newLogger makes the logger of a command that logs. Format auto is console on a terminal and JSON otherwise. Colours
// need a terminal and no NO_COLOR. The level is one that config has validated.
func (a *app) newLogger(cfg config.Log) zerolog.Logger {
	logUnits()
	w := a.Stderr
	if cfg.Format == "console" || cfg.Format == "auto" && isTerminal(a.Stderr) {
		w = zerolog.ConsoleWriter{Out: a.Stderr, NoColor: !a.colour(a.Stderr), TimeFormat: "15:04:05.000"}
	}
	level, err := zerolog.ParseLevel(cfg.Level)
	if err != nil {
		level = zerolog.InfoLevel
	}
	return zerolog.New(w).Level(level).With().Timestamp().Logger()
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
