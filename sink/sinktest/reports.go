package sinktest

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/sink"
)

// reports records the calls of done. Safe for concurrent use.
type reports struct {
	mu    sync.Mutex
	order []*sink.Message
	err   map[*sink.Message]error
	twice []*sink.Message
	more  chan struct{} // has a token when something was added
	spoil bool          // use what is delivered for something else, as the relay does
}

func newReports() *reports {
	return &reports{err: map[*sink.Message]error{}, more: make(chan struct{}, 1)}
}

func (r *reports) done(m *sink.Message, err error) {
	r.mu.Lock()
	if _, ok := r.err[m]; ok {
		r.twice = append(r.twice, m)
	}
	r.err[m] = err
	r.order = append(r.order, m)
	if r.spoil && err == nil {
		overwrite(m)
	}
	r.mu.Unlock()
	select {
	case r.more <- struct{}{}:
	default:
	}
}

func overwrite(m *sink.Message) {
	for _, bytes := range [][]byte{m.Key, m.Value} {
		for i := range bytes {
			bytes[i] = '#'
		}
	}
	for i := range m.Headers {
		for j := range m.Headers[i].Value {
			m.Headers[i].Value[j] = '#'
		}
		m.Headers[i].Key = "#"
	}
	m.Topic, m.Partition = "nobody.made.this", -7
}

// wait returns when n messages have been reported in all.
func (r *reports) wait(t *testing.T, n int) {
	t.Helper()
	late := time.NewTimer(Patience)
	defer late.Stop()
	for r.count() < n {
		select {
		case <-r.more:
		case <-late.C:
			require.FailNowf(t, "messages not reported", "%d of %d are", r.count(), n)
		}
	}
}

func (r *reports) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.order)
}

// of returns what was reported for a message, which must have been.
func (r *reports) of(t *testing.T, m *sink.Message) error {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	err, ok := r.err[m]
	require.True(t, ok, "message with value %q was not reported", m.Value)
	return err
}

// inOrder returns the messages in the order of their reports.
func (r *reports) inOrder() []*sink.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*sink.Message(nil), r.order...)
}

func (r *reports) requireOnce(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Empty(t, r.twice, "messages reported more than once")
}
