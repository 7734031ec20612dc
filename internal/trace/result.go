package trace

import (
	"time"

	"github.com/postrider/postrider/internal/status"
	"github.com/postrider/postrider/relay"
)

// State is where an event is.
type State string

// The states. Only Waiting ends by itself.
const (
	Published    State = "published"     // in a topic
	Waiting      State = "waiting"       // in the table; the relay has not come to it yet
	DeadLetter   State = "dead_letter"   // in the dead-letter topic, not redriven
	Discarded    State = "discarded"     // was a dead letter
	NotPublished State = "not_published" // in the table, and in no topic: Why says for what reason
	Undecided    State = "undecided"     // what was read does not show it
	NotFound     State = "not_found"     // nowhere
)

// Result is what a search has found.
type Result struct {
	State  State  `json:"state"`  // of the event; of a key Published only if all are
	Answer string `json:"answer"` // one sentence
	Why    string `json:"why,omitempty"`
	Next   string `json:"next,omitempty"` // what to type next
	ID     string `json:"id,omitempty"`
	Key    string `json:"key,omitempty"`
	// Events are the rows, records and dead letters, those of one event together.
	Events []*Event `json:"events"`
	// OrderedBy is what the events of a key are in the order of: "position", "commit time" or
	// "transaction", in which those of concurrent transactions can be swapped.
	OrderedBy string   `json:"ordered_by,omitempty"`
	More      bool     `json:"more,omitempty"` // the key has more rows than are shown
	Slot      *Slot    `json:"slot,omitempty"`
	Searched  Searched `json:"searched"`
	Notes     []string `json:"notes,omitempty"`
}

// Event is one event.
type Event struct {
	State   State    `json:"state"`
	Why     string   `json:"why,omitempty"`
	Next    string   `json:"next,omitempty"`
	ID      string   `json:"id"`
	Row     *Row     `json:"row,omitempty"`     // nil: in no table that was looked at
	Route   *Route   `json:"route,omitempty"`   // by the present configuration; nil: no row
	Records []Record `json:"records,omitempty"` // the first, and its repetitions
	Letters []Letter `json:"dead_letters,omitempty"`
	Parked  bool     `json:"parked,omitempty"` // its key is
	Commit  Commit   `json:"commit"`
	Legs    []Leg    `json:"legs,omitempty"`
}

// Row is the row of an event, without its payload.
type Row struct {
	Table     string   `json:"table"`
	Partition string   `json:"partition,omitempty"` // of the table, in which the row is
	Columns   []Column `json:"columns"`
	// XID is the transaction that wrote the row last: of the insert, unless it was updated.
	XID uint32 `json:"xid"`
	// Updates: by the server's statistics rows of the table were updated, maybe this one.
	Updates bool `json:"updates,omitempty"`
}

// Column is a column of which the router makes something.
type Column struct {
	Name  string  `json:"name"`
	For   string  `json:"for"` // id, key, topic, type or time
	Value *string `json:"value"`
}

// Route is where the router sends a row.
type Route struct {
	Topic     string  `json:"topic,omitempty"`
	Key       *string `json:"key,omitempty"`
	Partition *int32  `json:"partition,omitempty"` // by the key; nil: not known
	Error     string  `json:"error,omitempty"`     // why it is refused
}

// Commit is where the transaction of an event commits.
type Commit struct {
	LSN   string  `json:"lsn,omitempty"` // by the position headers or the dead letter
	Index *uint32 `json:"index,omitempty"`
	// AtMost is a position that is not before the commit, where LSN is not known.
	AtMost string    `json:"at_most,omitempty"`
	Time   time.Time `json:"time,omitzero"`
	TimeBy string    `json:"time_by,omitempty"`
	// Passed: the slot's position is behind it; nil: not known.
	Passed *bool `json:"passed,omitempty"`
}

// Record is a record of an event.
type Record struct {
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	Key       *string   `json:"key,omitempty"`
	Timestamp time.Time `json:"timestamp"`
	// TimestampType is CreateTime, by the commit or a column, or LogAppendTime, by the broker.
	TimestampType string  `json:"timestamp_type"`
	LSN           string  `json:"lsn,omitempty"`
	Index         *uint32 `json:"index,omitempty"`
	Redriven      string  `json:"redriven,omitempty"` // the dead letter that it was
	Bytes         int     `json:"bytes"`

	source     string    // of the header postrider.source
	commitTime time.Time // the same
	id         string
}

// Letter is a dead letter of an event.
type Letter struct {
	ID         string    `json:"id"`
	Cause      string    `json:"cause"`
	Reason     string    `json:"reason"`
	Error      string    `json:"error,omitempty"`
	Topic      string    `json:"topic,omitempty"`
	Relation   string    `json:"relation"`
	At         time.Time `json:"at"`
	Action     string    `json:"action,omitempty"` // redriven or discarded; empty: open
	ResolvedAt time.Time `json:"resolved_at,omitzero"`

	commitTime time.Time
	position   string // commit LSN / index
	source     string
}

// Leg is a step on the way of an event.
type Leg struct {
	Name string    `json:"name"` // inserted, committed, appended, acknowledged or dead letter
	At   time.Time `json:"at"`
	By   string    `json:"by"` // whose clock, and where it is written
	// Seconds are those since the leg before, nil of the first. Clocks differ: it may be negative.
	Seconds *float64 `json:"seconds,omitempty"`
}

// Slot is the relay's slot, after the rows were read.
type Slot struct {
	Name      string     `json:"name"`
	Problem   string     `json:"problem,omitempty"` // missing or lost
	Active    bool       `json:"active"`
	Confirmed status.LSN `json:"confirmed_flush_lsn"`
	Server    status.LSN `json:"server_lsn"`
	Behind    int64      `json:"behind_bytes"`
	Relay     string     `json:"relay,omitempty"` // what it is doing; empty: it does not answer
	Error     string     `json:"relay_error,omitempty"`
}

// Searched is what was read.
type Searched struct {
	Tables      []string        `json:"tables"`
	Unreadable  []string        `json:"unreadable,omitempty"` // tables, each with the reason
	Topics      []TopicSearched `json:"topics"`
	DeadLetters string          `json:"dead_letters,omitempty"` // topic
}

// TopicSearched is what was read of a partition.
type TopicSearched struct {
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	From      int64     `json:"from"` // offset
	To        int64     `json:"to"`   // the offset behind what was read
	End       int64     `json:"end"`  // of the partition
	Records   int64     `json:"records"`
	First     time.Time `json:"first,omitzero"` // time of the first record that was read
	Last      time.Time `json:"last,omitzero"`
	Complete  bool      `json:"complete"` // all that could have the record
}

// ChangeHints changes each Next.
func (r *Result) ChangeHints(change func(hint string) string) {
	r.Next = change(r.Next)
	for _, e := range r.Events {
		e.Next = change(e.Next)
	}
}

// event is an Event with what is needed to find it.
type event struct {
	Event
	table *table // nil: no row
	age   int64  // of the row's transaction
	topic string // where to look; empty: nowhere
	key   []byte
	// partition in which the record is by its key; below zero: any
	partition int32
	hash      int64     // of the key; below zero: it decides no partition
	since     time.Time // no record of it is older; zero: not known
	committed time.Time // by track_commit_timestamp, of the last writer
	inserted  time.Time // by a column
	idValue   []byte    // of the header with the id
	headers   []string  // the names of that header
	refused   error     // by the router
	filtered  bool      // by the row filter of the publication
	size      int       // of the record, as max_message_bytes counts it

	acknowledged *relay.Published // by the relay; nil: not in its sample
}
