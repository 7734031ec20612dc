package relay

import (
	"sync"

	"github.com/postrider/postrider/sink"
)

// messagePool reuses the delivered messages of a session, with their room for headers, so that a
// row costs no allocation. Undelivered messages are left to the garbage collector: a sink that
// failed may still read them.
type messagePool struct {
	free []*sink.Message // used only by the pump

	mu       sync.Mutex // guards returned
	returned []*sink.Message
}

// get returns a message for the router to fill. Only the pump calls it.
func (mp *messagePool) get() *sink.Message {
	if len(mp.free) == 0 {
		mp.mu.Lock()
		mp.free, mp.returned = mp.returned, mp.free
		mp.mu.Unlock()
	}
	n := len(mp.free)
	if n == 0 {
		return new(sink.Message)
	}
	m := mp.free[n-1]
	mp.free = mp.free[:n-1]
	return m
}

// putBack returns a message that was not published. Only the pump calls it.
func (mp *messagePool) putBack(m *sink.Message) { mp.free = append(mp.free, m) }

// retain retains the read buffer of m's row until release, since the batch releases it earlier.
func retain(m *sink.Message) {
	if m.Origin.Memory != nil {
		m.Origin.Memory.Retain()
	}
}

// release returns a delivered message, and releases the read buffer of its row. Transaction and
// index stay: by them the session finds the first message that Publish did not take.
func (mp *messagePool) release(m *sink.Message) {
	m.Key, m.Value, m.Origin.EventID = nil, nil, ""
	clear(m.Headers)
	if memory := m.Origin.Memory; memory != nil {
		m.Origin.Memory = nil
		memory.Release()
	}
	mp.mu.Lock()
	mp.returned = append(mp.returned, m)
	mp.mu.Unlock()
}
