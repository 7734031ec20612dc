package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/sink"
)

// Entry is a dead letter with its resolution.
type Entry struct {
	Letter
	Action     string    // Redriven or Discarded; empty: open
	ResolvedBy string    // user@host
	ResolvedAt time.Time // zero: open
}

// Open reports whether no resolution names the dead letter.
func (e *Entry) Open() bool { return e.Action == "" }

// Index has the contents of the topic without payloads: some hundred bytes for a dead letter.
type Index struct {
	store    Store
	entries  []*Entry // in the order in which they were read
	byID     map[ID]*Entry
	unparked map[Address]int // number of unparked records
	Unknown  []error         // records that cannot be parsed
}

// ErrUndecided: dead letters may be in a transaction whose end was not read. It is committed
// before their rows count as delivered, and Kafka writes the marker of that a moment later.
var ErrUndecided = errors.New("transactions with dead letters are open")

// Read returns an index of the whole topic.
func Read(ctx context.Context, store Store) (*Index, error) {
	x := NewIndex()
	x.store = store
	return x, x.Update(ctx, 0)
}

// NewIndex returns an empty index without a Store: do not call Update or Message.
func NewIndex() *Index {
	return &Index{byID: map[ID]*Entry{}, unparked: map[Address]int{}}
}

// Update reads new records. Without any it waits for some, up to wait.
func (x *Index) Update(ctx context.Context, wait time.Duration) error {
	return x.store.Read(ctx, wait, x.Take)
}

// Take adds a record of the topic. Call it in the order of each partition.
func (x *Index) Take(m *sink.Message, offset int64) {
	e, err := parse(m, offset)
	switch {
	case err != nil:
		x.Unknown = append(x.Unknown, err)
	case e.letter != nil:
		if x.byID[e.letter.ID] == nil { // a row that was read again has the same ID
			entry := &Entry{Letter: *e.letter}
			x.entries = append(x.entries, entry)
			x.byID[entry.ID] = entry
		}
	case e.resolution != nil:
		for _, id := range e.resolution.Letters {
			// Dead letters precede their resolution in a partition. The first resolution counts.
			if entry := x.byID[id]; entry != nil && entry.Open() {
				entry.Action, entry.ResolvedBy, entry.ResolvedAt = e.resolution.Action,
					e.resolution.Who, e.resolution.At
			}
		}
	case e.unparked != nil:
		x.unparked[Address{e.unparked.Topic, string(e.unparked.Key)}]++
	}
}

// Find returns the dead letter whose ID begins with text. There must be exactly one.
func (x *Index) Find(text string) (*Entry, error) {
	if text == "" {
		return nil, errors.New(
			"the ID of a dead letter is empty: postrider deadletter list has them")
	}
	text = strings.ToLower(text)
	var found *Entry
	for _, e := range x.entries {
		if !strings.HasPrefix(e.ID.String(), text) {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("several dead letters have an ID that begins with %s", text)
		}
		found = e
	}
	if found == nil {
		return nil, fmt.Errorf("no dead letter has the ID %s", text)
	}
	return found, nil
}

// FindOpen finds a dead letter for each of ids, as Find does, and returns those that are open,
// each once.
func (x *Index) FindOpen(ids []string) (open []*Entry, err error) {
	for _, id := range ids {
		e, err := x.Find(id)
		if err != nil {
			return nil, err
		}
		if e.Open() && !slices.Contains(open, e) {
			open = append(open, e)
		}
	}
	return open, nil
}

// Filter selects open dead letters. A zero field selects all of them.
type Filter struct {
	All      bool // also redriven and discarded ones
	Cause    Cause
	Key      *string
	Topic    string
	Relation string
	Since    time.Time
}

// List returns the dead letters that a filter selects, those of a partition by offset.
func (x *Index) List(f Filter) []*Entry {
	var list []*Entry
	for _, e := range x.entries {
		switch {
		case !f.All && !e.Open(),
			f.Cause != "" && e.Cause != f.Cause,
			f.Key != nil && (e.Key == nil || string(e.Key) != *f.Key),
			f.Topic != "" && e.Topic != f.Topic,
			f.Relation != "" && e.Relation != f.Relation,
			!f.Since.IsZero() && e.At.Before(f.Since):
		default:
			list = append(list, e)
		}
	}
	return list
}

// Parked returns the parked keys, each with its open dead letters in the order of their rows.
func (x *Index) Parked() map[Address][]*Entry {
	parked := map[Address][]*Entry{}
	for _, e := range x.entries {
		if e.Parks && e.Open() {
			parked[e.Address()] = append(parked[e.Address()], e)
		}
	}
	for _, letters := range parked {
		sortByRow(letters)
	}
	return parked
}

// Parks returns a function that reports whether the key of a message is parked.
func (x *Index) Parks() func(m *sink.Message) bool {
	parked := x.Parked()
	return func(m *sink.Message) bool {
		return m.Key != nil && len(parked[Address{Topic: m.Topic, Key: string(m.Key)}]) > 0
	}
}

// sortByRow sorts the dead letters of one key in the order of their rows, over all partitions.
func sortByRow(letters []*Entry) {
	slices.SortStableFunc(letters, func(a, b *Entry) int {
		switch {
		case a.InPartition == b.InPartition:
			return cmp.Compare(a.Offset, b.Offset)
		case a.Source == b.Source && a.position != b.position:
			return a.position.compare(b.position)
		}
		return a.At.Compare(b.At)
	})
}

// Message reads the record of a dead letter, with its payload.
func (x *Index) Message(ctx context.Context, e *Entry) (*sink.Message, error) {
	m, err := x.store.Get(ctx, e.InPartition, e.Offset)
	if err == nil && m == nil {
		err = fmt.Errorf("dead letter %s was deleted from the topic", e.ID)
	}
	return m, err
}
