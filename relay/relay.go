package relay

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/internal/postgres"
)

// Relay runs sessions, one after the other.
type Relay struct {
	cfg        Config
	parts      Parts
	recent     recent
	candidates candidates

	// Used only by Run's goroutine; missing and published by the pump while it runs.
	openedAt    time.Time       // when the stream of the last session was opened
	paused      bool            // since the last session: the slot may have been changed
	slotWasHeld bool            // another process used the slot since the last session
	awaited     *awaited        // row whose missing topic ended the last session, or nil
	missing     missing         // missing topics
	lastServer  serverPosition  // the server of the last session
	published   publishedCounts // of the last server

	mu            sync.Mutex // guards what follows
	state         State
	session       *session                // the open one, or nil
	reportedBytes uint64                  // bytes received by session that are in the metrics
	streamed      bool                    // a session of this process has been open
	fail          context.CancelCauseFunc // ends the running attempt, or nil
	failFrom      time.Time               // when fail was set; older looks are ignored
	openFrom      time.Time               // when session was opened; zero without one. As failFrom
	stopping      func() error            // stop.Err of Run; nil before Run
	endWork       func()                  // ends Run's context work, for a pause; nil before Run
	pauseChanged  chan struct{}           // closed and replaced whenever state.Paused changes
}

// New returns a relay. Run may be called once.
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

// Run runs sessions until stop ends, then drains and returns nil. It returns an error that no new
// session can fix. When ctx ends, at the second signal, Run returns without draining.
func (r *Relay) Run(ctx, stop context.Context) error {
	ctx, cancel := withCause(ctx, ErrSecondSignal)
	var background sync.WaitGroup
	background.Go(func() { r.keepGauges(ctx) })
	background.Go(func() { r.parts.Server.Watch(ctx, r.problem) })
	if r.cfg.HeartbeatInterval > 0 {
		background.Go(func() { r.keepHeartbeat(ctx, stop) })
	}
	defer background.Wait()
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

// work runs sessions until stop or a pause ends the context work, or an error is not retried.
func (r *Relay) work(ctx, stop, work context.Context) error {
	delays := backoff{min: r.cfg.BackoffMin, max: r.cfg.BackoffMax}
	var furthest pglogrepl.LSN // highest acked LSN of these sessions
	for work.Err() == nil {
		err := r.attempt(ctx, work)
		if err == nil {
			return nil
		}
		class, reason := Classify(err, !r.hasStreamed())
		// The drain timeout of a pause does not halt the relay.
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
		r.slotWasHeld = r.slotWasHeld || reason == reasonSlotInUse
		// Only an acked transaction is progress, not one whose beginning was published again.
		acked := r.State().AckedLSN
		delay, least := delays.next(reason, acked > furthest)
		furthest = max(furthest, acked)
		if reason != reasonUnknownTopic && reason != reasonSlotInUse {
			r.missing.forgetUnsettled()
		}
		r.recordEnd(class, reason, err, delay)
		r.backOff(reason, err, delay)
		waiting, cancel := either(ctx, work)
		switch await := r.recovery(reason, err); {
		case reason == reasonSlotInUse:
			delay = r.standBy(waiting, &delays, delay)
		case await != nil:
			delay = awaitReturn(waiting, await, delay, least)
		}
		elapsed := wait(waiting, delay)
		cancel()
		if !elapsed {
			return nil
		}
	}
	return nil
}

// attempt prepares and runs one session. stop ends at a stop of the relay or at a pause. It
// returns nil only after a clean stop.
func (r *Relay) attempt(process, stop context.Context) error {
	ctx, fail := context.WithCancelCause(process)
	defer fail(nil)
	// Until the session is open there is nothing to drain: stop ends the opening.
	opening, opened := either(ctx, stop)
	defer opened()
	if err := r.parts.Server.Prepare(opening, !r.hasStreamed()); err != nil {
		return err
	}
	// After Prepare, which may have fixed what Watch has found before.
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
	// One drain timeout covers the rest of the open transaction and the messages in flight.
	defer afterFunc(stop, func() {
		r.enter(Draining, nil)
		afterDelay(ctx, r.cfg.DrainTimeout, func() { fail(ErrDrainTimeout) })
	})()
	cause := r.awaitTopic(s.run(ctx, stop))
	if cause == nil {
		return s.finish(ctx, nil) // ctx ends at the drain timeout
	}
	return s.finish(process, cause) // ctx has ended
}

// snapshot runs Server.Snapshot, and cancels it if it still runs DrainTimeout after stop.
func (r *Relay) snapshot(ctx, stop context.Context) error {
	if r.parts.Server.Snapshot == nil {
		return nil
	}
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(stop, func() { afterDelay(limited, r.cfg.DrainTimeout, cancel) })()
	err := r.parts.Server.Snapshot(limited, stop, r.report)
	if stop.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return err
}

// report sets the snapshot of the State.
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

func (r *Relay) backOff(reason string, err error, delay time.Duration) {
	if reason == reasonSlotInUse {
		r.enter(Standby, nil) // nothing is wrong
		if r.parts.Server.AwaitSlot != nil {
			return // the next attempt begins when the slot is free
		}
	} else {
		r.enter(BackingOff, err)
	}
	r.mu.Lock()
	r.state.NextAttempt = time.Now().Add(delay)
	r.mu.Unlock()
}

// recordEnd logs and counts the end of a session. Further attempts that fail for the same cause
// are logged once a minute; with log.level = "debug" each of them.
func (r *Relay) recordEnd(class Class, reason string, err error, delay time.Duration) {
	r.parts.Metrics.SessionsEnded.WithLabelValues(reason).Inc()
	st := r.State()
	what, wal, next := r.parts.Explain(err, st)
	level := zerolog.InfoLevel
	if reason != reasonSlotInUse {
		level = zerolog.WarnLevel
		r.recent.failed(Failure{Reason: reason, Class: class.String(), Text: what, WAL: wal,
			Next: next}, time.Now())
	}
	cause := strings.Join([]string{class.String(), reason, what}, " ")
	if !r.recent.shouldLog(st.Sessions, cause, time.Now()) {
		level = zerolog.DebugLevel
	}
	r.parts.Log.WithLevel(level).Str("error", what).Str("wal", wal).Str("next", next).
		Str("reason", reason).Stringer("class", class).Stringer("acked_lsn", st.AckedLSN).
		Dur("backoff", delay).Msg("session ended")
}

// problem ends the session with err, if the look of Watch that found it began after Prepare.
func (r *Relay) problem(err error, began time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if errors.Is(err, postgres.ErrStaleConnection) && !r.waitsSince(began) {
		return
	}
	if r.fail != nil && !began.Before(r.failFrom) {
		r.fail(err)
	}
}

// waitsSince reports whether the stream has waited for the server since then. Otherwise it may be
// about to read why the server has ended it, which may be at a row: what comes before is published
// first. r.mu is held.
func (r *Relay) waitsSince(then time.Time) bool {
	if r.session == nil || r.openFrom.IsZero() || then.Before(r.openFrom) {
		return false
	}
	since := r.session.stream.WaitingSince()
	return !since.IsZero() && !then.Before(since)
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

// afterDelay calls f after d, unless ctx ends before.
func afterDelay(ctx context.Context, d time.Duration, f func()) {
	timer := time.AfterFunc(d, f)
	context.AfterFunc(ctx, func() { timer.Stop() })
}

// afterFunc is context.AfterFunc, except that end waits for f if it has begun.
func afterFunc(ctx context.Context, f func()) (end func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { defer close(done); f() })
	return func() {
		if !stop() {
			<-done
		}
	}
}

// withCause returns a context that ends with ctx, with the given cause.
func withCause(ctx context.Context, cause error) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(cause) })
	return out, func() { stop(); cancel(nil) }
}
