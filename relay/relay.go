package relay

import (
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
	openedAt time.Time // when the stream of the last session was opened
	paused   bool      // since the last session, maybe to work on the slot
	held     bool      // since the last session, by another process
	// row that ended the last session because its topic is not there, or nil
	awaited   *awaited
	missing   missing       // topics
	seen      seen          // the server of the last session; see identity.go
	published publishedRing // by that server's positions

	mu        sync.Mutex // guards what follows
	state     State
	session   *session                // the open one, or nil
	counted   uint64                  // bytes received by session that the metrics have
	streamed  bool                    // a session of this process has been open
	fail      context.CancelCauseFunc // ends the attempt under way, or nil
	failFrom  time.Time               // when fail was set
	openFrom  time.Time               // when the stream of session was opened; zero without one
	stopAsked func() error            // whether Run was asked to stop; nil before Run
	// ends the session under way, or the wait for the next, for a pause; nil before Run
	endWork      func()
	pauseChanged chan struct{} // closed and replaced whenever state.Paused changes
}

// New makes a relay. Run it once.
func New(cfg Config, parts Parts) *Relay {
	if parts.Server.ClockSkew == nil {
		parts.Server.ClockSkew = func() time.Duration { return 0 }
	}
	now := time.Now()
	return &Relay{
		cfg: cfg, parts: parts, state: State{Phase: Starting, Since: now, LastProgress: now},
		pauseChanged: make(chan struct{}),
		candidates:   candidates{retries: parts.DeadLetters.Policies.Retries},
		missing:      newMissing(cfg, parts.DeadLetters.Policies),
	}
}

// Run relays until stop ends, then drains and returns nil, or until an error that no new session
// can heal. ctx is the second signal: when it ends, Run returns without waiting for anything. In
// between it may be paused; see Pause.
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
	r.stopAsked = stop.Err
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

// work relays until stop or a pause ends the context of the same name, or until an error that no
// new session can heal.
func (r *Relay) work(ctx, stop, work context.Context) error {
	pauses := backoff{min: r.cfg.BackoffMin, max: r.cfg.BackoffMax}
	var furthest pglogrepl.LSN // that any session has acked
	for work.Err() == nil {
		err := r.attempt(ctx, work)
		// Who pauses the relay because the broker is away wants it to stay.
		pausing := work.Err() != nil && stop.Err() == nil && errors.Is(err, ErrDrainTimeout)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			r.enter(Stopped, context.Cause(ctx))
			return context.Cause(ctx)
		case r.halts(err) && !pausing:
			r.enter(Halted, err)
			return err
		case work.Err() != nil:
			if !errors.Is(err, context.Canceled) {
				r.parts.Log.Warn().Err(err).Msg(
					"last session did not end cleanly; some rows may be published again")
			}
			return nil
		}
		class, reason := Classify(err, !r.hasStreamed())
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
		switch back := r.returning(reason, err); {
		case reason == reasonSlotInUse:
			pause = r.standBy(ctx, work, &pauses, pause)
		case back != nil:
			pause = r.awaitReturn(ctx, work, back, pause, least)
		}
		if !r.wait(ctx, work, pause) {
			return nil
		}
	}
	return nil
}

func (r *Relay) halts(err error) bool {
	class, _ := Classify(err, !r.hasStreamed())
	return class == Fatal || class == Poison
}

// attempt is one session, with Watch beside it. It returns nil only after a clean stop.
func (r *Relay) attempt(process, stop context.Context) error {
	ctx, fail := context.WithCancelCause(process)
	defer fail(nil)
	// Until the session is open there is nothing to drain: stop ends the opening.
	opening, opened := context.WithCancel(ctx)
	defer context.AfterFunc(stop, opened)()
	defer opened()

	if err := r.parts.Server.Prepare(opening, !r.hasStreamed()); err != nil {
		return err
	}
	// Not before: what Watch has seen of the slot may be what Prepare has just put right.
	r.setFail(fail)
	defer r.setFail(nil)
	if err := r.snapshot(ctx, stop); err != nil || stop.Err() != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	s, err := r.open(opening, fail)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	defer r.close(s)
	// One drain timeout for the rest of the open transaction and for what is in flight.
	defer afterwards(stop, func() {
		r.enter(Draining, nil)
		timer := time.AfterFunc(r.cfg.DrainTimeout, func() { fail(ErrDrainTimeout) })
		context.AfterFunc(ctx, func() { timer.Stop() })
	})()
	cause := r.awaitTopic(s.pumpAll(ctx, stop))
	if cause == nil {
		return s.finish(ctx, nil) // on a clean stop both share one drain timeout
	}
	return s.finish(process, cause) // the session's context is over; the process is not
}

// snapshot gives the hook its drain timeout. What that interrupts is found in the topics by the
// next attempt, so it is no error.
func (r *Relay) snapshot(ctx, stop context.Context) error {
	if r.parts.Server.Snapshot == nil {
		return nil
	}
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(stop, func() {
		timer := time.AfterFunc(r.cfg.DrainTimeout, cancel)
		context.AfterFunc(limited, func() { timer.Stop() })
	})()
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
	failure := Failure{Reason: reason, Class: class.String(), Text: err.Error()}
	event := r.parts.Log.Warn()
	if reason == reasonSlotInUse {
		event = r.parts.Log.Info()
	}
	if r.parts.Explain != nil {
		what, wal, next := r.parts.Explain(err, st)
		event = event.Str("error", what).Str("wal", wal).Str("next", next)
		failure.Text, failure.WAL, failure.Next = what, wal, next
	} else {
		event = event.Err(err)
	}
	event.Str("reason", reason).Stringer("class", class).Stringer("acked_lsn", st.AckedLSN).
		Dur("backoff", pause).Msg("session ended")
	if reason != reasonSlotInUse {
		r.recent.failed(failure, time.Now())
	}
}

// problem ends the session, if it was prepared before Watch began to look, or if it streamed by
// then, where that is the problem.
func (r *Relay) problem(err error, began time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if errors.Is(err, postgres.ErrStaleConnection) && (r.openFrom.IsZero() ||
		began.Before(r.openFrom)) {
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

// afterwards is context.AfterFunc, but end waits for f if it has begun: what comes after end is
// not overtaken by it.
func afterwards(ctx context.Context, f func()) (end func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { defer close(done); f() })
	return func() {
		if !stop() {
			<-done
		}
	}
}

// withCause gives the end of ctx a cause that Classify knows.
func withCause(ctx context.Context, cause error) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(cause) })
	return out, func() { stop(); cancel(nil) }
}
