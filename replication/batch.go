package replication

import (
	"slices"

	"github.com/jackc/pglogrepl"
)

// Batch is all that one read brought, in WAL order. It has one owner, which calls Release once.
// After that the Events and their Values and Old slices are used again; the bytes that these and
// Content point to stay while the Event's Chunk is retained.
type Batch struct {
	Events []Event
	arena  [][]byte // of Values and Old of Events; all nil behind its length
	chunks []*Chunk // that Events alias, each retained once
	pool   batches  // that Release puts it in; nil: none
}

// batches is the free list of a stream. The collector would empty a sync.Pool many times a second.
type batches chan *Batch

// take returns an empty batch.
func (f batches) take() *Batch {
	select {
	case b := <-f:
		return b
	default:
		return &Batch{pool: f}
	}
}

// Release empties the batch and returns it to the free list of its stream.
func (b *Batch) Release() {
	b.reset()
	select {
	case b.pool <- b:
	default:
	}
}

// reset empties the batch.
func (b *Batch) reset() {
	clear(b.Events) // drops references into chunks; the rest of the array is clear already
	clear(b.arena)
	b.Events, b.arena = b.Events[:0], b.arena[:0]
	b.releaseChunks()
}

// next appends a zero event and returns it. The pointer is valid until the next call.
func (b *Batch) next() *Event {
	if len(b.Events) == cap(b.Events) {
		b.Events = slices.Grow(b.Events, max(64, len(b.Events)))
	}
	b.Events = b.Events[:len(b.Events)+1]
	return &b.Events[len(b.Events)-1]
}

func (b *Batch) add(e Event) { *b.next() = e }

// idle appends an Idle. Of several in a row only the newest is kept.
func (b *Batch) idle(lsn pglogrepl.LSN) {
	if n := len(b.Events); n > 0 && b.Events[n-1].Kind == Idle {
		b.Events[n-1].LSN = max(lsn, b.Events[n-1].LSN)
		return
	}
	b.add(Event{Kind: Idle, LSN: lsn})
}

// values returns n nils for the values of one row.
func (b *Batch) values(n int) [][]byte {
	if cap(b.arena)-len(b.arena) < n {
		b.arena = make([][]byte, 0, max(2*cap(b.arena), n, 256)) // earlier rows keep the old one
	}
	at := len(b.arena)
	b.arena = b.arena[:at+n]
	return b.arena[at : at+n : at+n]
}
