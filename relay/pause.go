package relay

import (
	"context"
	"errors"
	"time"
)

// ErrStopping is the error of Pause for a relay that stops or has ended.
var ErrStopping = errors.New("the relay is stopping")

// Pause ends the session like a stop, which releases the slot. The next session begins after
// Resume, or at the time until, unless zero. Pause does not wait for the phase Paused. A pause is
// not stored, and other processes may take over. A second call replaces reason and time. The error
// is ErrStopping. Safe for concurrent use.
func (r *Relay) Pause(reason string, until time.Time) (Pause, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ended := r.state.Phase == Stopped || r.state.Phase == Halted
	if ended || r.stopping != nil && r.stopping() != nil {
		return Pause{}, ErrStopping
	}
	p := Pause{Since: time.Now(), Until: until, Reason: reason, StoodBy: r.state.Phase == Standby}
	if r.pausedLocked() {
		p.Since, p.StoodBy = r.state.Paused.Since, r.state.Paused.StoodBy
	}
	r.setPauseLocked(p)
	if r.endWork != nil {
		r.endWork()
	}
	return p, nil
}

// Resume ends a pause, and returns false if there is none. Safe for concurrent use.
func (r *Relay) Resume() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.pausedLocked()
	r.setPauseLocked(Pause{})
	return was
}

func (r *Relay) pausedLocked() bool { return !r.state.Paused.Since.IsZero() }

func (r *Relay) setPauseLocked(p Pause) {
	r.state.Paused = p
	close(r.pauseChanged)
	r.pauseChanged = make(chan struct{})
}

// untilPaused returns the context work, which ends with stop or at a pause.
func (r *Relay) untilPaused(stop context.Context) (work context.Context, end context.CancelFunc) {
	work, end = context.WithCancel(stop)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endWork = end
	if r.pausedLocked() {
		end()
	}
	return work, end
}

// stayPaused waits until the pause ends. It returns false if ctx or stop ends before.
func (r *Relay) stayPaused(ctx, stop context.Context) bool {
	var logged Pause
	for {
		r.mu.Lock()
		pause, changed := r.state.Paused, r.pauseChanged
		r.mu.Unlock()
		if pause.Since.IsZero() {
			break
		}
		if pause != logged {
			logged = pause
			r.enter(Paused, nil)
			r.logPause(pause)
		}
		var due <-chan time.Time
		if !pause.Until.IsZero() {
			due = time.After(time.Until(pause.Until))
		}
		select {
		case <-changed:
		case <-due:
			r.parts.Log.Info().Time("until", pause.Until).
				Msg("pause ended at its set time")
			r.mu.Lock()
			if r.state.Paused == pause { // else it was changed meanwhile
				r.setPauseLocked(Pause{})
			}
			r.mu.Unlock()
		case <-ctx.Done():
			return false
		case <-stop.Done():
			return false
		}
	}
	r.enter(Starting, nil)
	if logged != (Pause{}) {
		r.parts.Log.Info().Dur("duration", time.Since(logged.Since)).Msg("relay resumed")
	}
	return true
}

func (r *Relay) logPause(p Pause) {
	event := r.parts.Log.Info().Str("reason", p.Reason)
	if !p.Until.IsZero() {
		event = event.Time("until", p.Until)
	}
	if p.StoodBy {
		event.Msg("relay paused; another process holds the slot, and this one does not take " +
			"over until it is resumed")
		return
	}
	st := r.State()
	event.Stringer("acked_lsn", st.AckedLSN).Stringer("confirmed_flush_lsn", st.ConfirmedFlushLSN).
		Msg("relay paused; the slot is free, and keeps WAL until the relay is resumed")
}
