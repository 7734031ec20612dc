package slot

import (
	"errors"
	"fmt"
	"regexp"
	"time"
)

// Config is the section [slot].
type Config struct {
	Name string `toml:"name"`
	// create the slot if it is missing when the process starts; one that was lost never
	Create bool `toml:"create"`
	// create it so that standbys can keep a copy; needs PostgreSQL 17
	Failover bool `toml:"failover"`
	// CheckInterval is the time between two looks at slot and publication. It bounds how long rows
	// can be missed unnoticed.
	CheckInterval time.Duration `toml:"check_interval"`
}

// DefaultConfig returns the defaults; config.example.toml has the reasons.
func DefaultConfig() Config {
	return Config{Name: "postrider", Create: true, CheckInterval: 3 * time.Second}
}

// The server's rule, which is stricter than that for identifiers: slot names are names of
// directories.
var validName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

// Validate reports every wrong value.
func (c Config) Validate() error {
	var errs []error
	if err := ValidateName(c.Name); err != nil {
		errs = append(errs, fmt.Errorf("slot.name: %w", err))
	}
	if c.CheckInterval < 100*time.Millisecond || c.CheckInterval > 10*time.Second {
		errs = append(errs, fmt.Errorf("slot.check_interval = %s: must be between 100ms and 10s; it "+
			"bounds how long missing rows stay unnoticed", c.CheckInterval))
	}
	return errors.Join(errs...)
}

// ValidateName reports whether the server would take a slot of this name.
func ValidateName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("%q is not a valid slot name: use 1 to 63 lower-case letters, digits and "+
			"underscores", name)
	}
	return nil
}

// LockTimeout bounds the wait for a lock on an outbox table, as by ALTER TABLE.
const LockTimeout = 2 * time.Second
