package backfill

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/sink"
)

// phase is how far the snapshot of a slot has come.
type phase string

// The phases, in their order.
const (
	phaseCreating phase = "creating" // the slot is being made; nothing has been published
	phaseCopying  phase = "copying"
	phaseComplete phase = "complete"
)

// record is the saved progress of a snapshot: the JSON value of the newest record in the topic
// with the slot's name as key.
type record struct {
	SystemID        string `json:"system_id"` // of the database cluster
	Slot            string `json:"slot"`
	Phase           phase  `json:"phase"`
	ConsistentPoint string `json:"consistent_point,omitempty"` // of the slot; an LSN
	// for slot.AwaitCommitted; zero: not known
	Xmax uint32 `json:"xmax,omitempty"`
	// the same; maxRunning at most
	Running []uint32        `json:"running,omitempty"`
	Tables  []tableProgress `json:"tables,omitempty"`
	// every topic that a message was published to, or is about to be
	Topics    map[string]topicOffsets `json:"topics,omitempty"`
	StartedAt time.Time               `json:"started_at"`
	// SavedAt orders the records of a key: each is later than the one before. Offsets do not: a
	// broker may execute a request of a dead process after those of the next one.
	SavedAt time.Time `json:"saved_at"`
}

// maxRunning limits a record, which is saved with every chunk, to some 100 kB. With more, Running
// is empty, and all transactions below Xmax are waited for.
const maxRunning = 10_000

// tableProgress is how far one table has been copied.
type tableProgress struct {
	Name   string    `json:"name"`
	Order  string    `json:"order"`            // Order.String
	Unique []string  `json:"unique,omitempty"` // columns of Last.Key; empty: not known
	Rows   int64     `json:"rows"`             // read and acknowledged
	Last   *Position `json:"last,omitempty"`
	Done   bool      `json:"done,omitempty"`
}

// topicOffsets are the ends of a topic's partitions.
type topicOffsets struct {
	First []int64 `json:"first"` // before the first message of the snapshot
	Last  []int64 `json:"last"`  // after the last chunk with a message for the topic was acknowledged
}

// Store stores records, and reads topics. producer.Progress is one.
type Store interface {
	// Load calls each with the values of a key in the order of their offsets. An empty one deletes
	// those before it.
	Load(ctx context.Context, key string, each func(value []byte)) error
	Save(ctx context.Context, key string, value []byte) error
	Ends(ctx context.Context, topics []string) (map[string][]int64, error)
	Read(ctx context.Context, topic string, from []int64, each func(*sink.Message)) error
	Close()
}

func load(ctx context.Context, store Store, slotName string) (*record, error) {
	var last newest
	if err := store.Load(ctx, slotName, last.add); err != nil {
		return nil, err
	}
	if last.err != nil {
		return nil, fmt.Errorf("read the progress of the snapshot of slot %q: %w", slotName, last.err)
	}
	if last.olderFollows { // compaction keeps the value with the highest offset
		if err := store.Save(ctx, slotName, last.document); err != nil {
			return nil, err
		}
	}
	return last.record, nil
}

// newest finds the record that was saved last.
type newest struct {
	record       *record
	document     []byte // of record
	olderFollows bool   // in the topic
	err          error  // of the last value, if it cannot be read
}

func (n *newest) add(document []byte) {
	n.err = nil
	if len(document) == 0 {
		*n = newest{}
		return
	}
	r := &record{}
	if n.err = json.Unmarshal(document, r); n.err != nil {
		return
	}
	n.olderFollows = n.record != nil && r.SavedAt.Before(n.record.SavedAt)
	if !n.olderFollows {
		n.record, n.document = r, bytes.Clone(document)
	}
}

func (r *record) save(ctx context.Context, store Store) error {
	r.stamp(time.Now().UTC())
	document, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return store.Save(ctx, r.Slot, document)
}

// stamp sets SavedAt to now, or just after the last SavedAt if the clock of its host was ahead.
func (r *record) stamp(now time.Time) {
	if next := r.SavedAt.Add(time.Microsecond); now.Before(next) {
		now = next
	}
	r.SavedAt = now
}

// table returns the entry of a table, and adds it if there is none.
func (r *record) table(t *TableReader) *tableProgress {
	for i := range r.Tables {
		if r.Tables[i].Name == t.Name {
			return &r.Tables[i]
		}
	}
	r.Tables = append(r.Tables,
		tableProgress{Name: t.Name, Order: t.Order.String(), Unique: t.uniqueColumns()})
	return &r.Tables[len(r.Tables)-1]
}

// fits reports whether reading can go on behind Last by the unique columns that the table has now.
func (p *tableProgress) fits(unique []string) bool {
	switch {
	case p.Done || p.Last == nil:
		return true
	case len(p.Unique) == 0:
		return len(p.Last.Key) == len(unique)
	}
	return slices.Equal(p.Unique, unique)
}
