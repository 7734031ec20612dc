package relay

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
)

const (
	// Batches between stream and pump: one is read while the other is routed.
	batchesQueued = 2
	// How long a session that can confirm nothing any more waits for what its producer has.
	briefDrain = 5 * time.Second
	// How long a sink may take to close. The next session publishes what it still has then.
	sinkCloseTimeout = 5 * time.Second
	// The same after a second signal.
	sinkCloseTimeoutKilled = 500 * time.Millisecond
)

// session is one attempt from open to close.
type session struct {
	cfg      Config
	policies deadletter.Config
	log      zerolog.Logger
	metrics  *metrics.Set
	router   *router.Router
	fail     context.CancelCauseFunc // ends the session with a cause; the first one counts

	stream        *replication.Stream
	source        sink.Source
	window        *window
	sink          sink.Sink
	dedup         sink.Deduplicator  // the sink, with relay.dedup; else nil
	transactional sink.Transactional // the sink, with relay.exactly_once; else nil
	deadLetters   deadletter.Handler // nil unless a policy makes dead letters

	// Of the Relay.
	recent     *recent
	candidates *candidates
	missing    *missing
	published  *publishedCounts
	clockSkew  func() time.Duration

	messages     messages
	acknowledged atomic.Uint64
	progress     atomic.Int64 // when the pump last turned, Unix nanoseconds
	moved        atomic.Int64 // last acknowledgement, or batch with nothing in flight; the same
	waits        atomic.Bool  // for the sink, which ends a wait for a broker by itself
	failed       atomic.Bool  // the sink failed: what is in flight may or may not be written

	// Of the pump alone; abandoned is read after the pump has ended.
	transaction uint64          // number of the open one in the window
	rows        int             // messages of the open transaction
	held        int             // bytes read since the last message, which the next one retains
	out         []*sink.Message // routed, in the window, not yet handed over
	abandoned   int             // messages in the window that the sink never took or never commits
	signer      signer
	resume      resume
	boundary    boundary
}

// pumpAll runs stream and pump until both end, and returns why: nil after a clean stop.
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
	return cmp.Or(context.Cause(ctx), streamErr)
}

// pump routes and publishes in WAL order until batches is closed.
func (s *session) pump(ctx context.Context, batches <-chan *replication.Batch) error {
	beat := time.NewTicker(time.Second)
	defer beat.Stop()
	defer func() { s.abandoned += s.boundary.held }()
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
		var err error
		switch e.Kind {
		case replication.Begin:
			s.metrics.Transactions.Inc()
			err = s.begin(e)
		case replication.Insert, replication.Update, replication.Message:
			err = s.row(ctx, e)
		case replication.Commit:
			err = s.commit(e)
		case replication.Idle:
			err = s.idle(e)
		}
		if err != nil {
			return err
		}
	}
	return s.publish(ctx)
}

// begin opens a transaction in the window, unless one is open for what is skipped.
func (s *session) begin(e *replication.Event) error {
	s.rows = 0
	s.signer.begin(e.Time)
	opens, err := s.resume.begin(e)
	if opens && err == nil {
		s.transaction = s.window.begin(e.Time)
	}
	return err
}

// commit closes the open transaction in the window, held if readers do not see its messages yet.
func (s *session) commit(e *replication.Event) error {
	closes, err := s.resume.commit(e)
	switch {
	case !closes || err != nil:
	case s.transactional == nil || s.rows == 0:
		s.window.commit(e.LSN, false)
	default:
		s.commitHeld(e)
	}
	return err
}

// idle takes a position without rows into the window.
func (s *session) idle(e *replication.Event) error {
	takes, err := s.resume.idle(e)
	if takes && err == nil {
		s.window.idle(e.LSN)
	}
	return err
}

// row takes one event into the window, as its message, as a dead letter, or not at all.
func (s *session) row(ctx context.Context, e *replication.Event) error {
	if s.resume.skipping {
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
		return s.poisoned(ctx, deadletter.Poison{Event: e, Message: m, Err: s.oversize(e)})
	case err != nil:
		return s.poisoned(ctx, deadletter.Poison{Event: e, Err: err})
	}
	s.metrics.EventsRouted.Inc()
	if m, err = s.follow(ctx, e, m); m == nil || err != nil {
		return err
	}
	return s.take(ctx, e, m)
}

// take adds a message, unless its topic is missing or has it already, or it is probed.
func (s *session) take(ctx context.Context, e *replication.Event, m *sink.Message) error {
	if e.Chunk != nil {
		m.Origin.Memory = e.Chunk
	}
	if len(s.missing.topics) > 0 {
		if gone, err := s.missingTopic(ctx, e, m); gone || err != nil {
			return err
		}
	}
	if there, err := s.alreadyPublished(ctx, e, m); there || err != nil {
		return err
	}
	if s.candidates.any() {
		if c := s.candidates.find(m); c.err != nil {
			return s.probe(ctx, e, m, c)
		}
	}
	return s.add(ctx, m)
}

// finish ends a session whose pump has ended with cause: it waits for what is in flight, confirms,
// and closes. The final status must come after the last acknowledgement, and the sink must be
// closed before another session opens one.
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
	if errors.Is(cause, ErrSecondSignal) || errors.Is(context.Cause(ctx), ErrSecondSignal) {
		s.closeSink(sinkCloseTimeoutKilled)
	} else {
		s.closeSink(sinkCloseTimeout)
	}
	if messages, _, _ := s.window.load(); messages > s.abandoned {
		s.log.Warn().Int("in_flight", messages-s.abandoned).
			Stringer("acked_lsn", s.window.ackedLSN()).
			Msg("session ended with messages in flight; they are published again by the next one")
	}
	return cmp.Or(cause, drainErr, finishErr)
}

// patience is how long what is in flight may take. A sink that has failed answers nothing more.
func (s *session) patience(cause error) time.Duration {
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

// drain waits until nothing is in flight but what the sink does not have.
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
