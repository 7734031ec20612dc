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
	var dead []slot.Status
	for _, s := range f.Observation.Others {
		// A copy on a standby is inactive until the failover, and follows the primary.
		if !s.Active && !s.Synced && !s.Lost() && known(s.RetainedBytes) > f.Config.OtherRetained {
			dead = append(dead, s)
		}
	}
	if len(dead) == 0 {
		return Condition{}
	}
	slices.SortStableFunc(dead, func(a, b slot.Status) int {
		return cmp.Compare(*b.RetainedBytes, *a.RetainedBytes)
	})
	c := f.otherCause(dead[0]).condition(Warning, 5*time.Minute)
	c.WAL = fmt.Sprintf("%s is kept for slot %q, whatever the relay confirms, more with every "+
		"write, until it is read or dropped", Bytes(*dead[0].RetainedBytes), dead[0].Name)
	for _, s := range dead[1:] {
		c.Cause += ", slot " + s.Name
		c.Reason += fmt.Sprintf("; slot %q, too, keeps %s", s.Name, Bytes(*s.RetainedBytes))
	}
	return c
}

// largestOther is the other slot that keeps the most WAL, if that is more than ours keeps.
func (f *facts) largestOther() (largest slot.Status, found bool) {
	most := known(f.slot.RetainedBytes)
	for _, s := range f.Observation.Others {
		if kept := known(s.RetainedBytes); kept > most && !s.Lost() {
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
