package replication

import (
	"sync"
	"sync/atomic"
)

// chunkSize is how many bytes a chunk has. Large, so that a backlog is read with few system calls.
const chunkSize = 256 << 10

// chunksKept is how many that nobody holds wait to be written again: more than are ever in flight with the default limits.
const chunksKept = 40

// Chunk is memory into which a stream was read. It is written again as soon as nobody holds it any more: what a row brings costs the collector nothing then.
// Who never releases what he held leaves the chunk to the collector, and does no harm. The zero value is of no stream.
type Chunk struct {
	bytes   []byte
	holders atomic.Int32
	home    *chunks
}

// Hold keeps the chunk as it is until Release. Only for who knows that somebody else holds it, as an Event's Batch does until it is released. Safe for
// concurrent use, as Release is.
func (c *Chunk) Hold() { c.holders.Add(1) }

// Release takes back one Hold. What points into the chunk must not be read afterwards.
func (c *Chunk) Release() {
	switch n := c.holders.Add(-1); {
	case n == 0 && c.home != nil:
		c.home.putBack(c)
	case n < 0:
		panic("replication: a chunk was released more often than it was held") // and somebody's row may have been overwritten
	}
}

// chunks are those of a stream that nobody holds.
type chunks struct {
	mu   sync.Mutex
	free []*Chunk
}

// take returns a chunk of at least size bytes, held once. The one that was used last comes first: the processor may still have it.
func (cs *chunks) take(size int) *Chunk {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	var c *Chunk
	if n := len(cs.free); n > 0 && size <= chunkSize {
		c = cs.free[n-1]
		cs.free[n-1] = nil
		cs.free = cs.free[:n-1]
	} else {
		c = &Chunk{bytes: make([]byte, max(size, chunkSize)), home: cs}
	}
	c.holders.Store(1)
	return c
}

func (cs *chunks) putBack(c *Chunk) {
	if len(c.bytes) > chunkSize { // for a long row; there may be no second
		return
	}
	scrub(c.bytes)
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if len(cs.free) < chunksKept {
		cs.free = append(cs.free, c)
	}
}

// trim leaves to the collector what was not needed for a while.
func (cs *chunks) trim() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	clear(cs.free)
	cs.free = cs.free[:0]
}
