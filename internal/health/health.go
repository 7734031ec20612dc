// Package health judges the relay and its slot: it finds conditions, each with its reason, what it
// means for the WAL and what to type next. The most severe one is the verdict. Judge is pure: no
// I/O, no clock. A condition has the name of its alert in deploy/prometheus and of its heading in
// docs/RUNBOOKS.md, so that page, status, log, notification and rule use the same words.
//
//	health.go    Judge: the verdict
//	names.go     the conditions, in the order in which they count
//	phase.go     the verdict of the relay's phase alone
//	relay.go     conditions of the relay
//	retention.go conditions of kept WAL
//	loss.go      the slot is lost, or about to be
//	forecast.go  the slot or the disk is lost soon, at the present rates
//	cause.go     why WAL is kept
//	blocker.go   transactions that block restart_lsn
//	others.go    other slots of the server
//	server.go    conditions of the server, and of its observation
//	phantoms.go  events of transactions that a failover lost
//	watcher.go   since when conditions hold, for log and metrics
//	units.go     bytes and durations for people
//	config.go    the section [health]
package health

import (
	"cmp"
	"slices"
	"time"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/monitor"
)

// Verdict is the state, with the most severe of its conditions.
type Verdict struct {
	State  string `json:"state"`  // ok, degraded, failing or standby
	Reason string `json:"reason"` // one sentence
	// WAL is what the state means for the kept WAL; empty: nothing unusual.
	WAL string `json:"wal,omitempty"`
	// Next has commands or SQL to type, one a line, with remarks, or a sentence.
	Next       string      `json:"next,omitempty"`
	Runbook    string      `json:"runbook,omitempty"`    // heading in docs/RUNBOOKS.md; empty: none
	Conditions []Condition `json:"conditions,omitempty"` // all, the most severe first
}

// ChangeHints replaces Next of the verdict and of its conditions.
func (v *Verdict) ChangeHints(change func(hint string) string) {
	v.Next = change(v.Next)
	for i := range v.Conditions {
		v.Conditions[i].Next = change(v.Conditions[i].Next)
	}
}

// Condition is a problem. A Verdict has at most one of each name.
type Condition struct {
	Name     string   `json:"name"` // of the alert: PostriderSlotNearLoss
	Severity Severity `json:"severity"`
	Reason   string   `json:"reason"` // one sentence; its figures change from verdict to verdict
	WAL      string   `json:"wal,omitempty"`
	Next     string   `json:"next,omitempty"`
	// Cause names what the condition is because of: "transaction of pid 4711 (psql)", "slot other",
	// "kafka at kafka-1:9092", "paused relay".
	Cause string    `json:"culprit,omitempty"`
	Since time.Time `json:"since,omitzero"` // as far as known; a Watcher fills in what is not
	// For is how long it has to last before a notification; it is part of the verdict at once.
	For time.Duration `json:"-"`
}

// Input is what Judge judges.
type Input struct {
	Now         time.Time
	Relay       relay.State         // zero: no relay answered
	Observation monitor.Observation // zero: the server was not observed
	Sink        string              // for people: "kafka at kafka-1:9092"; empty: not known
	StartError  StartError          // where no relay answered; zero: none, or not checked
	Config      Config
}

// StartError is why a relay could not stream if it was started now.
type StartError struct {
	Reason string // as the relay itself would say it
	WAL    string
	Next   string
	Lost   bool // the reason is that the slot is lost, which is a condition of its own
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
	Degraded = "degraded" // rows are relayed, or will be in a moment, with a problem
	Failing  = "failing"  // rows are not relayed, or will be lost
	Standby  = "standby"  // another process relays; this one waits to take over
)

// facts is an Input with what several rules need.
type facts struct {
	Input
	slot       slot.Status
	serverTime time.Time // now, by the server's clock
	cause      cause     // why WAL is kept for the slot
}

// Judge finds all conditions, and the verdict of the most severe.
func Judge(in Input) Verdict {
	f := &facts{Input: in, slot: in.Observation.Slot, serverTime: in.Now}
	if c := in.Observation.Clock; c != nil {
		f.serverTime = in.Now.Add(c.Skew.Duration())
	}
	f.cause = f.findCause()
	v := judgePhase(f)
	for _, r := range rules {
		if r.live && f.slot.Lost() {
			continue
		}
		if c := r.judge(f); c.Severity != "" {
			c.Name, c.WAL, c.Next = r.name, cmp.Or(c.WAL, f.kept()), cmp.Or(c.Next, "postrider check")
			v.Conditions = append(v.Conditions, c)
		}
	}
	slices.SortStableFunc(v.Conditions, func(a, b Condition) int {
		return cmp.Compare(severityOrder[b.Severity], severityOrder[a.Severity])
	})
	if len(v.Conditions) > 0 {
		v.take(v.Conditions[0])
	}
	return v
}

var severityOrder = map[Severity]int{Info: 0, Warning: 1, Critical: 2}

// take makes the most severe condition the reason. A warning does not degrade a relay that stands
// by.
func (v *Verdict) take(c Condition) {
	switch {
	case c.Severity == Critical:
		v.State = Failing
	case c.Severity == Warning && v.State != Standby:
		v.State = Degraded
	default:
		return
	}
	v.Reason, v.WAL, v.Next, v.Runbook = c.Reason, c.WAL, c.Next, Runbook(c.Name)
}
