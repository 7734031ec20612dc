package monitor

import (
	"errors"
	"fmt"
	"time"
)

// Config is the section [monitor].
type Config struct {
	// Interval is the time between two observations of the server. Slot and publication are checked
	// each slot.Config.CheckInterval.
	Interval   time.Duration `toml:"interval"`
	OtherSlots bool          `toml:"other_slots"` // watch the other slots of the server too
	// bytes of the volume with pg_wal; zero: not known, and no forecast of a full disk
	VolumeSize int64 `toml:"volume_size,size"`
}

// DefaultConfig returns the defaults; config.example.toml has the reasons.
func DefaultConfig() Config {
	return Config{Interval: 5 * time.Second, OtherSlots: true}
}

// Validate reports every wrong value.
func (c Config) Validate() error {
	var errs []error
	if c.Interval < time.Second || c.Interval > time.Minute {
		errs = append(errs, fmt.Errorf("monitor.interval = %s: must lie between 1s and 1m", c.Interval))
	}
	if c.VolumeSize < 0 {
		errs = append(errs, fmt.Errorf("monitor.volume_size = %d: must not be negative", c.VolumeSize))
	}
	return errors.Join(errs...)
}
