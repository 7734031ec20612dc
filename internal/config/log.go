package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Log is the section [log].
type Log struct {
	Level  string `toml:"level"`  // trace | debug | info | warn | error
	Format string `toml:"format"` // auto | console | json
}

// The accepted values.
var (
	LogLevels  = []string{"trace", "debug", "info", "warn", "error"}
	LogFormats = []string{"auto", "console", "json"}
)

func defaultLog() Log { return Log{Level: "info", Format: "auto"} }

// Validate reports every wrong value.
func (l Log) Validate() error {
	return errors.Join(oneOf("log.level", l.Level, LogLevels),
		oneOf("log.format", l.Format, LogFormats))
}

func oneOf(key, value string, accepted []string) error {
	if slices.Contains(accepted, value) {
		return nil
	}
	return fmt.Errorf("%s is %q: it must be one of %s", key, value, strings.Join(accepted, ", "))
}
