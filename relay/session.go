package relay

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
)

const (
	// Batches between stream and pump: one that is read while the other is routed. The limit on memory is the window's.
	batchesQueued = 2
	// How long a session that can confirm nothing any more waits for its producer to get rid of what it has.
	briefDrain = 5 * time.Second
	// How long a sink may take to close. What it still holds then is published again by the next session.
	sinkCloseTimeout = 5 * time.Second
	// The same after a second signal: somebody does not want to wait.
	sinkCloseTimeoutKilled = 500 * time.Millisecond
)

// session is one attempt from open to close. Its only shared state is the window and, through it, the sink's result loop.
type session struct {
	cfg      Config
	policies deadletter.Config
	log      zerolog.Logger
	metrics  *metrics.Set
	router   *router.Router

	stream        *replication.Stream
	sink          sink.Sink
	dedup         sink.Deduplicator  // the sink, with relay.dedup; else nil
	transactional sink.Transactional // the sink, with relay.exactly_once; else nil
	source        sink.Source
	desk          deadletter.Desk // nil unless a policy makes dead letters
	window        *window
	fail          context.CancelCauseFunc // ends the session with a cause; the first one counts

	published atomic.Uint64
	progress  atomic.Int64 // Unix nanoseconds: when the pump last turned
	waits     atomic.Bool  // for the sink, which may take as long as a broker takes to answer; it gives up by itself
	moved     atomic.Int64 // Unix nanoseconds: the last acknowledgement, or a later batch that found nothing in flight
	failed    atomic.Bool  // the sink reported a failure: what is in flight may or may not be written

	messages  messages
	recent    *recent              // of the Relay
	suspects  *suspects            // of the Relay
	missing   *missing             // of the Relay
	handed    *handed              // of the Relay
	clockSkew func() time.Duration // see Parts.ClockSkew

	counted uint64 // of the bytes received, what the metrics have; guarded by Relay.mu

	// Of the pump alone.
	transaction uint64          // number of the open one in the window
	held        int             // bytes read since the last message, as far as the next one keeps them in memory
	out         []*sink.Message // routed, in the window, not yet handed over
	abandoned   int             // of the window, what the sink never took, or never commits: nobody reports it. Read after the pump has ended
	transit                     // what exactly_once needs to know
}

// pumpAll moves events until the stream ends or the session fails, and returns why: nil after a clean stop.
// stream and pump have ended when it returns.
func (s *session) pumpAll(ctx, stop context.Context) error {
	batches := make(chan *replication.Batch, batchesQueued)
	var wg sync.WaitGroup
	var streamErr error
	wg.Go(func() {
		streamErr = s.stream.Run(ctx, stop, batches, s.window.ackedLSN)
		if streamErr != nil {
			s.fail(streamErr)
		}
	})
	wg.Go(func() {
		if err := s.pump(ctx, batches); err != nil {
			s.fail(err)
		}
	})
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return streamErr
}

// pump routes and publishes in WAL order until batches is closed.
func (s *session) pump(ctx context.Context, batches <-chan *replication.Batch) error {
	beat := time.NewTicker(time.Second)
	defer beat.Stop()
	defer func() { s.abandoned += s.untold }()
	for {
		s.progress.Store(time.Now().UnixNano())
		select {
		case b, ok := <-batches:
			if !ok {
				return nil
			}
			if err := s.relay(ctx, b); err != nil {
				return err
			}
			b.Release()
		case <-beat.C:
		}
	}
}

// relay takes one batch through router, window and sink.
func (s *session) relay(ctx context.Context, b *replication.Batch) error {
	if messages, _, _ := s.window.load(); messages == 0 {
		s.moved.Store(time.Now().UnixNano())
	}
	for i := range b.Events {
		e := &b.Events[i]
		s.held = min(s.held, replication.ChunkBytes) + e.Bytes
		switch e.Kind {
		case replication.Begin:
			s.metrics.Transactions.Inc()
			if err := s.begin(e); err != nil {
				return err
			}
		case replication.Insert, replication.Update, replication.Message:
			if err := s.row(ctx, e); err != nil {
				return err
			}
		case replication.Commit:
			if err := s.commit(e); err != nil {
				return err
			}
		case replication.Idle:
			if err := s.idle(e); err != nil {
				return err
			}
		}
	}
	return s.publish(ctx)
}

// row takes one event into the window, as its message, as a dead letter, or not at all.
func (s *session) row(ctx context.Context, e *replication.Event) error {
	if s.leaving {
		s.metrics.EventsRepeated.Inc()
		return nil
	}
	m := s.messages.take()
	ours, err := s.router.RouteTo(m, e)
	if !ours {
		s.messages.putBack(m)
		m = nil
	}
	switch {
	case !ours && err == nil:
		s.metrics.EventsSkipped.Inc()
		return nil
	case e.Oversize > 0:
		return s.poisoned(ctx, Poisoned{Event: e, Message: m, Err: s.oversize(e)})
	case err != nil:
		return s.poisoned(ctx, Poisoned{Event: e, Err: err})
	}
	s.metrics.EventsRouted.Inc()
	if s.desk != nil {
		letter, err := s.follow(ctx, e, m)
		if errors.Is(err, deadletter.ErrKept) {
			s.metrics.EventsRepeated.Inc()
			return nil
		}
		if err != nil {
			return err
		}
		if letter != nil {
			s.metrics.DeadLetters.WithLabelValues(causeParked).Inc()
			m = letter
		}
	}
	return s.take(ctx, e, m)
}

// take adds a message, unless the topic has it already or it is a suspect.
func (s *session) take(ctx context.Context, e *replication.Event, m *sink.Message) error {
	if e.Chunk != nil {
		m.Origin.Memory = e.Chunk
	}
	if len(s.missing.topics) > 0 {
		if gone, err := s.gone(ctx, e, m); gone || err != nil {
			return err
		}
	}
	if there, err := s.repeated(ctx, e, m); there || err != nil {
		return err
	}
	if s.suspects.any() {
		if found := s.suspects.of(m); found != nil {
			return s.tryAlone(ctx, e, m, *found)
		}
	}
	return s.add(ctx, m)
}

// add takes a message into the window and to those that the next publish hands over.
func (s *session) add(ctx context.Context, m *sink.Message) error {
	if m.Origin.Memory != nil {
		m.Origin.Memory.Hold() // the batch does not, once it is released
	}
	m.Origin.Transaction = s.transaction
	m.Origin.HeldBytes = max(m.Size(), s.held)
	s.held = 0
	for !s.window.tryAdd(m.Origin.HeldBytes) {
		// The window only gets room when what is in it has been handed over.
		if err := s.publish(ctx); err != nil {
			return err
		}
		if err := s.waitForRoom(ctx); err != nil {
			return err
		}
	}
	s.rows++
	s.out = append(s.out, m)
	s.handed.add(m.Origin.LSN)
	return nil
}

// repeated tells whether an earlier session has published m, and says of a message with a position where that counts. A message outside of a
// transaction is never recognised: the commit record of a transaction can begin where it ends, and both would have one position. Nor is a dead
// letter: that of a row which the broker refused is made some sessions later than those of rows behind it, so letters are in no order of
// positions; and the desk knows by their IDs which letters there are.
func (s *session) repeated(ctx context.Context, e *replication.Event, m *sink.Message) (bool, error) {
	if e.XID == 0 || s.isLetter(m.Topic) {
		return false, nil
	}
	if s.dedup == nil {
		if n := len(m.Headers); n > 0 && m.Headers[n-1].Key == router.HeaderIndex {
			s.sign(m)
		}
		return false, nil
	}
	s.waits.Store(true) // the ends of the topic may have to be read, which takes as long as there is to read
	there, err := s.dedup.Published(ctx, s.source, m)
	s.progress.Store(time.Now().UnixNano())
	s.waits.Store(false)
	if there {
		s.metrics.EventsRepeated.Inc()
		return true, err
	}
	s.sign(m)
	return false, err
}

// sign says by which source a message's position counts: the next session recognises it by that, and an audit compares positions.
func (s *session) sign(m *sink.Message) {
	if s.signature == nil {
		s.signature = s.signatures.of(s.source, s.committedAt)
	}
	if !slices.ContainsFunc(m.Headers, func(h sink.Header) bool { return h.Key == sink.HeaderSource }) { // a dead letter may have it from the row
		m.Headers = append(m.Headers, sink.Header{Key: sink.HeaderSource, Value: s.signature})
	}
}

// waitForRoom waits until something left the window, or ctx ends, and returns its cause. It beats, so that a stalled broker does not look
// like a hung process.
func (s *session) waitForRoom(ctx context.Context) error {
	for {
		beat, cancel := context.WithTimeout(ctx, time.Second)
		err := s.window.waitMoved(beat)
		cancel()
		s.progress.Store(time.Now().UnixNano())
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// publish hands over what has gathered. It returns when the sink has taken it.
func (s *session) publish(ctx context.Context) error {
	defer func() { clear(s.out); s.out = s.out[:0] }()
	if !s.bounded {
		return s.handOver(ctx, s.out)
	}
	complete, rest := s.out[:s.complete], s.out[s.complete:]
	s.bounded = false
	err := s.handOver(ctx, complete)
	if err == nil && s.desk != nil { // which may have parked a key meanwhile
		err = s.followUp(rest)
	}
	if err != nil {
		s.abandoned += len(rest)
		return err
	}
	s.transactional.Boundary(s.boundary)
	s.untold = 0
	return s.handOver(ctx, rest)
}

func (s *session) handOver(ctx context.Context, ms []*sink.Message) error {
	if len(ms) == 0 {
		return nil
	}
	now := time.Now()
	for _, m := range ms {
		m.Origin.HandedOver = now
	}
	for len(ms) > 0 {
		err := context.Cause(ctx)
		if err == nil {
			s.waits.Store(true)
			err = s.sink.Publish(ctx, ms)
			s.progress.Store(time.Now().UnixNano())
			s.waits.Store(false)
		}
		if err == nil {
			return nil
		}
		left := notTaken(ms, err)
		ms = ms[len(ms)-left:]
		if ms, err = s.refusedBySink(ms, err); err != nil {
			s.abandoned += left
			return err
		}
	}
	return nil
}

// notTaken is how many messages the sink did not take when Publish failed: those from the one that the error names, else all.
func notTaken(ms []*sink.Message, err error) int {
	if failed := new(sink.MessageError); errors.As(err, &failed) {
		for i, m := range ms { // those taken may be delivered by now, and are not to be looked at but for this
			if sameEvent(m, failed.Origin) {
				return len(ms) - i
			}
		}
	}
	return len(ms)
}

// sameEvent tells whether a message is of that event. The LSN would not do: a message outside of a transaction can have that of the commit behind it.
func sameEvent(m *sink.Message, of sink.Origin) bool {
	return m.Origin.Transaction == of.Transaction && m.Origin.Index == of.Index
}

// delivered is the sink's Done.
func (s *session) delivered(m *sink.Message, err error) {
	if err != nil {
		_, reason := Classify(err, false)
		s.metrics.PublishErrors.WithLabelValues(reason).Inc()
		s.recent.refusedBy(m.Topic, err)
		s.failed.Store(true)
		s.fail(s.suspects.refused(m, err))
		return
	}
	if s.suspects.any() {
		s.suspects.clear(m)
	}
	now := time.Now()
	s.moved.Store(now.UnixNano())
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
	s.published.Add(1)
	number, held := m.Origin.Transaction, m.Origin.HeldBytes
	if !s.isLetter(m.Topic) { // letters are the desk's
		s.messages.release(m)
	}
	s.window.done(number, held)
}

// finish ends a session whose pump has ended with cause: wait for what is in flight as long as that is of use, confirm, close. The
// order matters: the final status must come after the last acknowledgement, and the sink must be gone before
// another session opens one.
func (s *session) finish(ctx context.Context, cause error) error {
	drainCtx, cancel := context.WithTimeoutCause(ctx, s.patience(cause), ErrDrainTimeout)
	defer cancel()
	drained := make(chan struct{})
	var wg sync.WaitGroup
	var drainErr error
	wg.Go(func() {
		if drainErr = s.drain(drainCtx); drainErr == nil {
			close(drained)
		}
	})
	var finishErr error
	if errors.Is(cause, postgres.ErrStaleConnection) {
		s.stream.Abandon()
	} else {
		finishErr = s.stream.Finish(drainCtx, drained)
	}
	wg.Wait()
	closeTimeout := sinkCloseTimeout
	if errors.Is(cause, ErrSecondSignal) || errors.Is(context.Cause(ctx), ErrSecondSignal) {
		closeTimeout = sinkCloseTimeoutKilled
	}
	s.closeSink(closeTimeout)
	if messages, _, _ := s.window.load(); messages > s.abandoned {
		s.log.Warn().Int("in_flight", messages-s.abandoned).Stringer("acked_lsn", s.window.ackedLSN()).
			Msg("session ended with messages in flight; they are published again by the next one")
	}
	if cause == nil && drainErr != nil {
		return drainErr
	}
	if cause != nil {
		return cause
	}
	return finishErr
}

// patience is how long what is in flight may take, after a session that ended with cause. A sink that has failed answers nothing more.
func (s *session) patience(cause error) time.Duration {
	how := drainFully
	if cause != nil {
		how = find(cause).drain
	}
	if s.failed.Load() {
		how = drainNot
	}
	return map[drain]time.Duration{drainFully: s.cfg.DrainTimeout, drainBriefly: min(briefDrain, s.cfg.DrainTimeout), drainNot: 0}[how]
}

// drain waits until nothing is in flight but what the sink does not have. The pump has ended, so the wait itself beats.
func (s *session) drain(ctx context.Context) error {
	for {
		if messages, _, _ := s.window.load(); messages <= s.abandoned {
			return nil
		}
		if err := s.waitForRoom(ctx); err != nil {
			return err
		}
	}
}

func (s *session) closeSink(timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := s.sink.Close(ctx); err != nil {
		s.log.Warn().Err(err).Msg("sink not closed cleanly")
	}
}

func (s *session) positions() (received, acked, confirmed pglogrepl.LSN) {
	return s.stream.ReceivedLSN(), s.window.ackedLSN(), s.stream.ConfirmedFlushLSN()
}
