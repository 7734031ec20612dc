package backfill

import (
	"errors"
	"fmt"

	"github.com/postrider/postrider/sink"
)

// Config is the section [snapshot].
type Config struct {
	Mode    string `toml:"mode"`     // no_data, initial or when_needed
	OrderBy string `toml:"order_by"` // column by which rows are published; empty: found
	// compacted topic with the progress of each slot's snapshot
	Topic string `toml:"topic"`
}

// The values of snapshot.mode.
const (
	NoData     = "no_data"
	Initial    = "initial"
	WhenNeeded = "when_needed"
)

// DefaultConfig returns the defaults; config.example.toml has the reasons.
func DefaultConfig() Config { return Config{Mode: NoData, Topic: "postrider.snapshot"} }

// On reports whether rows already in the tables may have to be published.
func (c Config) On() bool { return c.Mode != NoData }

// Validate reports every wrong value.
func (c Config) Validate() error {
	var errs []error
	switch c.Mode {
	case NoData, Initial, WhenNeeded:
	default:
		errs = append(errs, fmt.Errorf("snapshot.mode = %q: must be %s, %s or %s", c.Mode, NoData,
			Initial, WhenNeeded))
	}
	if !sink.ValidTopic(c.Topic) {
		errs = append(errs, fmt.Errorf("snapshot.topic = %q: a name is 1 to 249 of a-z A-Z 0-9 . _ -",
			c.Topic))
	}
	return errors.Join(errs...)
}
