package health

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Config is the section [health]: the thresholds of the conditions.
type Config struct {
	// Age of the oldest transaction not acknowledged.
	UnackedWarning  time.Duration `toml:"unacked_warning"`
	UnackedCritical time.Duration `toml:"unacked_critical"`
	// Bytes: from confirmed_flush_lsn to the server, and kept for the slot.
	LagWarning      int64 `toml:"lag_warning,size"`
	RetainedWarning int64 `toml:"retained_warning,size"`
	// Part of max_slot_wal_keep_size that is left, 0 to 1.
	SafeWarning  float64 `toml:"safe_warning"`
	SafeCritical float64 `toml:"safe_critical"`
	// Time until the slot is lost, or the disk full.
	LossWarning  time.Duration `toml:"loss_warning"`
	LossCritical time.Duration `toml:"loss_critical"`
	// Time during which the slot is inactive.
	InactiveWarning  time.Duration `toml:"inactive_warning"`
	InactiveCritical time.Duration `toml:"inactive_critical"`
	// Age of a transaction that blocks restart_lsn.
	HeldWarning time.Duration `toml:"held_warning"`
	// Transactions.
	XminAgeWarning  int64 `toml:"catalog_xmin_warning"`
	XminAgeCritical int64 `toml:"catalog_xmin_critical"`
	// Skew of the server's clock, and bytes that are kept for an inactive slot.
	SkewWarning   time.Duration `toml:"clock_skew_warning"`
	OtherRetained int64         `toml:"other_slot_warning,size"`
}

// DefaultConfig returns the defaults; config.example.toml gives the reasons.
func DefaultConfig() Config {
	return Config{
		UnackedWarning: 30 * time.Second, UnackedCritical: 5 * time.Minute,
		LagWarning: 1 << 30, RetainedWarning: 1 << 30,
		SafeWarning: 0.5, SafeCritical: 0.2,
		LossWarning: 6 * time.Hour, LossCritical: time.Hour,
		InactiveWarning: 5 * time.Minute, InactiveCritical: 15 * time.Minute,
		HeldWarning:    15 * time.Minute,
		XminAgeWarning: 200_000_000, XminAgeCritical: 1_000_000_000,
		SkewWarning:   time.Second,
		OtherRetained: 1 << 30,
	}
}

// Validate reports every wrong value.
func (c Config) Validate() error {
	errs := []error{
		ascending("unacked_warning", c.UnackedWarning, "unacked_critical", c.UnackedCritical),
		ascending("inactive_warning", c.InactiveWarning, "inactive_critical", c.InactiveCritical),
		ascending("loss_critical", c.LossCritical, "loss_warning", c.LossWarning),
		ascending("catalog_xmin_warning", c.XminAgeWarning, "catalog_xmin_critical",
			c.XminAgeCritical),
	}
	if c.SafeCritical < 0 || c.SafeWarning < c.SafeCritical || c.SafeWarning > 1 {
		errs = append(errs, fmt.Errorf("health.safe_critical = %v, health.safe_warning = %v: "+
			"must lie between 0 and 1 and in this order", c.SafeCritical, c.SafeWarning))
	}
	for name, n := range map[string]int64{
		"lag_warning": c.LagWarning, "retained_warning": c.RetainedWarning,
		"other_slot_warning": c.OtherRetained,
		"held_warning":       int64(c.HeldWarning), "clock_skew_warning": int64(c.SkewWarning),
	} {
		if n <= 0 {
			errs = append(errs, fmt.Errorf("health.%s: must be positive", name))
		}
	}
	return errors.Join(errs...)
}

func ascending[T cmp.Ordered](lowName string, low T, highName string, high T) error {
	if low > *new(T) && low <= high {
		return nil
	}
	return fmt.Errorf("health.%s = %v, health.%s = %v: must be positive and in this order",
		lowName, low, highName, high)
}
