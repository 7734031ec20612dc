package replication

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Config is the section [replication].
type Config struct {
	Publication string   `toml:"publication"`
	Tables      []string `toml:"tables"`     // outbox tables, schema-qualified
	Partitions  []string `toml:"partitions"` // as text: see Assignment
	// Messages are prefixes of logical messages that carry outbox events.
	Messages []string `toml:"messages"`
	// TransactionalOnly leaves out logical messages that are not transactional.
	TransactionalOnly bool          `toml:"transactional_only"`
	StatusInterval    time.Duration `toml:"status_interval"` // longest time between two statuses
	// MaxRowBytes is the longest row or message that is kept; of a longer one see Event.Oversize.
	MaxRowBytes int64 `toml:"max_row_bytes,size"`
	// LogicalDecodingWorkMem is in bytes. A larger setting of the server stays. 0: the server's.
	LogicalDecodingWorkMem int64 `toml:"logical_decoding_work_mem,size"`
	// Witness has Run emit Begin and Commit of every transaction with logical messages, also if these
	// are left out, so that the transactions that are seen depend on no key. It is not a key itself.
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

// maxWorkMem is PostgreSQL's maximum of logical_decoding_work_mem on 64 bits, in bytes.
const maxWorkMem = 2047 << 30

// Validate reports every wrong value.
func (c Config) Validate() error {
	var errs []error
	require := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	require(c.Publication != "",
		"replication.publication is empty: name the publication of the outbox table")
	require(len(c.Tables) > 0 || len(c.Messages) > 0,
		"replication.tables and replication.messages are both empty: there is nothing to relay")
	for _, t := range c.Tables {
		schema, name, _ := strings.Cut(t, ".")
		require(schema != "" && name != "",
			"replication.tables: %q is not schema-qualified: write %q", t,
			"public."+strings.Trim(t, "."))
	}
	errs = append(errs, c.validatePartitions()...)
	require(!slices.Contains(c.Messages, ""),
		"replication.messages: an empty prefix is not allowed")
	require(100*time.Millisecond <= c.StatusInterval && c.StatusInterval <= 10*time.Second,
		"replication.status_interval = %s: must lie between 100ms and 10s, "+
			"or the server may take the relay for dead", c.StatusInterval)
	require(1<<10 <= c.MaxRowBytes && c.MaxRowBytes <= 1<<30,
		"replication.max_row_bytes = %d: must lie between 1KiB and 1GiB", c.MaxRowBytes)
	mem := c.LogicalDecodingWorkMem
	require(mem == 0 || 64<<10 <= mem && mem <= maxWorkMem,
		"replication.logical_decoding_work_mem = %d: must be 0 or lie between 64KiB and 2047GiB, "+
			"as in PostgreSQL", mem)
	return errors.Join(errs...)
}
