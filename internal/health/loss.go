package health

import (
	"fmt"
	"math"
	"time"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/slot/monitor"
)

// raiseLimit is what to type if nothing that one could type would end the cause. A limit protects the disk, for every database of the server: how
// far it can be raised is what the volume has free, and where that is not known it is asked for first. It is never taken away.
func (f *facts) raiseLimit() string {
	if f.cause.name == unknownCause {
		return findTransactions
	}
	l := f.Observation.Limit
	if l.Effective == nil {
		return "postrider slot show " + f.slot.Name
	}
	set := func(bytes int64) string {
		return fmt.Sprintf("ALTER SYSTEM SET max_slot_wal_keep_size = '%dMB'; SELECT pg_reload_conf();", bytes>>20)
	}
	if l.VolumeSize > 0 && l.WALDirectory != nil {
		if free := l.VolumeSize - *l.WALDirectory; free > 1<<30 {
			return set(*l.Effective+free/2) + " -- half of the volume's " + Bytes(free) + " more; set it back later"
		}
		return "postrider slot list   # who keeps how much: the volume has no room for a higher limit"
	}
	return "SHOW data_directory; -- then df -h there; only if it has room: " + set(2**l.Effective)
}

const recoverLost = `postrider recover   # then docs/RUNBOOKS.md, "slot_lost"`

// recoverLost is what the relay itself says, or would say if it was started.
func (f *facts) recoverLost() string {
	switch {
	case f.StartError.Lost && f.StartError.Next != "":
		return f.StartError.Next
	case f.Relay.Reason == "slot_lost" && f.Relay.Next != "":
		return f.Relay.Next
	}
	return recoverLost
}

// judgeLost: WAL that was not delivered is gone.
func judgeLost(f *facts) Condition {
	s := f.slot
	if !s.Lost() {
		return Condition{}
	}
	reason := s.InvalidationReason
	if reason == "" {
		reason = "PostgreSQL removed WAL that had not been delivered"
	}
	c := Condition{
		Severity: Critical,
		Reason:   fmt.Sprintf("slot %q is lost: %s", s.Name, reason),
		WAL:      fmt.Sprintf("none is kept for it any more; what was committed after %s has not been published", s.ConfirmedFlushLSN),
		Next:     f.recoverLost(),
		Cause:    f.takenBy(),
	}
	// A relay that has halted, or is gone, may be so since the slot is lost.
	if f.Relay.Phase == relay.Paused || f.Relay.Phase == relay.BackingOff {
		c.Cause = f.cause.name
		c.Reason += "; " + f.cause.because
	}
	return c
}

// takenBy is what made the server give the slot up.
func (f *facts) takenBy() string {
	switch f.slot.InvalidationReason {
	case "idle_timeout":
		return "idle_replication_slot_timeout"
	case "rows_removed":
		return "recovery on a standby"
	case "wal_level_insufficient":
		return "wal_level"
	}
	if f.slot.Conflicting {
		return "recovery on a standby"
	}
	return "max_slot_wal_keep_size"
}

// judgeNearLoss: the limit comes near, or is passed and the next checkpoint decides.
func judgeNearLoss(f *facts) Condition {
	s := f.slot
	left, known := f.safePart()
	c := Condition{WAL: f.kept(), Next: f.cureOr(f.raiseLimit()), Cause: f.cause.name}
	switch {
	case s.Lost():
		return Condition{}
	case s.WALStatus == "unreserved", known && *s.SafeWALSize <= 0:
		c.Severity = Critical
		c.Reason = fmt.Sprintf("slot %q is over max_slot_wal_keep_size and can be lost at the next checkpoint", s.Name)
		c.WAL = "what has not been delivered by then is lost with it; " + c.WAL
	case known && left < f.Config.SafeCritical:
		c.Severity = Critical
		c.Reason = f.nearText(left)
	case known && left < f.Config.SafeWarning && (f.Observation.Forecast.Grows || !s.Active): // else it is a step of restart_lsn
		c.Severity, c.For = Warning, 5*time.Minute
		c.Reason = f.nearText(left)
	default:
		return Condition{}
	}
	c.Reason += ": " + f.cause.because
	return c
}

// nearLoss tells that the slot can be lost, or the disk be full, before somebody who looks for the cause has found it.
func (f *facts) nearLoss() bool {
	left, known := f.safePart()
	lost, _ := f.forecast(f.Observation.Forecast.Loss)
	full, _ := f.forecast(f.Observation.Forecast.DiskFull)
	return known && left < f.Config.SafeCritical || f.slot.WALStatus == "unreserved" || lost.Severity == Critical || full.Severity == Critical
}

func (f *facts) nearText(left float64) string {
	return fmt.Sprintf("%.0f %% of max_slot_wal_keep_size is left: %s until the slot can be lost", math.Floor(100*left), Bytes(*f.slot.SafeWALSize))
}

// safePart is how much of the limit is left, from 0 to 1. false: there is no limit, or it is not known.
func (f *facts) safePart() (float64, bool) {
	s := f.slot
	if s.SafeWALSize == nil {
		return 0, false
	}
	if limit := LossLimit(f.Observation); limit > 0 {
		return float64(*s.SafeWALSize) / float64(limit), true
	}
	return 1, true
}

// LossLimit is how many bytes may be kept for the slot before it can be lost; zero: no limit, or not known. The server removes whole segments, so that what is
// left can be more than max_slot_wal_keep_size: what is left and what is kept, which both count from restart_lsn, are the limit then.
func LossLimit(o monitor.Observation) int64 {
	limit := int64(0)
	if o.Limit.Effective != nil {
		limit = *o.Limit.Effective
	}
	if s := o.Slot; s.SafeWALSize != nil && s.RetainedBytes != nil && (limit == 0 || *s.SafeWALSize > limit) {
		limit = max(limit, *s.SafeWALSize+*s.RetainedBytes)
	}
	return limit
}

// judgeTimeToLoss: at the present rates the limit is reached soon.
func judgeTimeToLoss(f *facts) Condition {
	c, about := f.forecast(f.Observation.Forecast.Loss)
	if c.Severity == "" || f.slot.Lost() {
		return Condition{}
	}
	c.Reason = fmt.Sprintf("slot %q can be lost %s: %s", f.slot.Name, about, f.cause.because) + c.Reason
	c.WAL, c.Next, c.Cause = "what has not been delivered by then is lost with it; "+f.kept(), f.cureOr(f.raiseLimit()), f.cause.name
	return c
}

// judgeTimeToDiskFull: whoever keeps the most WAL is it, and that may be another slot than ours.
func judgeTimeToDiskFull(f *facts) Condition {
	c, about := f.forecast(f.Observation.Forecast.DiskFull)
	if c.Severity == "" {
		return Condition{}
	}
	why := f.cause
	next := f.cureOr("postrider slot list   # who keeps how much; a slot that is not needed can be dropped, else the volume has to grow")
	if other, found := f.largestOther(); found {
		why = f.causeOfOther(other)
		next = why.cure
	}
	c.Reason = fmt.Sprintf("the volume with pg_wal is full %s: %s", about, why.because) + c.Reason
	c.WAL = "a server whose pg_wal is full stops, for everybody; " + f.kept()
	c.Next, c.Cause = next, why.name
	return c
}

// forecast is a condition with the severity of an estimate, its assumption as the end of a reason, and the estimate as text. It counts from
// the observation on, however old that is.
func (f *facts) forecast(e monitor.Estimate) (c Condition, about string) {
	if e.Seconds == nil {
		return Condition{}, ""
	}
	passed := 0.0
	if at := f.slot.ObservedAt; !at.IsZero() {
		passed = f.Now.Sub(at).Seconds()
	}
	in := func(seconds float64) string { return Duration(seconds64(seconds - passed)) }
	switch left := seconds64(*e.Seconds - passed); {
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

// seconds64 does not overflow for a time that is far.
func seconds64(seconds float64) time.Duration {
	return time.Duration(min(max(seconds, -1e9), 1e9) * float64(time.Second))
}

// judgeExtended: nothing is wrong yet, and it is the first that one sees of it.
func judgeExtended(f *facts) Condition {
	s := f.slot
	if s.WALStatus != "extended" || s.Lost() {
		return Condition{}
	}
	because := f.cause.because
	if f.cause.name == unknownCause && !f.Observation.Forecast.Grows {
		because = "the relay keeps up, and restart_lsn follows in steps"
	}
	return Condition{
		Severity: Info, Reason: fmt.Sprintf("more WAL than max_wal_size is kept for slot %q: %s", s.Name, because),
		WAL: f.kept(), Next: f.cureOr("postrider slot show " + s.Name), Cause: f.cause.name,
	}
}

func (f *facts) cureOr(next string) string {
	if f.cause.cure != "" {
		return f.cause.cure
	}
	return next
}

// kept says what the slot costs while nothing is confirmed.
func (f *facts) kept() string {
	s := f.slot
	switch {
	case s.Lost():
		return fmt.Sprintf("none is kept for slot %q any more", s.Name)
	case s.RetainedBytes == nil:
		return "PostgreSQL keeps WAL for the slot, more with every write, until rows are confirmed again"
	}
	text := fmt.Sprintf("%s is kept for slot %q, more with every write, until rows are confirmed again", Bytes(*s.RetainedBytes), s.Name)
	if s.SafeWALSize != nil && *s.SafeWALSize > 0 {
		text += fmt.Sprintf("; %s until the slot can be lost", Bytes(*s.SafeWALSize))
	}
	return text
}
