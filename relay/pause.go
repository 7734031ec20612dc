package relay

import (
	"context"
	"errors"
	"time"
)

// ErrStopping: a relay that is about to end, or has ended, is not paused.
var ErrStopping = errors.New("the relay is stopping")

// Pause ends the session as a stop does, which releases the slot, and opens no other until Resume,
// or until the time comes if it is not zero. It does not wait for the phase Paused, and it is not
// stored: another process relays at once. A relay that is paused already takes the new reason and
// time. The error is ErrStopping. Safe for concurrent use.
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

// Resume ends a pause, and returns false if there was none. Safe for concurrent use.
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

// untilPaused returns what sessions are to end with: stop, or a pause.
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

// stayPaused returns true when the pause is over, and false when a signal came.
func (r *Relay) stayPaused(ctx, stop context.Context) bool {
	var logged Pause
	for {
		r.mu.Lock()
		asked, changed := r.state.Paused, r.pauseChanged
		r.mu.Unlock()
		if asked.Since.IsZero() {
			break
		}
		if asked != logged {
			logged = asked
			r.enter(Paused, nil)
			r.logPause(asked)
		}
		var due <-chan time.Time
		if !asked.Until.IsZero() {
			due = time.After(time.Until(asked.Until))
		}
		select {
		case <-changed:
		case <-due:
			r.parts.Log.Info().Time("until", asked.Until).
				Msg("pause is over; its time has come")
			r.mu.Lock()
			if r.state.Paused == asked { // else it was changed meanwhile
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
