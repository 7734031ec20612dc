// Package health gives the one answer to "is it well?": conditions, each with its reason, what it means for the WAL, and what to type next,
// and the verdict that follows from the gravest. It is pure: no I/O, no clock. The conditions carry the names of the alerts in deploy/prometheus
// and of the headings in docs/OPERATIONS.md, so that page, status, log, notification and rule speak of the same thing in the same words.
package health

import (
	"fmt"
	"time"

	"postrider/relay"
	"postrider/slot"
)

// Verdict is the state, with the gravest of the conditions behind it.
type Verdict struct {
	State      string      `json:"state"`             // ok, degraded, failing or standby
	Reason     string      `json:"reason"`            // one sentence
	WAL        string      `json:"wal,omitempty"`     // what it means for the WAL that PostgreSQL keeps; empty: nothing out of the ordinary
	Next       string      `json:"next,omitempty"`    // command or SQL to type next
	Runbook    string      `json:"runbook,omitempty"` // heading in docs/OPERATIONS.md, without the #; empty: none
	Conditions []Condition `json:"conditions,omitempty"`
}

// Condition is something that is not as it should be.
type Condition struct {
	Name     string    `json:"name"` // of the alert: PostriderSlotNearLoss
	Severity Severity  `json:"severity"`
	Reason   string    `json:"reason"` // one sentence; figures in it change from look to look
	WAL      string    `json:"wal,omitempty"`
	Next     string    `json:"next,omitempty"`
	Culprit  string    `json:"culprit,omitempty"` // who it is because of: "transaction of pid 4711 (psql)", "prepared transaction gid", "slot other", "kafka", "paused relay"
	Since    time.Time `json:"since,omitzero"`    // since when it holds, as far as known
	// For is how long it has to hold before somebody is told; it is part of the verdict at once.
	For time.Duration `json:"-"`
}

// Input is what a verdict rests on.
type Input struct {
	Now         time.Time
	Relay       relay.State      // zero: no relay answered
	Observation slot.Observation // zero: nobody looked at the server
	Config      Config
}

// Severity of a Condition.
type Severity string

// The severities. Warning makes the state degraded, Critical failing, Info leaves it.
const (
	Info     Severity = "info"
	Warning  Severity = "warning"
	Critical Severity = "critical"
)

// The values of Verdict.State.
const (
	OK       = "ok"       // rows are relayed
	Degraded = "degraded" // rows are relayed, or will be in a moment, but somebody should know
	Failing  = "failing"  // rows are not relayed, or will be lost
	Standby  = "standby"  // another process relays; this one waits to take over
)

// From when on something is worth a word. The alerts use the same numbers.
const (
	unackedDegraded = 30 * time.Second // consumers are that late
	unackedFailing  = 5 * time.Minute
	lagDegraded     = 1 << 30 // bytes of WAL between the server and us
	loopHangs       = time.Minute
	observationOld  = time.Minute
)

// Judge gives the verdict. It is pure: the first rule that applies decides, the gravest come first.
func Judge(in Input) Verdict {
	now, r, s := in.Now, in.Relay, in.Observation.Slot
	for _, rule := range []func(time.Time, relay.State, slot.Status) (Verdict, bool){
		judgeLoss, judgeStopped, judgePublication, judgePhase, judgeStreaming,
	} {
		if v, applies := rule(now, r, s); applies {
			return v
		}
	}
	return Verdict{State: OK, Reason: fmt.Sprintf("streaming for %s", Duration(now.Sub(r.Since)))}
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
			State:  Failing,
			Reason: fmt.Sprintf("slot %q is lost: %s", s.Name, reason),
			WAL:    fmt.Sprintf("none is kept for it any more; what was committed after %s has not been published", s.ConfirmedFlushLSN),
			Next:   fmt.Sprintf("postrider slot show %s   (then docs/OPERATIONS.md, \"slot_lost\")", s.Name),
		}, true
	case s.WALStatus == "unreserved", s.SafeWALSize != nil && *s.SafeWALSize <= 0:
		return Verdict{
			State:  Failing,
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
		return Verdict{State: Failing, Reason: orUnknown(r.Error), WAL: kept(s), Next: "postrider check"}, true
	case r == (relay.State{}) && s.Active:
		return Verdict{
			State:  Degraded,
			Reason: fmt.Sprintf("process %d of the database streams from slot %q, but no relay answers at http.listen", s.ActivePID, s.Name),
			Next:   "postrider status --http-listen HOST:PORT   (where the relay runs)",
		}, true
	case r == (relay.State{}):
		return Verdict{State: Failing, Reason: "no relay is running", WAL: kept(s), Next: "postrider run"}, true
	case hangs:
		return Verdict{
			State:  Failing,
			Reason: fmt.Sprintf("the session loop has not turned for %s", Duration(now.Sub(r.LastProgress))),
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
		State:  Failing,
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
		return Verdict{State: Standby, Reason: reason}, true
	case relay.BackingOff:
		next := "the next attempt is due"
		if wait := r.NextAttempt.Sub(now); wait > 0 {
			next = "next attempt in " + Duration(wait)
		}
		return Verdict{State: Failing, Reason: orUnknown(r.Error) + "; " + next, WAL: kept(s), Next: "postrider check"}, true
	case relay.Starting:
		return Verdict{State: Degraded, Reason: "the first session is not open yet", WAL: kept(s)}, true
	case relay.Snapshotting:
		return Verdict{
			State: Degraded,
			Reason: fmt.Sprintf("publishing rows that were in the tables already: %s, %d of about %d rows (%d %%), %.0f rows/s",
				r.Snapshot.Table, r.Snapshot.Rows, r.Snapshot.EstimatedRows, r.Snapshot.Percent(), r.Snapshot.RowsPerSecond),
			WAL: kept(s),
		}, true
	case relay.Draining:
		return Verdict{State: Degraded, Reason: fmt.Sprintf("stopping: waits for %d messages in flight", r.InFlight)}, true
	case relay.Stopped:
		return Verdict{State: Degraded, Reason: "stopped", WAL: kept(s), Next: "postrider run"}, true
	}
	return Verdict{}, false
}

// judgeStreaming: it runs, but not as it should.
func judgeStreaming(now time.Time, r relay.State, s slot.Status) (Verdict, bool) {
	if !r.OldestUnacked.IsZero() {
		late := now.Sub(r.OldestUnacked)
		v := Verdict{
			Reason: fmt.Sprintf("the oldest transaction in flight was committed %s ago", Duration(late)),
			WAL:    kept(s),
			Next:   "postrider check   (is the broker slow, or is a backlog being worked off?)",
		}
		switch {
		case late > unackedFailing:
			v.State = Failing
			return v, true
		case late > unackedDegraded:
			v.State = Degraded
			return v, true
		}
	}
	switch {
	case s.SafeWALSize != nil && s.RetainedBytes != nil && *s.SafeWALSize < *s.RetainedBytes:
		return Verdict{
			State:  Degraded,
			Reason: fmt.Sprintf("more than half of max_slot_wal_keep_size is used: %s until the slot can be lost", Bytes(*s.SafeWALSize)),
			WAL:    kept(s),
			Next:   fmt.Sprintf("postrider slot show %s", s.Name),
		}, true
	case s.LagBytes != nil && *s.LagBytes > lagDegraded:
		return Verdict{
			State:  Degraded,
			Reason: fmt.Sprintf("%s of WAL behind the server", Bytes(*s.LagBytes)),
			WAL:    kept(s),
			Next:   "postrider status --watch   (does it shrink?)",
		}, true
	case !s.ObservedAt.IsZero() && now.Sub(s.ObservedAt) > observationOld:
		reason := fmt.Sprintf("the slot was last observed %s ago: lag and retention are not known", Duration(now.Sub(s.ObservedAt)))
		if s.Error != "" {
			reason += "; " + s.Error
		}
		return Verdict{State: Degraded, Reason: reason, Next: "postrider check"}, true
	}
	return Verdict{}, false
}

// kept says what the slot costs while nothing is confirmed.
func kept(s slot.Status) string {
	if s.RetainedBytes == nil {
		return "PostgreSQL keeps WAL for the slot, more with every write, until rows are confirmed again"
	}
	text := fmt.Sprintf("%s is kept for slot %q, more with every write, until rows are confirmed again", Bytes(*s.RetainedBytes), s.Name)
	if s.SafeWALSize != nil && *s.SafeWALSize > 0 {
		text += fmt.Sprintf("; %s until the slot can be lost", Bytes(*s.SafeWALSize))
	}
	return text
}

func orUnknown(reason string) string {
	if reason == "" {
		return "the last session ended without a reason"
	}
	return reason
}
