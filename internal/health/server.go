package health

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/slot"
)

const observationOld = time.Minute

// judgePublication: the publication does not have all rows, so the stream lacks some.
func judgePublication(f *facts) Condition {
	if ok := f.slot.PublicationOK; ok == nil || *ok {
		return Condition{}
	}
	return Condition{
		Severity: Critical,
		Reason:   cmp.Or(f.slot.PublicationProblem, "the publication does not publish every row"),
		WAL:      "rows inserted meanwhile are not in the stream, and do not come once it is repaired",
		Next:     f.slot.PublicationFix, Cause: "publication",
	}
}

// judgeStandby: the server waits for a synchronized standby and sends no rows.
func judgeStandby(f *facts) Condition {
	why, waits := f.standbyWait()
	if !waits {
		return Condition{}
	}
	return why.condition(Critical, 5*time.Minute)
}

// standbyWait returns a cause if slots of synchronized_standby_slots do not confirm. Meanwhile the
// server sends no rows.
func (f *facts) standbyWait() (c cause, waits bool) {
	var names, states, others []string
	missing, physical, connected := false, false, true
	for _, s := range f.Observation.Standbys {
		if !s.Blocks {
			others = append(others, s.Name)
			continue
		}
		physical, connected = physical || !s.Logical, connected && s.Behind > 0
		state := "is inactive"
		switch {
		case s.Behind > 0:
			state = "has not confirmed WAL that was written " + Duration(s.Behind.Duration()) + " ago"
			if s.BehindBytes != nil {
				state += " (" + Bytes(*s.BehindBytes) + " behind)"
			}
		case !s.Exists:
			state, missing = "does not exist", true // waiting does not help
		case s.Logical:
			state, missing = "is a logical slot and never confirms", true
		case s.WALStatus == "lost":
			state, missing = "is lost", true // the standby needs a new slot
		case !s.InactiveSince.IsZero():
			state = "has been inactive for " + Duration(f.serverTime.Sub(s.InactiveSince))
		}
		if at := s.InactiveSince; !at.IsZero() && (c.since.IsZero() || at.Before(c.since)) {
			c.since = at
		}
		names = append(names, s.Name)
		states = append(states, fmt.Sprintf("slot %q of synchronized_standby_slots %s",
			slot.Printable(s.Name), state))
	}
	if len(names) == 0 {
		return cause{}, false
	}
	c.fix = "SELECT slot_name, active, wal_status FROM pg_replication_slots WHERE slot_type = " +
		"'physical'; -- bring the standby of this slot back"
	if connected {
		c.fix = "SELECT application_name, client_addr, state, sent_lsn, flush_lsn FROM " +
			"pg_stat_replication; -- look at the standby of this slot, its disk, and the network"
	}
	if missing || f.nearLoss() {
		remark := "or bring the standby back; without it in the list consumers can be sent what a " +
			"failover to that standby loses"
		if !physical {
			remark = "only slots of physical standbys belong in the list"
		}
		c.fix = fmt.Sprintf("ALTER SYSTEM SET synchronized_standby_slots = %s; "+
			"SELECT pg_reload_conf(); -- %s", slot.PrintableLiteral(strings.Join(others, ", ")), remark)
	}
	c.name = "standby slot " + slot.Printable(strings.Join(names, ", "))
	c.because = strings.Join(states, ", ") + ", so PostgreSQL sends the relay nothing"
	return c, true
}

// judgeObservation: the last observation of the server is old, or there was none since the start.
func judgeObservation(f *facts) Condition {
	s := f.slot
	last, text := s.ObservedAt, "the slot was last observed %s ago: lag and retention are not known"
	if last.IsZero() && f.Relay.Phase == relay.Streaming { // else the slot may not exist yet
		last = f.Started
		text = "the slot has not been observed since the relay was started %s ago: lag and " +
			"retention are not known, and a change of the publication is not noticed"
	}
	if last.IsZero() || f.Now.Sub(last) <= observationOld {
		return Condition{}
	}
	c := Condition{
		Severity: Warning, WAL: "not known since then", Cause: "PostgreSQL", Since: last,
		For: time.Minute, Reason: fmt.Sprintf(text, Duration(f.Now.Sub(last))),
	}
	if s.Error != "" {
		c.Reason += "; " + s.Error
	}
	return c
}

// judgeClock: the clocks of the two machines differ.
func judgeClock(f *facts) Condition {
	c := f.Observation.Clock
	if c == nil || c.Skew.Duration().Abs()-c.Error.Duration() <= f.Config.SkewWarning {
		return Condition{}
	}
	where := "ahead of"
	if c.Skew < 0 {
		where = "behind"
	}
	return Condition{
		Severity: Warning, Cause: "clock", For: 5 * time.Minute,
		Reason: fmt.Sprintf("the database server's clock is %s %s the relay's, within %s",
			Duration(c.Skew.Duration().Abs()), where, Duration(c.Error.Duration())),
		WAL:  "nothing: only times are wrong",
		Next: "timedatectl   # on both machines: is the clock synchronised?",
	}
}
