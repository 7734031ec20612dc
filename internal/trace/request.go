package trace

import (
	"time"

	"github.com/postrider/postrider/internal/exit"
)

// Request is what to look for, and how much may be read for it.
type Request struct {
	ID string // of an event; empty: by Key
	// Key has all events of a key, by the text of the column or, with Topic, of the record; nil: by
	// ID.
	Key           *string
	AggregateType string // with Key: only rows whose column of the topic has it; empty: any
	Topic         string // the only place to look in besides the dead letters; empty: the tables
	// Since is where the reading of topics begins; zero: the time of the rows, or with Topic an hour
	// ago.
	Since time.Time
	// MaxRead limits what is read of the topics, in bytes of records; the same for dead letters.
	MaxRead int64
	// MaxScan limits what is read of a table without an index that finds the rows, in bytes.
	MaxScan int64
	// Consented allows reading tables that belong to other roles: see slot.MayRead.
	Consented bool
}

// The limits of a Request that a user makes.
const (
	DefaultMaxRead = 256 << 20
	DefaultMaxScan = 64 << 20
	maxRows        = 1_000 // of a key
	longestID      = 4 << 10
)

// topicSince is Request.Since with a Topic and without a time.
const topicSince = time.Hour

// Validate returns an error of usage for what does not go together.
func (r *Request) Validate() error {
	switch {
	case r.ID == "" && r.Key == nil:
		return exit.Usagef("name an event by its id, or a key with --key: postrider trace EVENT_ID")
	case r.ID != "" && r.Key != nil:
		return exit.Usagef("an id and --key: use one")
	case len(r.ID) > longestID || r.Key != nil && len(*r.Key) > longestID:
		return exit.Usagef("the id or key is longer than %d bytes", longestID)
	case r.AggregateType != "" && (r.Key == nil || r.Topic != ""):
		return exit.Usagef("--aggregate-type is for --key in the tables: with --topic name its topic")
	case r.MaxRead < 1:
		return exit.Usagef("--max-read must be above zero")
	}
	return nil
}
