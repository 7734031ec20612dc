package producer

import (
	"sync"

	"github.com/postrider/postrider/sink"
)

const (
	queueMessages = 10_000
	queueBytes    = 16 << 20
)

// writerQueue holds messages and boundaries for the writer, which takes none during a commit.
type writerQueue struct {
	filled chan struct{} // has a token when there may be entries
	room   chan struct{} // has a token when there may be room again

	mu       sync.Mutex // guards what follows
	entries  []entry
	messages int  // <= queueMessages
	bytes    int  // <= queueBytes, but an empty queue takes any one message
	closed   bool // no message is added
}

// entry is a message, or the boundary after the messages before it.
type entry struct {
	message  *sink.Message // nil: a boundary
	position sink.Position
}

func newWriterQueue() writerQueue {
	return writerQueue{filled: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// add appends an entry. It returns false if there is no room, or after close.
func (q *writerQueue) add(e entry) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	size := e.message.Size()
	if q.closed || q.messages >= queueMessages || q.messages > 0 && q.bytes+size > queueBytes {
		return false
	}
	q.entries = append(q.entries, e)
	q.messages++
	q.bytes += size
	return true
}

// addBoundary appends a boundary. It replaces the last entry if that is one, so boundaries need no
// limit.
func (q *writerQueue) addBoundary(p sink.Position) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := len(q.entries); n > 0 && q.entries[n-1].message == nil {
		q.entries[n-1].position = p
		return
	}
	q.entries = append(q.entries, entry{position: p})
}

// take removes and returns all entries.
func (q *writerQueue) take() []entry {
	q.mu.Lock()
	entries := q.entries
	q.entries, q.messages, q.bytes = nil, 0, 0
	q.mu.Unlock()
	select {
	case q.room <- struct{}{}:
	default:
	}
	return entries
}

// close makes add refuse messages, and returns the rest. A message added later by a Publish under
// way would never be reported.
func (q *writerQueue) close() []entry {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	return q.take()
}

func (q *writerQueue) wake() {
	select {
	case q.filled <- struct{}{}:
	default:
	}
}
