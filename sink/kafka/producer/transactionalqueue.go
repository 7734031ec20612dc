package producer

import (
	"sync"

	"github.com/postrider/postrider/sink"
)

const (
	queueMessages = 10_000
	queueBytes    = 16 << 20
)

// queue holds what was published and what the writer, busy with a commit, has not taken yet.
type queue struct {
	filled chan struct{} // has a token when there may be something to take
	room   chan struct{} // has a token when there may be room again

	mu       sync.Mutex
	entries  []entry
	messages int  // <= queueMessages
	bytes    int  // <= queueBytes, but an empty queue takes any one message
	ended    bool // nothing takes any more; no entry is added
}

// entry is a message, or the boundary behind the messages before it.
type entry struct {
	message  *sink.Message // nil: a boundary
	position sink.Position
}

func newQueue() queue {
	return queue{filled: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// add returns false if there is no room, or after end.
func (q *queue) add(e entry) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	size := e.message.Size()
	if q.ended || q.messages >= queueMessages || q.messages > 0 && q.bytes+size > queueBytes {
		return false
	}
	q.entries = append(q.entries, e)
	q.messages++
	q.bytes += size
	return true
}

// close puts a boundary behind what is there. It takes the place of one that nothing stands
// behind, so boundaries need no limit.
func (q *queue) close(p sink.Position) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := len(q.entries); n > 0 && q.entries[n-1].message == nil {
		q.entries[n-1].position = p
		return
	}
	q.entries = append(q.entries, entry{position: p})
}

// take returns all that is there.
func (q *queue) take() []entry {
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

// end returns what is left, and has add refuse what a Publish that is under way still brings: no
// writer would take it, and it would never be reported.
func (q *queue) end() []entry {
	q.mu.Lock()
	q.ended = true
	q.mu.Unlock()
	return q.take()
}

func (q *queue) wake() {
	select {
	case q.filled <- struct{}{}:
	default:
	}
}
