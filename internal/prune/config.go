package prune

import (
	"errors"
	"fmt"
	"time"
)

// Config is the section [prune].
type Config struct {
	Enabled    bool          `toml:"enabled"`     // run prunes while it streams
	Retention  time.Duration `toml:"retention"`   // rows that are younger are kept
	OnDelivery bool          `toml:"on_delivery"` // rows go as soon as they are delivered
	// Column distinguishes old rows from new ones, see Relation.Column; empty: found.
	Column      string        `toml:"column"`
	Interval    time.Duration `toml:"interval"`     // from the end of a run to the next
	ChunkRows   int           `toml:"chunk_rows"`   // deleted by one statement
	LockTimeout time.Duration `toml:"lock_timeout"` // a statement waits no longer for a lock
	// PartitionsAhead are created of each partitioned table. Zero: none.
	PartitionsAhead int   `toml:"partitions_ahead"`
	MaxLag          int64 `toml:"max_lag,size"` // the deletes pause while a standby is behind more
}

// DefaultConfig returns the defaults; config.example.toml has the reasons.
func DefaultConfig() Config {
	return Config{
		Retention: 7 * 24 * time.Hour, Interval: 10 * time.Second, ChunkRows: 1000,
		LockTimeout: 200 * time.Millisecond, MaxLag: 64 << 20, PartitionsAhead: 3,
	}
}

// maxChunk bounds the memory of a statement: it collects the places of the rows.
const maxChunk = 100_000

// Validate reports every wrong value.
func (c Config) Validate() error {
	var errs []error
	require := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	require(c.OnDelivery || c.Retention > 0, "prune.retention = %s: must be greater than zero; "+
		"to remove rows as soon as they are delivered set prune.on_delivery = true", c.Retention)
	require(c.Interval >= 100*time.Millisecond, "prune.interval = %s: must be at least 100ms",
		c.Interval)
	require(c.ChunkRows > 0 && c.ChunkRows <= maxChunk,
		"prune.chunk_rows = %d: must be from 1 to %d", c.ChunkRows, maxChunk)
	require(c.LockTimeout >= time.Millisecond, "prune.lock_timeout = %s: must be at least 1ms: "+
		"zero would wait for ever", c.LockTimeout)
	require(c.PartitionsAhead >= 0 && c.PartitionsAhead <= 1000,
		"prune.partitions_ahead = %d: must be from 0 to 1000", c.PartitionsAhead)
	require(c.MaxLag > 0, "prune.max_lag = %d: must be greater than zero", c.MaxLag)
	return errors.Join(errs...)
}

// retention is for how long a delivered row stays.
func (c Config) retention() time.Duration {
	if c.OnDelivery {
		return 0
	}
	return c.Retention
}
