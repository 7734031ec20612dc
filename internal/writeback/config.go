package writeback

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Config is the section [write_back]. An empty name of a column means that there is none.
type Config struct {
	Enabled     bool          `toml:"enabled"`
	Tables      []string      `toml:"tables"`       // of replication.tables; empty: all of them
	PublishedAt string        `toml:"published_at"` // column of a time; NULL: pending
	Status      string        `toml:"status"`       // column of text or an enum
	Pending     string        `toml:"pending"`      // the values of status
	Published   string        `toml:"published"`
	Failed      string        `toml:"failed"`
	Attempts    string        `toml:"attempts"`   // column of an integer
	LastError   string        `toml:"last_error"` // column of text
	Interval    time.Duration `toml:"interval"`   // from the end of a sweep to the next
	BatchRows   int           `toml:"batch_rows"` // updated by one statement
	LockTimeout time.Duration `toml:"lock_timeout"`
}

// DefaultConfig returns the defaults; config.example.toml has the reasons.
func DefaultConfig() Config {
	return Config{
		PublishedAt: "published_at", Pending: "PENDING", Published: "PUBLISHED", Failed: "FAILED",
		Interval: time.Second, BatchRows: 1000, LockTimeout: time.Second,
	}
}

// maxBatch bounds the locks and the WAL of one transaction.
const maxBatch = 100_000

// Validate reports every wrong value.
func (c Config) Validate() error {
	var errs []error
	require := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	require(!c.Enabled || c.PublishedAt != "" || c.Status != "", "write_back.published_at and "+
		"write_back.status are both empty: name a column for one of them, or nothing shows which rows "+
		"are pending")
	columns := c.columns()
	for i, name := range columns {
		require(!slices.Contains(columns[:i], name), "write_back: column %q has two purposes", name)
	}
	if c.Status != "" {
		values := []string{c.Pending, c.Published, c.Failed}
		for i, value := range values {
			require(value != "" && !slices.Contains(values[:i], value), "write_back.pending, published "+
				"and failed are %q, %q and %q: they must be three different texts", values[0], values[1],
				values[2])
		}
	}
	require(c.Interval >= 100*time.Millisecond, "write_back.interval = %s: must be at least 100ms",
		c.Interval)
	require(c.BatchRows > 0 && c.BatchRows <= maxBatch,
		"write_back.batch_rows = %d: must be from 1 to %d", c.BatchRows, maxBatch)
	require(c.LockTimeout >= time.Millisecond, "write_back.lock_timeout = %s: must be at least 1ms: "+
		"zero would wait for ever", c.LockTimeout)
	return errors.Join(errs...)
}

// columns are those that are written.
func (c Config) columns() []string {
	return slices.DeleteFunc([]string{c.PublishedAt, c.Status, c.Attempts, c.LastError},
		func(name string) bool { return name == "" })
}
