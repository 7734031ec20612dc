package replication

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Config is the section [replication].
type Config struct {
	Publication string   `toml:"publication"`
	Tables      []string `toml:"tables"` // schema-qualified outbox tables
	// Partitions are decisions about relations of which PostgreSQL no longer reports whether they
	// were partitions of an outbox table; see Assignment.
	Partitions []string `toml:"partitions"`
	// prefixes of pg_logical_emit_message that carry outbox events
	Messages []string `toml:"messages"`
	// TransactionalOnly leaves out logical messages that were sent outside of a transaction, or
	// regardless of one.
	TransactionalOnly bool `toml:"transactional_only"`
	// longest time between two statuses
	StatusInterval time.Duration `toml:"status_interval"`
	// a longer row is not buffered: its event has Oversize
	MaxRowBytes int64 `toml:"max_row_bytes,size"`
	// LogicalDecodingWorkMem is the least that the server may use for this slot before it writes
	// transactions to its disk, in bytes; 0: as it is set there.
	LogicalDecodingWorkMem int64 `toml:"logical_decoding_work_mem,size"`
	// Witness has the transactions come whose only events are logical messages that Messages or
	// TransactionalOnly leave out: a Begin and a Commit, with nothing in between. So what is seen
	// of the history does not depend on which messages are read. Not a key.
	Witness bool `json:"-"`
}

// DefaultConfig returns the defaults; config.example.toml gives the reasons.
func DefaultConfig() Config {
	return Config{
		Publication:    "postrider",
		Tables:         []string{"public.outbox"},
		StatusInterval: 5 * time.Second,
		MaxRowBytes:    64 << 20,

		LogicalDecodingWorkMem: 256 << 20,
	}
}

// Validate reports every wrong value.
func (c Config) Validate() error {
	var errs []error
	if c.Publication == "" {
		errs = append(errs, errors.New(
			"replication.publication is empty: name the publication of the outbox table"))
	}
	if len(c.Tables) == 0 && len(c.Messages) == 0 {
		errs = append(errs, errors.New("replication.tables and replication.messages are both "+
			"empty: there is nothing to relay"))
	}
	for _, t := range c.Tables {
		if schema, name, ok := strings.Cut(t, "."); !ok || schema == "" || name == "" {
			errs = append(errs, fmt.Errorf("replication.tables: %q is not schema-qualified: "+
				"write %q", t, "public."+strings.Trim(t, ".")))
		}
	}
	errs = append(errs, c.validatePartitions()...)
	for _, p := range c.Messages {
		if p == "" {
			errs = append(errs, errors.New("replication.messages: an empty prefix is not allowed"))
		}
	}
	if c.StatusInterval < 100*time.Millisecond || c.StatusInterval > 10*time.Second {
		errs = append(errs, fmt.Errorf(
			"replication.status_interval = %s: must lie between 100ms and 10s, "+
				"or the server may take the relay for dead", c.StatusInterval))
	}
	if c.MaxRowBytes < 1<<10 || c.MaxRowBytes > 1<<30 {
		errs = append(errs, fmt.Errorf(
			"replication.max_row_bytes = %d: must lie between 1KiB and 1GiB", c.MaxRowBytes))
	}
	if c.LogicalDecodingWorkMem != 0 && (c.LogicalDecodingWorkMem < 64<<10 ||
		c.LogicalDecodingWorkMem > maxWorkMem) {
		errs = append(errs, fmt.Errorf("replication.logical_decoding_work_mem = %d: must be 0 "+
			"or lie between 64KiB and 2047GiB, as in PostgreSQL", c.LogicalDecodingWorkMem))
	}
	return errors.Join(errs...)
}

// maxWorkMem is what PostgreSQL takes for logical_decoding_work_mem on 64 bits.
const maxWorkMem = 2047 << 30
