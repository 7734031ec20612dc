package relay

import (
	"sync"

	"github.com/postrider/postrider/sink"
)

// messages are those of a session. One that was delivered is used again for another row, with its
// room for headers, so that a row costs no allocation. Those that are not delivered are left to
// the collector: a sink that failed may still read them.
type messages struct {
	free []*sink.Message // of the pump alone

	mu       sync.Mutex // guards returned
	returned []*sink.Message
}

// take gives a message for the router to fill. Called by the pump alone.
func (ms *messages) take() *sink.Message {
	if len(ms.free) == 0 {
		ms.mu.Lock()
		ms.free, ms.returned = ms.returned, ms.free
		ms.mu.Unlock()
	}
	n := len(ms.free)
	if n == 0 {
		return new(sink.Message)
	}
	m := ms.free[n-1]
	ms.free = ms.free[:n-1]
	return m
}

// putBack returns a message that was taken and not handed over. Called by the pump alone.
func (ms *messages) putBack(m *sink.Message) { ms.free = append(ms.free, m) }

// retain keeps the read buffer of m's row until release: the batch does so for a shorter time.
func retain(m *sink.Message) {
	if m.Origin.Memory != nil {
		m.Origin.Memory.Retain()
	}
}

// release returns a delivered message and the read buffer of its row (replication/chunk.go).
// Transaction and index stay: by them the session recognizes what Publish has taken.
func (ms *messages) release(m *sink.Message) {
	m.Key, m.Value, m.Origin.EventID = nil, nil, ""
	clear(m.Headers)
	if memory := m.Origin.Memory; memory != nil {
		m.Origin.Memory = nil
		memory.Release()
	}
	ms.mu.Lock()
	ms.returned = append(ms.returned, m)
	ms.mu.Unlock()
}
