package relay

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/sink"
)

// add adds a message to the window and to s.out. It waits for room in the window.
func (s *session) add(ctx context.Context, m *sink.Message) error {
	m.Origin.Transaction = s.transaction
	s.retain(m)
	for !s.window.tryAdd(m.Origin.HeldBytes) {
		// The window gets room only after its messages were published.
		if err := s.publish(ctx); err != nil {
			return err
		}
		if err := s.waitForRoom(ctx); err != nil {
			return err
		}
	}
	m.Origin.Generation = s.window.generation
	s.txMessages++
	s.out = append(s.out, m)
	s.published.add(m.Origin.LSN)
	if s.deadLetters != nil { // a publish since follow may have parked the key
		if err := s.followUp(s.out[len(s.out)-1:]); err != nil {
			s.out = s.out[:len(s.out)-1] // it may not overtake those of its key
			s.abandoned++
			return err
		}
	}
	if s.limiter.On() {
		return s.pace(ctx, m)
	}
	return nil
}

// waitForRoom waits until something left the window, or returns the cause of ctx. A wait counts
// as progress: a stalled broker must not look like a hung process.
func (s *session) waitForRoom(ctx context.Context) error {
	for {
		beat, cancel := context.WithTimeout(ctx, stallAge)
		err := s.window.waitMoved(beat)
		cancel()
		now := time.Now()
		s.progress.set(now)
		s.window.age(now)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// publish hands s.out to the sink, and returns when the sink has taken it.
func (s *session) publish(ctx context.Context) error {
	defer func() { clear(s.out); s.out = s.out[:0] }()
	if s.boundary.pending {
		return s.publishBoundary(ctx)
	}
	return s.handOver(ctx, s.out)
}

// handOver hands ms to the sink, or what replaces refused messages. An error ends the session.
func (s *session) handOver(ctx context.Context, ms []*sink.Message) error {
	now := time.Now()
	for _, m := range ms {
		m.Origin.HandedOver = now
	}
	for len(ms) > 0 {
		err := context.Cause(ctx)
		if err == nil {
			s.inSink.Store(true)
			err = s.sink.Publish(ctx, ms)
			s.sinkReturned()
		}
		if err == nil {
			return nil
		}
		left := notTaken(ms, err)
		ms = ms[len(ms)-left:]
		if ms, err = s.refusedBySink(ctx, ms, err); err != nil {
			s.abandoned += left
			return err
		}
	}
	return nil
}

// notTaken returns how many messages Publish did not take: from the one in err on, else all.
func notTaken(ms []*sink.Message, err error) int {
	if failed, ok := errors.AsType[*sink.MessageError](err); ok {
		// the sink may be releasing a message that it took: only these two fields may be read
		inError := func(m *sink.Message) bool { return sameEvent(m, failed.Origin) }
		return len(ms) - max(0, slices.IndexFunc(ms, inError))
	}
	return len(ms)
}

// sameEvent reports whether m has the window's transaction and the index of the event.
func sameEvent(m *sink.Message, of sink.Origin) bool {
	return m.Origin.Transaction == of.Transaction && m.Origin.Index == of.Index
}

// delivered is the sink.Done of the session.
func (s *session) delivered(m *sink.Message, err error) {
	if err != nil {
		s.recent.refusedBy(m.Topic, err)
		s.sinkFailed(err, s.candidates.refused(m, err))
		return
	}
	if s.candidates.any() {
		s.candidates.cleared(m)
	}
	now := time.Now()
	s.lastAck.set(now)
	size := m.Size()
	late := max(0, now.Add(s.clockSkew()).Sub(m.Origin.CommitTime))
	if s.transactional == nil {
		s.metrics.CommitToAck.Observe(late.Seconds())
	}
	s.metrics.PublishSeconds.Observe(now.Sub(m.Origin.HandedOver).Seconds())
	topic := s.metrics.Topic(m.Topic)
	topic.Published.Inc()
	topic.Bytes.Add(float64(size))
	topic.Last.Set(float64(now.UnixMilli()) / 1e3)
	s.recent.delivered(m, now, late)
	s.acknowledged.Add(1)
	of := m.Origin
	release(m)
	if !s.isDeadLetter(m.Topic) { // the handler owns dead letters
		s.pool.put(m)
	}
	s.window.done(of.Transaction, of.HeldBytes, of.Generation)
}

// sinkFailed ends the session with cause, because the sink has failed with err.
func (s *session) sinkFailed(err, cause error) {
	_, reason := Classify(err, false)
	s.metrics.PublishErrors.WithLabelValues(reason).Inc()
	s.failed.Store(true)
	s.fail(cause)
}

// sinkReturned clears inSink after a call of the sink.
func (s *session) sinkReturned() {
	s.progress.set(time.Now())
	s.inSink.Store(false)
}

// settle publishes s.out and waits until the broker has acknowledged every message.
func (s *session) settle(ctx context.Context) error {
	if err := s.publish(ctx); err != nil {
		return err
	}
	return s.awaitUnacknowledged(ctx, 0)
}

// awaitUnacknowledged waits until at most n messages are not acknowledged.
func (s *session) awaitUnacknowledged(ctx context.Context, n int) error {
	for s.window.unacknowledged() > n {
		if err := s.waitForRoom(ctx); err != nil {
			return err
		}
	}
	return nil
}

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

// bufferSlack is how much more than the rows of the messages in flight the read buffers may take
// before messages are copied out of them: what is read and not routed yet.
const bufferSlack = 16 * replication.ChunkBytes

// retain keeps the bytes of m until release, since the batch releases its read buffer earlier.
// Usually it retains the buffer. Where few of the messages of a buffer wait, as for a partition
// without a leader, it copies m instead: the buffer would stay for a fraction of its bytes.
func (s *session) retain(m *sink.Message) {
	of := &m.Origin
	of.HeldBytes = max(m.Size(), s.readBytes)
	s.readBytes = 0
	if of.Memory == nil {
		return
	}
	if buffers := s.bufferBytes() - bufferSlack; buffers > 0 {
		if _, bytes, _ := s.window.inFlight(); buffers > bytes+int64(of.HeldBytes) {
			*m = m.Clone()
			of.HeldBytes = m.Size()
			return
		}
	}
	of.Memory.Retain()
}

// release gives up the bytes of a delivered message. Transaction and index stay: by them the
// session finds the first message that Publish did not take.
func release(m *sink.Message) {
	m.Key, m.Value, m.Origin.EventID = nil, nil, ""
	clear(m.Headers)
	if memory := m.Origin.Memory; memory != nil {
		m.Origin.Memory = nil
		memory.Release()
	}
}

// messagesKept is how many free messages are kept: more than the default limits have in flight,
// unless partitions were stalled.
const messagesKept = 10_000

// put returns a released message.
func (mp *messagePool) put(m *sink.Message) {
	mp.mu.Lock()
	defer mp.mu.Unlock()
	if len(mp.returned) < messagesKept {
		mp.returned = append(mp.returned, m)
	}
}
