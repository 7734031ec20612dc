package health

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/slot"
)

// judgeOthers: another slot on the same disk is inactive and keeps much WAL.
func judgeOthers(f *facts) Condition {
	var inactive []slot.Status
	for _, s := range f.Observation.Others {
		// A synchronized slot on a standby is inactive until the failover.
		if !s.Active && !s.Synced && !s.Lost() && orZero(s.RetainedBytes) > f.Config.OtherRetained {
			inactive = append(inactive, s)
		}
	}
	if len(inactive) == 0 {
		return Condition{}
	}
	slices.SortStableFunc(inactive, func(a, b slot.Status) int {
		return cmp.Compare(*b.RetainedBytes, *a.RetainedBytes)
	})
	c := f.otherCause(inactive[0]).condition(Warning, 5*time.Minute)
	c.WAL = fmt.Sprintf("%s is kept for slot %q, whatever the relay confirms, more with every "+
		"write, until it is read or dropped", Bytes(*inactive[0].RetainedBytes), inactive[0].Name)
	for _, s := range inactive[1:] {
		c.Cause += ", slot " + s.Name
		c.Reason += fmt.Sprintf("; slot %q, too, keeps %s", s.Name, Bytes(*s.RetainedBytes))
	}
	return c
}

// locked reports whether a process publishes rows of the tables for the slot.
func (f *facts) locked() bool {
	lock := slot.LockName(f.slot.Name)
	return slices.ContainsFunc(f.Observation.Others, func(s slot.Status) bool {
		return s.Active && s.Name == lock
	})
}

// largestOther returns the other slot that keeps the most WAL, if that is more than the relay's. A
// transaction blocks restart_lsn of all logical slots, each at a step of its own: a slot that a
// session reads, and which it alone keeps back, is not the cause.
func (f *facts) largestOther() (largest slot.Status, found bool) {
	most := orZero(f.slot.RetainedBytes)
	if f.slot.Lost() {
		most = 0 // PostgreSQL 18 may leave its restart_lsn
	}
	_, blocked := f.blocker()
	for _, s := range f.Observation.Others {
		kept, lag := orZero(s.RetainedBytes), orZero(s.LagBytes)
		if blocked && s.Active && s.LagBytes != nil && kept-lag > lag {
			continue // physical slots have no lag: no transaction blocks them
		}
		if kept > most && !s.Lost() {
			largest, most, found = s, kept, true
		}
	}
	return largest, found
}

func (f *facts) otherCause(s slot.Status) cause {
	name, kept := fmt.Sprintf("slot %q", s.Name), Bytes(*s.RetainedBytes)
	if s.Database != "" {
		name += " of database " + slot.Printable(s.Database)
	}
	c := cause{name: "slot " + s.Name, fix: "postrider slot show " + s.Name, since: s.InactiveSince}
	if s.Active {
		c.because = fmt.Sprintf("%s keeps %s, and process %d, which reads it, does not keep up", name,
			kept, s.ActivePID)
		return c
	}
	idle := "is inactive"
	if !s.InactiveSince.IsZero() {
		idle = "has been inactive for " + Duration(f.serverTime.Sub(s.InactiveSince))
	}
	c.because = fmt.Sprintf("%s %s and keeps %s", name, idle, kept)
	c.fix += "   # ask its owner; it can be dropped if there is none, and what it has not " +
		"delivered is never delivered"
	return c
}
