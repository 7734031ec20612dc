package health

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/sink"
)

const (
	// loopHangs is long for the session loop, which runs once a second whatever happens.
	loopHangs = time.Minute
	// startSlow is long for a first session, which opens within two seconds.
	startSlow = 10 * time.Second
)

// judgeNotReady: no rows are relayed, and the relay is not paused.
func judgeNotReady(f *facts) Condition {
	r := f.Relay
	c := Condition{Severity: Critical, Cause: f.session().name, Since: r.Since, For: time.Minute}
	switch {
	case r == (relay.State{}) && f.slot.Active:
		c.Severity, c.WAL = Warning, keptElsewhere
		c.Reason = fmt.Sprintf("slot %q is held by process %d of the database, and no relay answers "+
			"at http.listen", f.slot.Name, f.slot.ActivePID)
		c.Next = "postrider status --http-listen HOST:PORT   # where the relay runs"
	case r == (relay.State{}):
		c.Reason, c.Next, c.Since = "no relay is running", f.start(), f.slot.InactiveSince
		if o := f.StartError; o != (StartError{}) && !o.Lost {
			c.Reason += ", and none could stream: " + o.Reason
			c.WAL = o.WAL
		}
	case r.Phase == relay.Halted:
		c.Reason = f.failure()
	case r.Phase == relay.BackingOff:
		next := "the next attempt is due"
		if wait := r.NextAttempt.Sub(f.Now); wait > 0 {
			next = "next attempt within " + Duration(wait)
		}
		c.Reason = f.failure() + "; " + next
	case r.Phase == relay.Starting && f.Now.Sub(r.Since) > startSlow:
		c.Severity = Warning
		c.Reason = fmt.Sprintf("the first session is not open after %s", Duration(f.Now.Sub(r.Since)))
	default:
		return Condition{}
	}
	c.Next = cmp.Or(c.Next, r.Next)
	return c
}

// start returns the command to start a relay.
func (f *facts) start() string {
	switch {
	case f.slot.Lost(): // a relay would exit at once
		return f.recoverLost()
	case f.StartError.Next != "":
		return f.StartError.Next
	}
	return "postrider run"
}

// keptElsewhere is the text about WAL for a slot that another process reads.
const keptElsewhere = "none beyond the usual: the process that holds the slot confirms what it " +
	"publishes"

// failure returns why the last session ended, with the name of a sink that failed.
func (f *facts) failure() string {
	r := f.Relay
	if r.Error == "" {
		return "the last session ended without a reason"
	}
	if f.Sink == "" || !sinkFailed(r.Reason) {
		return r.Error
	}
	for _, part := range strings.FieldsFunc(f.Sink, func(c rune) bool {
		return c == ' ' || c == ','
	}) {
		if strings.Contains(part, ":") && strings.Contains(r.Error, part) {
			return r.Error
		}
	}
	return f.Sink + ": " + r.Error
}

// judgeStuck: a session is open without progress.
func judgeStuck(f *facts) Condition {
	if f.hangs() {
		c := f.hanging().condition(Critical, 0)
		c.Next = "systemctl restart postrider   # or however it was started; " +
			"report it with the log of the last minutes"
		return c
	}
	return f.silence().condition(above(f.sinkSilent(), 0, f.Config.UnackedWarning), time.Minute)
}

func (f *facts) hangs() bool {
	r := f.Relay
	return !r.LastProgress.IsZero() && f.Now.Sub(r.LastProgress) > loopHangs &&
		r.Phase != relay.Stopped && r.Phase != relay.Halted
}

// hanging returns the cause while hangs reports true.
func (f *facts) hanging() cause {
	c := because("session loop", "the session loop has not run for %s",
		Duration(f.Now.Sub(f.Relay.LastProgress)))
	c.since = f.Relay.LastProgress
	return c
}

// sinkSilent returns for how long the sink has not acknowledged messages in flight; zero: not for
// longer than sink.StalledAfter.
func (f *facts) sinkSilent() time.Duration {
	if f.Relay.WaitingSince.IsZero() || f.Relay.InFlight == 0 {
		return 0
	}
	if silent := f.Now.Sub(f.Relay.WaitingSince); silent > sink.StalledAfter {
		return silent
	}
	return 0
}

// judgePaused: the relay is paused. It becomes critical when the slot is inactive for as long as
// InactiveCritical.
func judgePaused(f *facts) Condition {
	if f.Relay.Phase != relay.Paused {
		return Condition{}
	}
	c := f.pause().condition(Warning, time.Minute)
	switch {
	case f.pausedStandby():
		c.WAL = keptElsewhere
	case f.Now.Sub(c.Since) > f.Config.InactiveCritical:
		c.Severity = Critical
	}
	return c
}

// pausedStandby reports whether a standby is paused: another process reads the slot, as when the
// pause began.
func (f *facts) pausedStandby() bool {
	return f.Relay.Phase == relay.Paused && f.Relay.Paused.StoodBy && f.slot.Active
}

// judgeLag: consumers get events late. The server's clock counts, which set the commit times.
func judgeLag(f *facts) Condition {
	r := f.Relay
	if r.OldestUnacked.IsZero() {
		return Condition{}
	}
	late := f.serverTime.Sub(r.OldestUnacked)
	c := Condition{
		Severity: above(late, f.Config.UnackedWarning, f.Config.UnackedCritical),
		Reason:   fmt.Sprintf("the oldest transaction in flight was committed %s ago", Duration(late)),
		For:      time.Minute,
		Next:     "postrider check   # is the broker slow, or is a backlog being worked off?",
	}
	why := f.backlog()
	switch {
	case f.sinkSilent() > 0:
		why = f.silence()
	case r.Stalled.Partitions > 0:
		why = f.stalled()
		c.Next = why.fix
	case f.Relay.Rate.Limiting != "":
		why = f.limited()
		why.because += "; " + f.caughtUp()
		c.Next = why.fix
	}
	if why.name != unknownCause {
		c.Reason, c.Cause = c.Reason+": "+why.because, why.name
	}
	return c
}
