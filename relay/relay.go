package relay

import (
	"context"
	"errors"
	"sync"
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

// Parts are what a relay is made of. They are called once for each session.
type Parts struct {
	// Prepare makes sure that slot and publication are what they have to be. first: no session has streamed yet, so
	// a slot may be created; later a missing slot is a lost one.
	Prepare func(ctx context.Context, first bool) error
	// Snapshot publishes the rows that were in the tables before the slot, as far as that is not done, and reports how far it is.
	// It is called after Prepare; only when it has returned nil, and stop has not ended, the slot is streamed. When stop ends it
	// returns soon, and goes on in another session or process. May be nil.
	Snapshot func(ctx, stop context.Context, report func(Snapshot)) error
	// Watch looks after slot and publication until ctx ends, whether a session is open or not. It calls problem with what a session must not
	// outlive, and when it began to look: what was seen before the session was prepared is of no consequence.
	Watch func(ctx context.Context, problem func(err error, began time.Time))
	// AwaitSlot waits until the slot, which another process holds, may be free, or ctx ends. An error says only that it is not known. May be nil:
	// then a session tries once in a while.
	AwaitSlot func(ctx context.Context) error
	// AwaitServer waits until the database has come back since the last call of Prepare, or ctx ends.
	// AwaitBroker waits until a broker answers, after sink.ErrNoBroker. An error says only that it is
	// not known. Each may be nil: then the pause is not cut short.
	AwaitServer, AwaitBroker func(ctx context.Context) error
	OpenStream               func(ctx context.Context) (*replication.Stream, error)
	OpenSink                 sink.Open
	// OpenTransactional makes the sink of a session with Config.ExactlyOnce.
	OpenTransactional func(ctx context.Context, done sink.Done, committed sink.Committed) (sink.Transactional, error)
	// Database, Slot and Events are the part of the source that is known before a session; see sink.Source.
	Database, Slot, Events string
	// Policies say what becomes of rows that cannot be delivered; OpenDesk is called, when the slot is held, if they make dead letters.
	Policies deadletter.Config
	// begin is the confirmed position.
	OpenDesk func(ctx context.Context, source sink.Source, begin pglogrepl.LSN) (deadletter.Desk, error)
	Router   func() (*router.Router, error)
	// Timeline is told which one the rows of a session come from, before the first. May be nil.
	Timeline func(timeline int32)
	// Moved judges a slot whose confirmed position lies beyond what this process has acked: an error if that can only mean that rows between the two
	// positions are never sent, nil if another relay can have published them. May be nil: it never does.
	Moved func(ctx context.Context, m Move) error
	// Heartbeat makes a record that says that the relay was at work at that time. Called only with Config.HeartbeatInterval.
	Heartbeat func(at time.Time) (*sink.Message, error)
	// Explain says for the log why a session ended, without advice; what that means for the WAL that PostgreSQL keeps; and
	// what to type next. st is the state before the pause. May be nil: then the log line has only the error.
	Explain func(err error, st State) (what, wal, next string)
	// ClockSkew is the database server's clock minus ours, as last measured; latencies are corrected by it. May be nil: zero.
	ClockSkew func() time.Duration
	Metrics   *metrics.Set
	Log       zerolog.Logger
}

// Move is what is known of a slot that is further than this process.
type Move struct {
	Acked     pglogrepl.LSN // by this process
	Confirmed pglogrepl.LSN // by the slot
	Streamed  time.Time     // when the last stream of this process was opened, by our clock
	Held      bool          // somebody else held the slot since then: another relay, or whoever dropped it or made it, which takes holding it too
}

// Relay runs sessions, one after the other.
type Relay struct {
	cfg   Config
	parts Parts

	mu       sync.Mutex
	state    State
	session  *session                // the open one, or nil
	fail     context.CancelCauseFunc // ends the attempt under way, or nil
	failFrom time.Time               // when fail was set
	openFrom time.Time               // when the stream of the session was opened; zero without one
	openedAt time.Time               // the same of the last session that was opened, kept when it ends
	streamed bool                    // a session of this process has been open
	paused   bool                    // since the last session, maybe to work on the slot; of the goroutine in Run alone
	held     bool                    // since the last session, by somebody else; of the goroutine in Run alone
	awaited  *awaited                // row that ended the last session because its topic is not there, or nil; of the goroutine in Run alone
	missing  missing                 // topics
	seen     seen                    // the server of the last session; see identity.go
	handed   handed                  // to the sink, by that server's positions

	stopAsked    func() error  // whether Run was asked to stop; nil before Run
	endWork      func()        // ends the session under way, or the wait for the next, for a pause; nil before Run
	pauseChanged chan struct{} // closed, and made anew, whenever state.Paused changes

	recent   recent
	suspects suspects
}

// New makes a relay. Run it once.
func New(cfg Config, parts Parts) *Relay {
	if parts.ClockSkew == nil {
		parts.ClockSkew = func() time.Duration { return 0 }
	}
	now := time.Now()
	return &Relay{
		cfg: cfg, parts: parts, state: State{Phase: Starting, Since: now, LastProgress: now}, pauseChanged: make(chan struct{}),
		suspects: suspects{retries: parts.Policies.Retries}, missing: newMissing(cfg, parts.Policies),
	}
}

// Run relays until stop ends, then drains and returns nil, or until an error that no new session can heal. ctx is the second
// signal: when it ends, Run returns without waiting for anything. In between it may be paused; see Pause.
func (r *Relay) Run(ctx, stop context.Context) error {
	ctx, cancel := withCause(ctx, ErrSecondSignal)
	var beside sync.WaitGroup
	beside.Go(func() { r.keepGauges(ctx) })
	beside.Go(func() { r.parts.Watch(ctx, r.problem) })
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

// work relays until stop or a pause ends the context of the same name, or until an error that no new session can heal.
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
				r.parts.Log.Warn().Err(err).Msg("last session did not end cleanly; some rows may be published again")
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

	if err := r.parts.Prepare(opening, !r.hasStreamed()); err != nil {
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
	cause := r.await(s.pumpAll(ctx, stop))
	if cause == nil {
		return s.finish(ctx, nil) // on a clean stop both share one drain timeout
	}
	return s.finish(process, cause) // the session's context is over; the process is not
}

// snapshot gives the hook its drain timeout. What that interrupts is found in the topics by the next attempt, so it is no error.
func (r *Relay) snapshot(ctx, stop context.Context) error {
	if r.parts.Snapshot == nil {
		return nil
	}
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(stop, func() {
		timer := time.AfterFunc(r.cfg.DrainTimeout, cancel)
		context.AfterFunc(limited, func() { timer.Stop() })
	})()
	err := r.parts.Snapshot(limited, stop, r.report)
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

// State is a snapshot. Safe for concurrent use.
func (r *Relay) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	st := r.state
	if s := r.session; s != nil {
		st.ReceivedLSN, st.AckedLSN, st.ConfirmedFlushLSN = s.positions()
		st.InFlight, st.InFlightBytes, st.OldestUnacked = s.window.load()
		if st.InFlight > 0 {
			st.WaitingSince = time.Unix(0, s.moved.Load())
		}
		st.Published += s.published.Load()
		if st.LastProgress = time.Now(); !s.waits.Load() {
			st.LastProgress = time.Unix(0, s.progress.Load())
		}
		st.LastCommit = r.recent.lastCommit()
		r.state.LastCommit = st.LastCommit
		r.state.ReceivedLSN, r.state.AckedLSN, r.state.ConfirmedFlushLSN = st.ReceivedLSN, st.AckedLSN, st.ConfirmedFlushLSN
		r.state.LastProgress = st.LastProgress
	} else if st.Phase != Halted && st.Phase != Stopped {
		st.LastProgress = time.Now() // every wait outside a session is bounded
	}
	return st
}

func (r *Relay) enter(p Phase, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state.Phase != p {
		r.state.Phase, r.state.Since = p, time.Now()
	}
	r.state.NextAttempt = time.Time{}
	r.state.Error, r.state.Reason, r.state.Next = "", "", ""
	if err != nil {
		_, r.state.Reason = Classify(err, false)
		r.state.Error = err.Error()
		if r.parts.Explain != nil {
			r.state.Error, _, r.state.Next = r.parts.Explain(err, r.state)
		}
	}
	r.parts.Metrics.Phase.Set(string(p))
	r.parts.Metrics.Paused.Set(0)
	if p == Paused {
		r.parts.Metrics.Paused.Set(1)
	}
}

func (r *Relay) backOff(reason string, err error, pause time.Duration) {
	if reason == reasonSlotInUse {
		r.enter(Standby, nil) // nothing is wrong
		if r.parts.AwaitSlot != nil {
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
	event.Str("reason", reason).Stringer("class", class).Stringer("acked_lsn", st.AckedLSN).Dur("backoff", pause).Msg("session ended")
	if reason != reasonSlotInUse {
		r.recent.failed(failure, time.Now())
	}
}

// wait returns false when a signal came.
func (r *Relay) wait(ctx, stop context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-stop.Done():
	}
	return false
}

// standBy waits for the slot, and returns how long to wait before the next session all the same: for pause if it is not known that the slot is free.
func (r *Relay) standBy(ctx, stop context.Context, pauses *backoff, pause time.Duration) time.Duration {
	began := time.Now()
	if r.parts.AwaitSlot != nil && r.wait(ctx, stop, jitter(standbyJitter)) {
		waiting, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(stop, cancel)()
		if r.parts.AwaitSlot(waiting) == nil {
			pause = pauses.freed(time.Since(began))
		}
	}
	return pause - time.Since(began)
}

// returning is the wait for what the session that ended with err lacked; nil: there is none.
func (r *Relay) returning(reason string, err error) func(context.Context) error {
	switch {
	case databaseAway[reason], reason == reasonServerStopping:
		return r.parts.AwaitServer
	case errors.Is(err, sink.ErrNoBroker):
		return r.parts.AwaitBroker
	}
	return nil
}

// awaitReturn waits until back returns nil, for the least pause at least, and returns what is left
// of the pause.
func (r *Relay) awaitReturn(ctx, stop context.Context, back func(context.Context) error, pause, least time.Duration) time.Duration {
	until := time.Now().Add(pause)
	if !r.wait(ctx, stop, least) {
		return 0
	}
	waiting, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	defer context.AfterFunc(stop, cancel)()
	if back(waiting) == nil {
		return 0
	}
	return time.Until(until)
}

// problem ends the session, if it was prepared before Watch began to look, or if it streamed by then, where that is the problem.
func (r *Relay) problem(err error, began time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if errors.Is(err, postgres.ErrStaleConnection) && (r.openFrom.IsZero() || began.Before(r.openFrom)) {
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

// keepGauges observes once a second until ctx ends.
func (r *Relay) keepGauges(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.observe()
		case <-ctx.Done():
			return
		}
	}
}

// observe brings the position gauges up to date.
func (r *Relay) observe() {
	st, m := r.State(), r.parts.Metrics
	if st.ReceivedLSN > 0 {
		m.ReceivedLSN.SetLSN(st.ReceivedLSN)
		m.AckedLSN.SetLSN(st.AckedLSN)
		m.ConfirmedFlushLSN.SetLSN(st.ConfirmedFlushLSN)
	}
	r.mu.Lock()
	if s := r.session; s != nil {
		received := s.stream.ReceivedBytes()
		m.ReceivedBytes.Add(float64(received - s.counted))
		s.counted = received
	}
	r.mu.Unlock()
	m.InFlight.Set(float64(st.InFlight))
	m.InFlightBytes.Set(float64(st.InFlightBytes))
	m.LastProgress.SetTime(st.LastProgress)
	m.Ready.Set(0)
	if st.Ready() {
		m.Ready.Set(1)
	}
	if st.OldestUnacked.IsZero() {
		m.OldestUnacked.Clear()
	} else {
		m.OldestUnacked.SetTime(st.OldestUnacked)
	}
}

// afterwards is context.AfterFunc, but end waits for f if it has begun: what comes after end is not overtaken by it.
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
