package relay

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/ratelimit"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
)

const (
	// Batches between stream and pump: one is read while the other is routed.
	batchesQueued = 2
	// How long a session that can confirm nothing any more waits for its producer.
	briefDrain = 5 * time.Second
	// How long a sink may take to close. The next session publishes its remaining messages again.
	sinkCloseTimeout = 5 * time.Second
	// The same after a second signal.
	sinkCloseTimeoutKilled = 500 * time.Millisecond
)

// session is one stream with its window and sink, from open to close.
type session struct {
	cfg      Config
	policies deadletter.Config
	log      zerolog.Logger
	metrics  *metrics.Set
	router   *router.Router
	fail     context.CancelCauseFunc // ends the session with a cause; the first one counts

	stream        *replication.Stream
	bufferBytes   func() int64 // of stream: the size of the read buffers in use
	source        sink.Source
	window        *window
	sink          sink.Sink
	dedup         sink.Deduplicator  // the sink, with relay.dedup; else nil
	transactional sink.Transactional // the sink, with relay.exactly_once; else nil
	deadLetters   deadletter.Handler // nil unless a policy makes dead letters

	// Shared with the Relay.
	recent     *recent
	candidates *candidates
	missing    *missing
	published  *publishedCounts
	limiter    *ratelimit.Limiter
	clockSkew  func() time.Duration

	pool         messagePool
	acknowledged atomic.Uint64 // messages
	progress     instant       // last turn of the pump or of a wait of it
	lastAck      instant       // last acknowledgement, or batch with nothing in flight
	inSink       atomic.Bool   // the pump is in a call that bounds its time
	failed       atomic.Bool   // the sink failed: what is in flight may or may not be written

	// Used only by the pump; abandoned is read after the pump has ended.
	transaction uint64          // number of the open one in the window
	txMessages  int             // of the open transaction
	openCommit  pglogrepl.LSN   // commit LSN of the open transaction; zero: none, or only a message
	readBytes   int             // read since the last message; the next one accounts for them
	out         []*sink.Message // in the window, not yet handed over
	abandoned   int             // messages in the window that the sink never acknowledges
	signer      signer
	resume      resume
	boundary    boundary
	delay       ratelimit.Delay // after the last message; not yet waited for
	draining    <-chan struct{} // closed at a stop or a pause: no limit of the rate then
}

// run runs stream and pump until both end. It returns the cause, nil after a clean stop.
func (s *session) run(ctx, stop context.Context) error {
	batches := make(chan *replication.Batch, batchesQueued)
	var wg sync.WaitGroup
	var streamErr error
	s.draining = stop.Done()
	wg.Go(func() {
		streamErr = s.stream.Run(ctx, stop, batches, s.window.ackedLSN)
		if streamErr != nil && !halts(streamErr) {
			s.fail(streamErr)
		}
	})
	wg.Go(func() {
		if err := s.pump(ctx, batches); err != nil {
			s.fail(err)
		}
	})
	wg.Wait()
	if streamErr != nil {
		s.fail(s.failAt(ctx, streamErr))
	}
	return context.Cause(ctx)
}

// failAt publishes what comes before the row or the end of the stream that has failed with err,
// and returns err, or with what that failed. If the relay halts, an operator may then move the
// slot past what has failed, and what came before must not be lost: it waits until all of that is
// acknowledged, and committed with exactly_once.
func (s *session) failAt(ctx context.Context, err error) error {
	if err = cmp.Or(s.publish(ctx), err); !halts(err) || find(err).drain == drainNot {
		return err
	}
	s.abandoned += s.boundary.held // no boundary follows
	s.boundary.held = 0
	return cmp.Or(s.drain(ctx), err)
}

// halts reports whether the relay halts at an error of a session.
func halts(err error) bool {
	class, _ := Classify(err, true)
	return class != Retryable
}

// pump routes and publishes in WAL order until batches is closed.
func (s *session) pump(ctx context.Context, batches <-chan *replication.Batch) error {
	beat := time.NewTicker(time.Second)
	defer beat.Stop()
	defer func() { s.abandoned += s.boundary.held }()
	for {
		s.progress.set(time.Now())
		select {
		case b, ok := <-batches:
			if !ok {
				return nil
			}
			if err := s.handleBatch(ctx, b); err != nil {
				return err
			}
			b.Release()
		case <-beat.C:
		}
	}
}

// handleBatch routes the events of a batch, adds them to the window and publishes them.
func (s *session) handleBatch(ctx context.Context, b *replication.Batch) error {
	now := time.Now()
	s.window.age(now)
	if messages, _, _ := s.window.inFlight(); messages == 0 {
		s.lastAck.set(now)
	}
	for i := range b.Events {
		e := &b.Events[i]
		s.readBytes = min(s.readBytes, replication.ChunkBytes) + e.Bytes
		var err error
		switch e.Kind {
		case replication.Begin:
			s.metrics.Transactions.Inc()
			err = s.begin(e)
		case replication.Insert, replication.Update, replication.Message:
			err = s.row(ctx, e)
		case replication.Commit:
			if err = s.commit(e); err == nil && s.delay.Due() {
				err = s.waitForRate(ctx)
			}
		case replication.Idle:
			err = s.idle(e)
		}
		if err != nil {
			return s.failAt(ctx, err)
		}
		if ctx.Err() != nil { // a schema registry can take seconds for each row
			return s.failAt(ctx, context.Cause(ctx))
		}
	}
	if err := s.publish(ctx); err != nil {
		return s.failAt(ctx, err)
	}
	return nil
}

// begin opens a transaction in the window, unless one is open for skipped transactions.
func (s *session) begin(e *replication.Event) error {
	s.txMessages = 0
	if e.XID != 0 { // else a message between transactions, whose LSN is its end
		s.openCommit = e.LSN
	}
	s.signer.begin(e.Time)
	opens, err := s.resume.begin(e)
	if opens && err == nil {
		s.transaction = s.window.begin(e.Time)
	}
	return err
}

// commit closes the open transaction, held if it has messages that consumers do not see yet.
func (s *session) commit(e *replication.Event) error {
	s.openCommit = 0
	closes, err := s.resume.commit(e)
	switch {
	case !closes || err != nil:
	case s.transactional == nil || s.txMessages == 0:
		s.window.commit(e.LSN, false)
	default:
		s.commitHeld(e)
	}
	return err
}

// idle adds a position without rows to the window.
func (s *session) idle(e *replication.Event) error {
	takes, err := s.resume.idle(e)
	if takes && err == nil {
		s.window.idle(e.LSN)
	}
	return err
}

// row adds the message of an event to the window, or a dead letter, or nothing.
func (s *session) row(ctx context.Context, e *replication.Event) error {
	if s.resume.skipping {
		s.metrics.EventsRepeated.Inc()
		return nil
	}
	m := s.pool.get()
	ours, err := s.router.RouteTo(m, e)
	if !ours {
		s.pool.putBack(m)
		m = nil
	}
	switch {
	case !ours && err == nil:
		s.metrics.EventsSkipped.Inc()
		return nil
	case e.Oversize > 0:
		return s.handlePoison(ctx, deadletter.Poison{Event: e, Message: m, Err: s.oversize(e),
			Unrouted: err})
	case err != nil:
		return s.handlePoison(ctx, deadletter.Poison{Event: e, Err: err})
	}
	s.metrics.EventsRouted.Inc()
	if m, err = s.follow(ctx, e, m); m == nil || err != nil {
		return err
	}
	return s.admit(ctx, e, m)
}

// admit adds a message, or probes it, unless its topic is missing or has it already.
func (s *session) admit(ctx context.Context, e *replication.Event, m *sink.Message) error {
	if e.Chunk != nil {
		m.Origin.Memory = e.Chunk
	}
	if len(s.missing.topics) > 0 {
		if handled, err := s.missingTopic(ctx, e, m); handled || err != nil {
			return err
		}
	}
	if published, err := s.alreadyPublished(ctx, e, m); published || err != nil {
		return err
	}
	if s.candidates.any() {
		if c := s.candidates.find(m); c.err != nil {
			return s.probe(ctx, e, m, c)
		}
	}
	return s.add(ctx, m)
}

// finish ends a session whose pump has ended with cause: it waits for messages in flight, confirms
// them and closes. The final status must come after the last acknowledgement, and the sink must be
// closed before another session opens one.
func (s *session) finish(ctx context.Context, cause error) error {
	drainCtx, cancel := context.WithTimeoutCause(ctx, s.drainTimeout(cause), ErrDrainTimeout)
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
	if errors.Is(cause, ErrSecondSignal) || errors.Is(context.Cause(ctx), ErrSecondSignal) {
		s.closeSink(sinkCloseTimeoutKilled)
	} else {
		s.closeSink(sinkCloseTimeout)
	}
	if messages, _, _ := s.window.inFlight(); messages > s.abandoned {
		s.log.Warn().Int("in_flight", messages-s.abandoned).
			Stringer("acked_lsn", s.window.ackedLSN()).
			Msg("session ended with messages in flight; they are published again by the next one")
	}
	return cmp.Or(cause, drainErr, finishErr)
}

// drainTimeout returns how long finish waits for messages in flight; 0 if the sink has failed.
func (s *session) drainTimeout(cause error) time.Duration {
	how := drainFully
	if cause != nil {
		how = find(cause).drain
	}
	switch {
	case how == drainNot || s.failed.Load():
		return 0
	case how == drainBriefly:
		return min(briefDrain, s.cfg.DrainTimeout)
	}
	return s.cfg.DrainTimeout
}

// drain waits until only abandoned messages are in the window.
func (s *session) drain(ctx context.Context) error {
	for {
		if messages, _, _ := s.window.inFlight(); messages <= s.abandoned {
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
