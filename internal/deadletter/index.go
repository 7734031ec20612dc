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

// Entry is a letter with what became of it.
type Entry struct {
	Letter
	Action     string    // Redriven or Discarded; empty: it is open
	ResolvedBy string    // user@host
	ResolvedAt time.Time // zero: it is open
}

// Open reports whether no resolution names the letter.
func (e *Entry) Open() bool { return e.Action == "" }

// Index is what the topic holds, without payloads: some hundred bytes for a letter.
type Index struct {
	store    Store
	entries  []*Entry // in the order in which they were read
	byID     map[ID]*Entry
	unparked map[Address]int // how often the relay has unparked it
	Unknown  []error         // records that cannot be read
}

// Read makes an index of the whole topic.
func Read(ctx context.Context, store Store) (*Index, error) {
	x := NewIndex()
	x.store = store
	return x, x.Update(ctx, 0)
}

// NewIndex makes an empty index for Take alone: it cannot Update, nor return a Message.
func NewIndex() *Index {
	return &Index{byID: map[ID]*Entry{}, unparked: map[Address]int{}}
}

// Update reads what was written since; if that is nothing it waits for something, as long as wait.
func (x *Index) Update(ctx context.Context, wait time.Duration) error {
	return x.store.Read(ctx, wait, x.Take)
}

// Take adds a record of the topic. Those of a partition come in their order.
func (x *Index) Take(m *sink.Message, offset int64) {
	e, err := parse(m, offset)
	switch {
	case err != nil:
		x.Unknown = append(x.Unknown, err)
	case e.letter != nil:
		if x.byID[e.letter.ID] == nil { // a row that was read again makes the same letter
			entry := &Entry{Letter: *e.letter}
			x.entries = append(x.entries, entry)
			x.byID[entry.ID] = entry
		}
	case e.resolution != nil:
		for _, id := range e.resolution.Letters {
			// A resolution is behind its letters in their partition. The first one counts.
			if entry := x.byID[id]; entry != nil && entry.Open() {
				entry.Action, entry.ResolvedBy, entry.ResolvedAt = e.resolution.Action,
					e.resolution.Who, e.resolution.At
			}
		}
	case e.unparked != nil:
		x.unparked[Address{e.unparked.Topic, string(e.unparked.Key)}]++
	}
}

// Find returns the letter whose ID begins with text, if there is only one.
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
			return nil, fmt.Errorf("%s: there are several dead letters whose ID begins like that",
				text)
		}
		found = e
	}
	if found == nil {
		return nil, fmt.Errorf("%s: there is no dead letter with that ID", text)
	}
	return found, nil
}

// Filter selects letters. A zero field selects all.
type Filter struct {
	All      bool // also those that are dealt with
	Cause    Cause
	Key      *string
	Topic    string
	Relation string
	Since    time.Time
}

// List returns the letters of a filter, in the order of their partitions.
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

// Parked returns the keys that are parked, each with its open letters in the order of their rows.
func (x *Index) Parked() map[Address][]*Entry {
	parked := map[Address][]*Entry{}
	for _, e := range x.entries {
		if e.Parks && e.Open() {
			parked[e.Address()] = append(parked[e.Address()], e)
		}
	}
	for _, letters := range parked {
		inOrder(letters)
	}
	return parked
}

// Parks returns a function that reports whether open letters park the key of a message.
func (x *Index) Parks() func(m *sink.Message) bool {
	parked := x.Parked()
	return func(m *sink.Message) bool {
		return m.Key != nil && len(parked[Address{Topic: m.Topic, Key: string(m.Key)}]) > 0
	}
}

// inOrder sorts letters of one key as their rows were committed, also in several partitions.
func inOrder(letters []*Entry) {
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

// Message reads the record of a letter again, with its payload.
func (x *Index) Message(ctx context.Context, e *Entry) (*sink.Message, error) {
	m, err := x.store.Get(ctx, e.InPartition, e.Offset)
	if err == nil && m == nil {
		err = fmt.Errorf("dead letter %s is no longer in the topic", e.ID)
	}
	return m, err
}

// Kept returns, for each partition that has letters, the offset of its first open one, or -1:
// nothing before it is needed.
func (x *Index) Kept() map[int32]int64 {
	kept := map[int32]int64{}
	for _, e := range x.entries {
		first, known := kept[e.InPartition]
		if !known {
			first = -1
		}
		if e.Open() && (first < 0 || e.Offset < first) {
			first = e.Offset
		}
		kept[e.InPartition] = first
	}
	return kept
}
