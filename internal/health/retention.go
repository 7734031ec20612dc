package health

import (
	"fmt"
	"math"
	"time"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/slot/monitor"
)

// judgeInactive: WAL is kept, and no process reads it.
func judgeInactive(f *facts) Condition {
	s := f.slot
	// A snapshot copies the tables first, with a slot of its own: here, or in another process.
	if s.Active || s.InactiveSince.IsZero() || f.Relay.Phase == relay.Snapshotting || f.locked() {
		return Condition{}
	}
	idle := f.serverTime.Sub(s.InactiveSince)
	return Condition{
		Severity: above(idle, f.Config.InactiveWarning, f.Config.InactiveCritical),
		Reason: fmt.Sprintf("no process has read slot %q for %s: %s", s.Name, Duration(idle),
			f.cause.because),
		Next: f.cause.fix, Cause: f.cause.name, Since: s.InactiveSince,
	}
}

// judgeHeld: an open transaction holds restart_lsn back, so that confirmed WAL is kept.
func judgeHeld(f *facts) Condition {
	s := f.slot
	h, found := f.blocker()
	if f.age(h) < (f.Observation.Distance.RestartStill - monitor.RestartStep).Duration() {
		h, found = monitor.Blocker{}, false // restart_lsn has not moved since before it began
	}
	// restart_lsn advances in steps, and a bulk load keeps much while it runs: neither is a problem.
	kept, lag := orZero(s.RetainedBytes), orZero(s.LagBytes)
	much := kept > f.Config.RetainedWarning && s.LagBytes != nil && lag < keepsUp &&
		f.Observation.Forecast.Grows && !h.Works()
	why := cause{name: unknownCause, fix: findTransactions}
	if found {
		why = f.blocking(h)
	}
	c := why.condition(Warning, 15*time.Minute)
	unconfirmed := fmt.Sprintf("%s is kept though all but %s is confirmed", Bytes(kept), Bytes(lag))
	switch {
	case found && f.age(h) > f.Config.HeldWarning:
		c.For = 0
		c.Reason += ": restart_lsn cannot pass it"
	case found && much:
		c.Reason += ": restart_lsn cannot pass it, and " + unconfirmed
	case much:
		c.Reason = unconfirmed + ": a transaction holds restart_lsn back that cannot be seen, or has " +
			"just ended"
	default:
		return Condition{}
	}
	c.WAL = "PostgreSQL keeps what was written since it began, more with every write, until it ends"
	if s.RetainedBytes != nil {
		c.WAL = fmt.Sprintf("%s is kept for slot %q, more with every write, until it ends",
			Bytes(kept), s.Name)
	}
	return c
}

// judgeBacklog: the relay is far behind the server.
func judgeBacklog(f *facts) Condition {
	lag := orZero(f.slot.LagBytes)
	c := Condition{
		Severity: above(lag, f.Config.LagWarning, math.MaxInt64), Cause: f.cause.name,
		Reason: Bytes(lag) + " of WAL behind the server", For: 5 * time.Minute,
		Next: f.fixOr("postrider status --watch   # does it shrink?"),
	}
	if c.Cause != "backlog" {
		c.Reason += ": " + f.cause.because
	}
	if f.Observation.Forecast.CatchUp.Seconds != nil || f.Relay.Rate.Limiting != "" {
		c.Reason += "; " + f.caughtUp()
	}
	return c
}

// judgeXminAge: VACUUM cannot clean the catalogs.
func judgeXminAge(f *facts) Condition {
	age, why := orZero(f.Observation.CatalogXminAge), f.xminCause()
	return Condition{
		Severity: above(age, f.Config.XminAgeWarning, f.Config.XminAgeCritical),
		Reason: fmt.Sprintf("slot %q keeps catalog rows that are %d transactions old: %s",
			f.slot.Name, age, why.because),
		WAL: "it is not WAL alone: catalogs bloat, and at about 2 billion transactions the server " +
			"accepts no writes; " + f.kept(),
		Next: why.fix, Cause: why.name, For: 10 * time.Minute,
	}
}

// xminCause returns why catalog_xmin is old. It follows the oldest running transaction, and may be
// older, not much younger: a blocker that is much younger is not the cause.
func (f *facts) xminCause() cause {
	h, found := f.blocker()
	switch {
	case !found, f.age(h) <= f.Config.HeldWarning, h.Age < orZero(f.Observation.CatalogXminAge)/2:
		return f.causeBeside(h, false)
	case f.idle():
		return f.cause
	}
	return f.blocking(h)
}
