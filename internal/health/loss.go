package health

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/slot/monitor"
)

// leastRaise is the least by which a higher limit helps on a volume whose size is known, in bytes.
const leastRaise = 512 << 20

// raiseLimit returns SQL that raises the limit, for a cause without a fix. The limit protects the
// disk of all databases: it is never removed, and raised only within the free space of the volume.
// The operator has to check that first: monitor.volume_size is a setting, and other data may be on
// the volume. The limit and max_wal_size together stay below the volume.
func (f *facts) raiseLimit() string {
	if f.cause.name == unknownCause {
		return findTransactions
	}
	l := f.Observation.Limit
	if l.Effective == nil {
		return "postrider slot show " + f.slot.Name
	}
	more, used := *l.Effective, orZero(f.slot.RetainedBytes)
	if l.WALDirectory != nil {
		used = *l.WALDirectory
	}
	if l.VolumeSize > 0 {
		if l.WALDirectory != nil {
			more = (l.VolumeSize - used) / 2
		}
		more = min(more, l.VolumeSize-l.MaxWALSize-*l.Effective)
	}
	if l.VolumeSize > 0 && more <= leastRaise {
		return "postrider slot list   # which slot keeps how much: the volume has no room for a " +
			"higher limit"
	}
	limit := *l.Effective + more
	// pg_wal may be a link to a volume of its own.
	return fmt.Sprintf("SHOW data_directory; -- then df -h THAT/pg_wal/.; only if it has %s free: "+
		"ALTER SYSTEM SET max_slot_wal_keep_size = '%dMB'; SELECT pg_reload_conf(); "+
		"-- set it back later", Bytes(max(more, limit+l.MaxWALSize-used)), limit>>20)
}

const lostByThen = "what has not been delivered by then is lost with it; "

const recoverLost = `postrider recover   # then docs/RUNBOOKS.md, "slot_lost"`

// recoverLost returns the hint of the relay, or of one that was started now.
func (f *facts) recoverLost() string {
	switch {
	case f.StartError.Lost && f.StartError.Next != "":
		return f.StartError.Next
	case f.Relay.Reason == "slot_lost" && f.Relay.Next != "":
		return f.Relay.Next
	}
	return recoverLost
}

// judgeLost: the server has removed WAL that was not delivered.
func judgeLost(f *facts) Condition {
	s := f.slot
	if !s.Lost() {
		return Condition{}
	}
	c := Condition{
		Severity: Critical,
		Reason: fmt.Sprintf("slot %q is lost: %s", s.Name,
			cmp.Or(s.InvalidationReason, "PostgreSQL removed WAL that had not been delivered")),
		WAL: fmt.Sprintf("none is kept for it any more; what was committed after %s has not been "+
			"published", s.ConfirmedFlushLSN),
		Next:  f.recoverLost(),
		Cause: f.invalidatedBy(),
	}
	// A relay that has halted or stopped may be the consequence, not the cause.
	if f.Relay.Phase == relay.Paused || f.Relay.Phase == relay.BackingOff {
		c.Cause, c.Reason = f.cause.name, c.Reason+"; "+f.cause.because
	}
	return c
}

// invalidatedBy returns the setting, or the event, that invalidated the slot.
func (f *facts) invalidatedBy() string {
	switch reason := f.slot.InvalidationReason; {
	case reason == "idle_timeout":
		return "idle_replication_slot_timeout"
	case reason == "wal_level_insufficient":
		return "wal_level"
	case reason == "rows_removed", f.slot.Conflicting:
		return "recovery on a standby"
	}
	return "max_slot_wal_keep_size"
}

// judgeNearLoss: the limit is near or exceeded. Then a checkpoint can invalidate the slot.
func judgeNearLoss(f *facts) Condition {
	s := f.slot
	left, known := f.safePart()
	c := Condition{Severity: Critical, Next: f.fixOr(f.raiseLimit()), Cause: f.cause.name}
	switch {
	case s.WALStatus == "unreserved", known && *s.SafeWALSize <= 0:
		c.Reason = fmt.Sprintf("slot %q is over max_slot_wal_keep_size and can be lost at the next "+
			"checkpoint", s.Name)
		c.WAL = lostByThen + f.kept()
	case known && left < f.Config.SafeCritical:
		c.Reason = f.nearText(left)
	case known && left < f.Config.SafeWarning && (f.Observation.Forecast.Grows || !s.Active):
		// Without growth it is a step of restart_lsn.
		c.Severity, c.For = Warning, 5*time.Minute
		c.Reason = f.nearText(left)
	default:
		return Condition{}
	}
	c.Reason += ": " + f.cause.because
	return c
}

// nearLoss reports whether the slot can be lost, or the disk be full, before an operator can find
// the cause.
func (f *facts) nearLoss() bool {
	left, known := f.safePart()
	lost, _ := f.forecast(f.Observation.Forecast.Loss)
	full, _ := f.forecast(f.Observation.Forecast.DiskFull)
	return known && left < f.Config.SafeCritical || f.slot.WALStatus == "unreserved" ||
		lost.Severity == Critical || full.Severity == Critical
}

func (f *facts) nearText(left float64) string {
	return fmt.Sprintf("%.0f %% of max_slot_wal_keep_size is left: %s until the slot can be lost",
		math.Floor(100*left), Bytes(*f.slot.SafeWALSize))
}

// safePart returns how much of the limit is left, from 0 to 1. false: there is no limit, or it is
// unknown.
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

// LossLimit returns how many bytes may be kept before the slot can be lost; zero: no limit, or
// unknown. The server removes whole segments, so more than max_slot_wal_keep_size can be left.
// Then the limit is the sum of what is left and what is kept: both count from restart_lsn.
func LossLimit(o monitor.Observation) int64 {
	limit := orZero(o.Limit.Effective)
	if s := o.Slot; s.SafeWALSize != nil && s.RetainedBytes != nil &&
		(limit == 0 || *s.SafeWALSize > limit) {
		limit = max(limit, *s.SafeWALSize+*s.RetainedBytes)
	}
	return limit
}

// judgeExtended: more WAL than max_wal_size is kept, which is the first sign of a problem.
func judgeExtended(f *facts) Condition {
	s := f.slot
	if s.WALStatus != "extended" {
		return Condition{}
	}
	because := f.cause.because
	if f.cause.name == unknownCause && !f.Observation.Forecast.Grows {
		because = "the relay keeps up, and restart_lsn follows in steps"
	}
	return Condition{
		Severity: Info, Next: f.fixOr("postrider slot show " + s.Name), Cause: f.cause.name,
		Reason: fmt.Sprintf("more WAL than max_wal_size is kept for slot %q: %s", s.Name, because),
	}
}

func (f *facts) fixOr(next string) string { return cmp.Or(f.cause.fix, next) }

// kept returns the text about kept WAL while no position is confirmed.
func (f *facts) kept() string {
	s := f.slot
	switch {
	case s.Lost():
		return fmt.Sprintf("none is kept for slot %q any more", s.Name)
	case s.RetainedBytes == nil:
		return "PostgreSQL keeps WAL for the slot, more with every write, until rows are confirmed again"
	}
	text := fmt.Sprintf("%s is kept for slot %q, more with every write, until rows are confirmed "+
		"again", Bytes(*s.RetainedBytes), s.Name)
	if left := orZero(s.SafeWALSize); left > 0 {
		text += fmt.Sprintf("; %s until the slot can be lost", Bytes(left))
	}
	return text
}
