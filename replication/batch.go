package replication

import (
	"sync"

	"github.com/jackc/pglogrepl"
)

// Batch is all that one read brought, in WAL order. Who receives one calls Release when its Events and their Values slices are
// no longer needed; the bytes that Values and Content point to stay valid after that.
type Batch struct {
	Events []Event
	arena  [][]byte
}

var batches = sync.Pool{New: func() any { return &Batch{} }}

func newBatch() *Batch { return batches.Get().(*Batch) }

// Release hands the batch back for reuse.
func (b *Batch) Release() {
	clear(b.Events) // drops the references that keep chunks alive
	clear(b.arena[:cap(b.arena)])
	b.Events, b.arena = b.Events[:0], b.arena[:0]
	batches.Put(b)
}

func (b *Batch) add(e Event) { b.Events = append(b.Events, e) }

// idle adds an idle position. Of several in a row only the newest counts.
func (b *Batch) idle(lsn pglogrepl.LSN) {
	if n := len(b.Events); n > 0 && b.Events[n-1].Kind == Idle {
		b.Events[n-1].LSN = max(lsn, b.Events[n-1].LSN)
		return
	}
	b.add(Event{Kind: Idle, LSN: lsn})
}

// values returns room for the values of one row.
func (b *Batch) values(n int) [][]byte {
	if cap(b.arena)-len(b.arena) < n {
		b.arena = make([][]byte, 0, max(2*cap(b.arena), n, 256)) // rows before keep the old one
	}
	at := len(b.arena)
	b.arena = b.arena[:at+n]
	return b.arena[at : at+n : at+n]
}
