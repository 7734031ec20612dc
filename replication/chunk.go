package replication

import (
	"sync"
	"sync/atomic"
)

// Each user of a read buffer holds a reference to its Chunk, retained and released here alone:
//
//   wire     while it fills the chunk                    nextChunk
//   Batch    until it is released                        retainChunk, releaseChunks
//   message  from window to acknowledgement, since key,  Retain and Release, by relay/publish.go
//            value and headers alias the row
//
// At zero references the chunk returns to the free list and is filled with other rows. One that is
// never released is left to the collector: a message that failed, which the sink may still read.

// ChunkBytes is the size of a chunk, unless one message is longer. It is large so that a backlog
// is read with few system calls.
const ChunkBytes = 256 << 10

// chunksKept is how many free chunks are kept: more than the default limits have in flight.
const chunksKept = 40

// Chunk is a reference-counted read buffer. The zero value belongs to no stream.
type Chunk struct {
	bytes []byte
	refs  atomic.Int32
	pool  *chunks
}

// Retain keeps the bytes of the chunk unchanged until Release. Call it only while another
// reference is certain, as that of an Event's Batch until its Release. Safe for concurrent use, as
// Release is.
func (c *Chunk) Retain() { c.refs.Add(1) }

// Release gives up one reference. What points into the chunk must not be read afterwards.
func (c *Chunk) Release() {
	switch n := c.refs.Add(-1); {
	case n == 0 && c.pool != nil:
		c.pool.putBack(c)
	case n < 0: // a row of another message may have been overwritten
		panic("replication: a chunk was released more often than retained")
	}
}

// nextChunk moves buf[head:tail] to a chunk with at least size bytes.
func (w *wire) nextChunk(size int) {
	next := w.chunks.take(size)
	w.tail = copy(next.bytes, w.buf[w.head:w.tail])
	w.head = 0
	if w.chunk != nil {
		w.chunk.Release()
	}
	w.chunk, w.buf = next, next.bytes
}

// retainChunk makes c the Chunk of b.Events[n:], retained once for all of them.
func (b *Batch) retainChunk(n int, c *Chunk) {
	if c == nil || n == len(b.Events) {
		return
	}
	if last := len(b.chunks) - 1; last < 0 || b.chunks[last] != c {
		c.Retain()
		b.chunks = append(b.chunks, c)
	}
	for i := n; i < len(b.Events); i++ {
		b.Events[i].Chunk = c
	}
}

func (b *Batch) releaseChunks() {
	for _, c := range b.chunks {
		c.Release()
	}
	clear(b.chunks)
	b.chunks = b.chunks[:0]
}

// chunks is the free list of a stream.
type chunks struct {
	held atomic.Int64 // bytes of the chunks with references
	mu   sync.Mutex   // guards free
	free []*Chunk     // the one released last is the last
}

// take returns a chunk of at least size bytes with one reference.
func (cs *chunks) take(size int) *Chunk {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	var c *Chunk
	if n := len(cs.free); n > 0 && size <= ChunkBytes {
		c = cs.free[n-1]
		cs.free[n-1] = nil
		cs.free = cs.free[:n-1]
	} else {
		c = &Chunk{bytes: make([]byte, max(size, ChunkBytes)), pool: cs}
	}
	c.refs.Store(1)
	cs.held.Add(int64(len(c.bytes)))
	return c
}

func (cs *chunks) putBack(c *Chunk) {
	cs.held.Add(-int64(len(c.bytes)))
	if len(c.bytes) > ChunkBytes { // for a long row; there may be no second
		return
	}
	scrub(c.bytes)
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if len(cs.free) < chunksKept {
		cs.free = append(cs.free, c)
	}
}

// trim leaves all free chunks to the collector.
func (cs *chunks) trim() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	clear(cs.free)
	cs.free = cs.free[:0]
}
