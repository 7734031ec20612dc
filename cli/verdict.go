package cli

import (
	"fmt"
	"time"

	"postrider/relay"
	"postrider/slot"
)

// Verdict is the one answer to "is it well?", with what follows and what to do.
type Verdict struct {
	State  string `json:"state"`          // ok, degraded, failing or standby
	Reason string `json:"reason"`         // one sentence
	WAL    string `json:"wal,omitempty"`  // what it means for the WAL that PostgreSQL keeps; empty: nothing out of the ordinary
	Next   string `json:"next,omitempty"` // command or SQL to type next
}

// The values of Verdict.State.
const (
	stateOK       = "ok"       // rows are relayed
	stateDegraded = "degraded" // rows are relayed, or will be in a moment, but somebody should know
	stateFailing  = "failing"  // rows are not relayed, or will be lost
	stateStandby  = "standby"  // another process relays; this one waits to take over
)

// From when on something is worth a word. The alerts use the same numbers.
const (
	unackedDegraded = 30 * time.Second // consumers are that late
	unackedFailing  = 5 * time.Minute
	lagDegraded     = 1 << 30 // bytes of WAL between the server and us
	loopHangs       = time.Minute
	observationOld  = time.Minute
)

// judge gives the verdict on what relay and slot say of themselves at the time now. A zero State is a relay that did not
// answer, a zero Status a slot that nobody observed. It is pure: the first rule that applies decides, the gravest come first.
func judge(now time.Time, r relay.State, s slot.Status) Verdict {
	for _, rule := range []func(time.Time, relay.State, slot.Status) (Verdict, bool){
		judgeLoss, judgeStopped, judgePublication, judgePhase, judgeStreaming,
	} {
		if v, applies := rule(now, r, s); applies {
			return v
		}
	}
	return Verdict{State: stateOK, Reason: fmt.Sprintf("streaming for %s", durationText(now.Sub(r.Since)))}
}

// judgeLoss: WAL is gone, or will be at the next checkpoint.
func judgeLoss(_ time.Time, _ relay.State, s slot.Status) (Verdict, bool) {
	switch {
	case s.Lost():
		reason := s.InvalidationReason
		if reason == "" {
			reason = "PostgreSQL removed WAL that had not been delivered"
		}
		return Verdict{
			State:  stateFailing,
			Reason: fmt.Sprintf("slot %q is lost: %s", s.Name, reason),
			WAL:    fmt.Sprintf("none is kept for it any more; what was committed after %s has not been published", s.ConfirmedFlushLSN),
			Next:   fmt.Sprintf("postrider slot show %s   (then docs/OPERATIONS.md, \"slot_lost\")", s.Name),
		}, true
	case s.WALStatus == "unreserved", s.SafeWALSize != nil && *s.SafeWALSize <= 0:
		return Verdict{
			State:  stateFailing,
			Reason: fmt.Sprintf("slot %q is over max_slot_wal_keep_size and can be lost at the next checkpoint", s.Name),
			WAL:    "what has not been delivered by then is lost with it; " + kept(s),
			Next:   "ALTER SYSTEM SET max_slot_wal_keep_size = -1; SELECT pg_reload_conf();   (if the disk has room; set it back later)",
		}, true
	}
	return Verdict{}, false
}

// judgeStopped: nothing will get better without somebody doing something.
func judgeStopped(now time.Time, r relay.State, s slot.Status) (Verdict, bool) {
	hangs := !r.LastProgress.IsZero() && now.Sub(r.LastProgress) > loopHangs && r.Phase != relay.Stopped
	switch {
	case r.Phase == relay.Halted:
		return Verdict{stateFailing, orUnknown(r.Error), kept(s), "postrider check"}, true
	case r == (relay.State{}) && s.Active:
		return Verdict{
			State:  stateDegraded,
			Reason: fmt.Sprintf("process %d of the database streams from slot %q, but no relay answers at http.listen", s.ActivePID, s.Name),
			Next:   "postrider status --http-listen HOST:PORT   (where the relay runs)",
		}, true
	case r == (relay.State{}):
		return Verdict{stateFailing, "no relay is running", kept(s), "postrider run"}, true
	case hangs:
		return Verdict{
			State:  stateFailing,
			Reason: fmt.Sprintf("the session loop has not turned for %s", durationText(now.Sub(r.LastProgress))),
			WAL:    kept(s),
			Next:   "restart the relay, and report it with the log of the last minutes",
		}, true
	}
	return Verdict{}, false
}

// judgePublication: the stream runs, but rows are not in it.
func judgePublication(_ time.Time, _ relay.State, s slot.Status) (Verdict, bool) {
	if s.PublicationOK == nil || *s.PublicationOK {
		return Verdict{}, false
	}
	return Verdict{
		State:  stateFailing,
		Reason: "the publication is missing, lacks a configured table, or does not publish inserts",
		WAL:    "rows inserted meanwhile are not in the stream, and do not come once it is repaired",
		Next:   "postrider check",
	}, true
}

// judgePhase: every phase but Streaming speaks for itself.
func judgePhase(now time.Time, r relay.State, s slot.Status) (Verdict, bool) {
	switch r.Phase {
	case relay.Standby:
		reason := "another process holds the slot; this one takes over when it lets go"
		if s.ActivePID != 0 {
			reason = fmt.Sprintf("process %d of the database holds the slot; this one takes over when it lets go", s.ActivePID)
		}
		return Verdict{State: stateStandby, Reason: reason}, true
	case relay.BackingOff:
		next := "the next attempt is due"
		if wait := r.NextAttempt.Sub(now); wait > 0 {
			next = "next attempt in " + durationText(wait)
		}
		return Verdict{stateFailing, orUnknown(r.Error) + "; " + next, kept(s), "postrider check"}, true
	case relay.Starting:
		return Verdict{State: stateDegraded, Reason: "the first session is not open yet", WAL: kept(s)}, true
	case relay.Snapshotting:
		return Verdict{
			State: stateDegraded,
			Reason: fmt.Sprintf("publishing rows that were in the tables already: %s, %d of about %d rows (%d %%), %.0f rows/s",
				r.Snapshot.Table, r.Snapshot.Rows, r.Snapshot.EstimatedRows, r.Snapshot.Percent(), r.Snapshot.RowsPerSecond),
			WAL: kept(s),
		}, true
	case relay.Draining:
		return Verdict{State: stateDegraded, Reason: fmt.Sprintf("stopping: waits for %d messages in flight", r.InFlight)}, true
	case relay.Stopped:
		return Verdict{stateDegraded, "stopped", kept(s), "postrider run"}, true
	}
	return Verdict{}, false
}

// judgeStreaming: it runs, but not as it should.
func judgeStreaming(now time.Time, r relay.State, s slot.Status) (Verdict, bool) {
	if !r.OldestUnacked.IsZero() {
		late := now.Sub(r.OldestUnacked)
		v := Verdict{
			Reason: fmt.Sprintf("the oldest transaction in flight was committed %s ago", durationText(late)),
			WAL:    kept(s),
			Next:   "postrider check   (is the broker slow, or is a backlog being worked off?)",
		}
		switch {
		case late > unackedFailing:
			v.State = stateFailing
			return v, true
		case late > unackedDegraded:
			v.State = stateDegraded
			return v, true
		}
	}
	switch {
	case s.SafeWALSize != nil && s.RetainedBytes != nil && *s.SafeWALSize < *s.RetainedBytes:
		return Verdict{
			State:  stateDegraded,
			Reason: fmt.Sprintf("more than half of max_slot_wal_keep_size is used: %s until the slot can be lost", bytesText(*s.SafeWALSize)),
			WAL:    kept(s),
			Next:   fmt.Sprintf("postrider slot show %s", s.Name),
		}, true
	case s.LagBytes != nil && *s.LagBytes > lagDegraded:
		return Verdict{
			State:  stateDegraded,
			Reason: fmt.Sprintf("%s of WAL behind the server", bytesText(*s.LagBytes)),
			WAL:    kept(s),
			Next:   "postrider status --watch   (does it shrink?)",
		}, true
	case !s.ObservedAt.IsZero() && now.Sub(s.ObservedAt) > observationOld:
		reason := fmt.Sprintf("the slot was last observed %s ago: lag and retention are not known", durationText(now.Sub(s.ObservedAt)))
		if s.Error != "" {
			reason += "; " + s.Error
		}
		return Verdict{State: stateDegraded, Reason: reason, Next: "postrider check"}, true
	}
	return Verdict{}, false
}

// kept says what the slot costs while nothing is confirmed.
func kept(s slot.Status) string {
	if s.RetainedBytes == nil {
		return "PostgreSQL keeps WAL for the slot, more with every write, until rows are confirmed again"
	}
	text := fmt.Sprintf("%s is kept for slot %q, more with every write, until rows are confirmed again", bytesText(*s.RetainedBytes), s.Name)
	if s.SafeWALSize != nil && *s.SafeWALSize > 0 {
		text += fmt.Sprintf("; %s until the slot can be lost", bytesText(*s.SafeWALSize))
	}
	return text
}

func orUnknown(reason string) string {
	if reason == "" {
		return "the last session ended without a reason"
	}
	return reason
}
