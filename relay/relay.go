package relay

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/internal/postgres"
)

// Relay runs sessions, one after the other.
type Relay struct {
	cfg        Config
	parts      Parts
	recent     recent
	candidates candidates

	// Of the goroutine in Run alone; missing and published of the pump while there is one.
	openedAt  time.Time       // when the stream of the last session was opened
	paused    bool            // since the last session, maybe to work on the slot
	held      bool            // since the last session, by another process
	awaited   *awaited        // row that ended the last session as it has no topic; or nil
	missing   missing         // topics
	seen      seen            // the server of the last session; see identity.go
	published publishedCounts // by that server's positions

	mu           sync.Mutex // guards what follows
	state        State
	session      *session                // the open one, or nil
	counted      uint64                  // bytes received by session that the metrics have
	streamed     bool                    // a session of this process has been open
	fail         context.CancelCauseFunc // ends the attempt under way, or nil
	failFrom     time.Time               // when fail was set
	openFrom     time.Time               // when the stream of session was opened; zero without one
	stopping     func() error            // the Err of Run's stop; nil before Run
	endWork      func()                  // ends the context work for a pause; nil before Run
	pauseChanged chan struct{}           // closed and replaced whenever state.Paused changes
}

// New makes a relay. Run it once.
func New(cfg Config, parts Parts) *Relay {
	if parts.Server.ClockSkew == nil {
		parts.Server.ClockSkew = func() time.Duration { return 0 }
	}
	if parts.Explain == nil {
		parts.Explain = func(err error, _ State) (string, string, string) {
			return err.Error(), "", ""
		}
	}
	now := time.Now()
	return &Relay{cfg: cfg, parts: parts, pauseChanged: make(chan struct{}),
		state:      State{Phase: Starting, Since: now, LastProgress: now},
		candidates: candidates{retries: parts.DeadLetters.Policies.Retries},
		missing:    newMissing(cfg, parts.DeadLetters.Policies),
	}
}

// Run relays until stop ends, then drains and returns nil, or until an error that no new session
// can fix. When ctx ends, at the second signal, Run returns without waiting for anything.
func (r *Relay) Run(ctx, stop context.Context) error {
	ctx, cancel := withCause(ctx, ErrSecondSignal)
	var beside sync.WaitGroup
	beside.Go(func() { r.keepGauges(ctx) })
	beside.Go(func() { r.parts.Server.Watch(ctx, r.problem) })
	if r.cfg.HeartbeatInterval > 0 {
		beside.Go(func() { r.keepHeartbeat(ctx, stop) })
	}
	defer beside.Wait()
	defer cancel()
	r.mu.Lock()
	r.stopping = stop.Err
	r.mu.Unlock()
	for {
		work, end := r.untilPaused(stop)
		err := r.work(ctx, stop, work)
		end()
		if err != nil {
			return err
		}
		if stop.Err() != nil || ctx.Err() != nil || !r.stayPaused(ctx, stop) {
			r.enter(Stopped, nil)
			return nil
		}
		r.paused = true
	}
}

// work relays until stop or a pause ends the context work, or an error that is not retried.
func (r *Relay) work(ctx, stop, work context.Context) error {
	pauses := backoff{min: r.cfg.BackoffMin, max: r.cfg.BackoffMax}
	var furthest pglogrepl.LSN // that any session has acked
	for work.Err() == nil {
		err := r.attempt(ctx, work)
		if err == nil {
			return nil
		}
		class, reason := Classify(err, !r.hasStreamed())
		// A pause while the broker is away does not halt the relay.
		pausing := work.Err() != nil && stop.Err() == nil && errors.Is(err, ErrDrainTimeout)
		switch {
		case ctx.Err() != nil:
			r.enter(Stopped, context.Cause(ctx))
			return context.Cause(ctx)
		case class != Retryable && !pausing:
			r.enter(Halted, err)
			return err
		case work.Err() != nil:
			if !errors.Is(err, context.Canceled) {
				r.parts.Log.Warn().Err(err).Msg(
					"last session did not end cleanly; some rows may be published again")
			}
			return nil
		}
		r.held = r.held || reason == reasonSlotInUse
		// Publishing the beginning of a transaction again and again is no progress.
		acked := r.State().AckedLSN
		pause, least := pauses.next(reason, acked > furthest)
		furthest = max(furthest, acked)
		if reason != reasonUnknownTopic && reason != reasonSlotInUse {
			r.missing.unsettle()
		}
		r.log(class, reason, err, pause)
		r.backOff(reason, err, pause)
		waiting, cancel := either(ctx, work)
		switch back := r.returning(reason, err); {
		case reason == reasonSlotInUse:
			pause = r.standBy(waiting, &pauses, pause)
		case back != nil:
			pause = awaitReturn(waiting, back, pause, least)
		}
		over := wait(waiting, pause)
		cancel()
		if !over {
			return nil
		}
	}
	return nil
}

// attempt is one session, with Watch beside it. It returns nil only after a clean stop.
func (r *Relay) attempt(process, stop context.Context) error {
	ctx, fail := context.WithCancelCause(process)
	defer fail(nil)
	// Until the session is open there is nothing to drain: stop ends the opening.
	opening, opened := either(ctx, stop)
	defer opened()
	if err := r.parts.Server.Prepare(opening, !r.hasStreamed()); err != nil {
		return err
	}
	// Not before: what Watch has seen of the slot may be what Prepare has just put right.
	r.setFail(fail)
	defer r.setFail(nil)
	if err := r.snapshot(ctx, stop); err != nil || stop.Err() != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	s, err := r.open(opening, fail)
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	defer r.close(s)
	// One drain timeout for the rest of the open transaction and for what is in flight.
	defer afterwards(stop, func() {
		r.enter(Draining, nil)
		after(ctx, r.cfg.DrainTimeout, func() { fail(ErrDrainTimeout) })
	})()
	cause := r.awaitTopic(s.pumpAll(ctx, stop))
	if cause == nil {
		return s.finish(ctx, nil) // on a clean stop both share one drain timeout
	}
	return s.finish(process, cause) // the session's context is over; the process is not
}

// snapshot limits the hook to the drain timeout. The next attempt goes on from the topics.
func (r *Relay) snapshot(ctx, stop context.Context) error {
	if r.parts.Server.Snapshot == nil {
		return nil
	}
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(stop, func() { after(limited, r.cfg.DrainTimeout, cancel) })()
	err := r.parts.Server.Snapshot(limited, stop, r.report)
	if stop.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return err
}

// report is called while a snapshot is under way.
func (r *Relay) report(s Snapshot) {
	if r.State().Phase != Snapshotting {
		r.enter(Snapshotting, nil)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Snapshot = s
}

func (r *Relay) hasStreamed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.streamed
}

func (r *Relay) backOff(reason string, err error, pause time.Duration) {
	if reason == reasonSlotInUse {
		r.enter(Standby, nil) // nothing is wrong
		if r.parts.Server.AwaitSlot != nil {
			return // it is not a matter of time
		}
	} else {
		r.enter(BackingOff, err)
	}
	r.mu.Lock()
	r.state.NextAttempt = time.Now().Add(pause)
	r.mu.Unlock()
}

func (r *Relay) log(class Class, reason string, err error, pause time.Duration) {
	r.parts.Metrics.SessionsEnded.WithLabelValues(reason).Inc()
	st := r.State()
	what, wal, next := r.parts.Explain(err, st)
	event := r.parts.Log.Info()
	if reason != reasonSlotInUse {
		event = r.parts.Log.Warn()
		r.recent.failed(Failure{Reason: reason, Class: class.String(), Text: what, WAL: wal,
			Next: next}, time.Now())
	}
	event.Str("error", what).Str("wal", wal).Str("next", next).Str("reason", reason).
		Stringer("class", class).Stringer("acked_lsn", st.AckedLSN).Dur("backoff", pause).
		Msg("session ended")
}

// problem ends the session for what Watch has found since the session was prepared; for a stale
// connection, since its stream was opened.
func (r *Relay) problem(err error, began time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	stale := errors.Is(err, postgres.ErrStaleConnection)
	if stale && (r.openFrom.IsZero() || began.Before(r.openFrom)) {
		return
	}
	if r.fail != nil && !began.Before(r.failFrom) {
		r.fail(err)
	}
}

func (r *Relay) setFail(fail context.CancelCauseFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail, r.failFrom, r.openFrom = fail, time.Now(), time.Time{}
}

// either returns a context that ends with ctx or stop.
func either(ctx, stop context.Context) (context.Context, context.CancelFunc) {
	both, cancel := context.WithCancel(ctx)
	release := context.AfterFunc(stop, cancel)
	return both, func() { release(); cancel() }
}

// after calls f after d, unless ctx ends before.
func after(ctx context.Context, d time.Duration, f func()) {
	timer := time.AfterFunc(d, f)
	context.AfterFunc(ctx, func() { timer.Stop() })
}

// afterwards is context.AfterFunc, but end waits for f if it has begun.
func afterwards(ctx context.Context, f func()) (end func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { defer close(done); f() })
	return func() {
		if !stop() {
			<-done
		}
	}
}

// withCause gives the end of ctx a cause that Classify finds in its table.
func withCause(ctx context.Context, cause error) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(cause) })
	return out, func() { stop(); cancel(nil) }
}
