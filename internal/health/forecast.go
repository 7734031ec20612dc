package health

import (
	"cmp"
	"fmt"
	"time"

	"github.com/postrider/postrider/slot/monitor"
)

// judgeTimeToLoss: at the present rates the slot can soon be lost.
func judgeTimeToLoss(f *facts) Condition {
	c, about := f.forecast(f.Observation.Forecast.Loss)
	if c.Severity == "" {
		return c
	}
	why, next := f.cause, f.raiseLimit()
	if f.Observation.Forecast.Loss.By == monitor.ByIdleness {
		// Neither more room nor the end of a transaction has a session read from the slot.
		why, next = f.causeBeside(monitor.Blocker{}, false), keepIdle
	}
	c.Reason = fmt.Sprintf("slot %q can be lost %s: %s%s", f.slot.Name, about, why.because, c.Reason)
	c.WAL = lostByThen + f.kept()
	c.Next, c.Cause = cmp.Or(why.fix, next), why.name
	return c
}

// keepIdle is SQL that keeps PostgreSQL 18 from invalidating a slot that no session reads.
const keepIdle = "ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf(); " +
	"-- set it back later"

// judgeTimeToDiskFull: at the present rates the volume is full soon. The cause is that of the slot
// that keeps the most WAL, the relay's or another.
func judgeTimeToDiskFull(f *facts) Condition {
	c, about := f.forecast(f.Observation.Forecast.DiskFull)
	if c.Severity == "" {
		return c
	}
	why := f.cause
	if other, found := f.largestOther(); found {
		why = f.otherCause(other)
	}
	if f.Observation.Forecast.DiskFullByArchiver {
		why = archiver()
	}
	c.Reason = fmt.Sprintf("the volume with pg_wal is full %s: %s%s", about, why.because, c.Reason)
	c.WAL = "PostgreSQL stops when pg_wal is full; " + f.kept()
	c.Cause = why.name
	c.Next = cmp.Or(why.fix, "postrider slot list   # which slot keeps how much; one that is not "+
		"needed can be dropped, else the volume has to grow")
	return c
}

// forecast returns a condition with the severity of an estimate, and its assumption as the end of
// Reason; about is the estimate as text. The estimate counts from the time of the observation.
func (f *facts) forecast(e monitor.Estimate) (c Condition, about string) {
	if e.Seconds == nil {
		return Condition{}, ""
	}
	passed := time.Duration(0)
	if at := f.slot.ObservedAt; !at.IsZero() {
		passed = f.Now.Sub(at)
	}
	in := func(seconds float64) string { return Duration(seconds64(seconds) - passed) }
	switch left := seconds64(*e.Seconds) - passed; {
	case left < f.Config.LossCritical:
		c.Severity, c.For = Critical, time.Minute
	case left < f.Config.LossWarning:
		c.Severity, c.For = Warning, 10*time.Minute
	default:
		return Condition{}, ""
	}
	about = "in about " + in(*e.Seconds)
	switch {
	case e.Earliest != nil && e.Latest != nil:
		about += fmt.Sprintf(" (%s to %s)", in(*e.Earliest), in(*e.Latest))
	case e.Earliest != nil:
		about += fmt.Sprintf(" (%s at the earliest)", in(*e.Earliest))
	}
	if e.Assumption != "" {
		c.Reason = "; assumed: " + e.Assumption
	}
	return c, about
}

// seconds64 converts seconds to a duration without overflow.
func seconds64(seconds float64) time.Duration {
	return time.Duration(min(max(seconds, -1e9), 1e9) * float64(time.Second))
}
