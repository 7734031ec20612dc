package replication

import (
	"slices"

	"github.com/jackc/pglogrepl"
)

// Batch is all that one read brought, in WAL order. After Release the Events and their Values
// slices are used again; the bytes of Values and Content stay while the Event's Chunk is retained.
type Batch struct {
	Events []Event
	arena  [][]byte    // room for the Values of Events
	chunks []*Chunk    // that Events alias, each retained once
	pool   chan *Batch // where it goes when it is released; nil: nowhere
}

// batches are the free ones of a stream. The collector would empty a sync.Pool many times a
// second.
type batches chan *Batch

// take gives an empty batch.
func (f batches) take() *Batch {
	select {
	case b := <-f:
		return b
	default:
		return &Batch{pool: f}
	}
}

// Release hands the batch back for reuse.
func (b *Batch) Release() {
	b.reset()
	select {
	case b.pool <- b:
	default:
	}
}

// reset empties the batch.
func (b *Batch) reset() {
	clear(b.Events) // drops references into chunks; what is behind is clear already
	clear(b.arena)
	b.Events, b.arena = b.Events[:0], b.arena[:0]
	b.releaseChunks()
}

// next makes room for one event and returns it, zero. Fill it before the next call.
func (b *Batch) next() *Event {
	if len(b.Events) == cap(b.Events) {
		b.Events = slices.Grow(b.Events, max(64, len(b.Events)))
	}
	b.Events = b.Events[:len(b.Events)+1]
	return &b.Events[len(b.Events)-1]
}

func (b *Batch) add(e Event) { *b.next() = e }

// idle adds an idle position. Of several in a row only the newest counts.
func (b *Batch) idle(lsn pglogrepl.LSN) {
	if n := len(b.Events); n > 0 && b.Events[n-1].Kind == Idle {
		b.Events[n-1].LSN = max(lsn, b.Events[n-1].LSN)
		return
	}
	b.add(Event{Kind: Idle, LSN: lsn})
}

// values returns room for the values of one row, which all have to be written.
func (b *Batch) values(n int) [][]byte {
	if cap(b.arena)-len(b.arena) < n {
		b.arena = make([][]byte, 0, max(2*cap(b.arena), n, 256)) // rows before keep the old one
	}
	at := len(b.arena)
	b.arena = b.arena[:at+n]
	return b.arena[at : at+n : at+n]
}
