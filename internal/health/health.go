// Package health judges the relay and its slot: it finds conditions, each with its reason, its
// consequence for the WAL and the next command. The most severe one decides the verdict. Judge is
// pure: no I/O, no clock. A condition has the name of its alert in deploy/prometheus and of its
// heading in docs/RUNBOOKS.md: page, status, log, notification and rule use the same words.
//
//	health.go    Judge: the verdict
//	names.go     the conditions, by precedence
//	phase.go     the verdict of the relay's phase alone
//	relay.go     conditions of the relay
//	retention.go conditions of kept WAL
//	loss.go      the slot is lost, or near its limit
//	forecast.go  estimates of when the slot is lost or the disk is full
//	archiver.go  WAL that waits to be archived
//	cause.go     why WAL is kept
//	blocker.go   transactions that block restart_lsn
//	others.go    other slots of the server
//	server.go    conditions of the server and of its observation
//	phantoms.go  events of transactions that a failover lost
//	watcher.go   since when conditions are present, for log and metrics
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
	// WAL is the consequence for the kept WAL; empty: nothing unusual.
	WAL string `json:"wal,omitempty"`
	// Next is a command, SQL or a sentence: one a line, with remarks.
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
	Reason   string   `json:"reason"` // one sentence, with present figures
	WAL      string   `json:"wal,omitempty"`
	Next     string   `json:"next,omitempty"`
	// Cause is the name of the cause: "transaction of pid 4711 (psql)", "slot other",
	// "kafka at kafka-1:9092", "paused relay".
	Cause string    `json:"culprit,omitempty"`
	Since time.Time `json:"since,omitzero"` // zero: unknown; a Watcher sets it
	// For is how long the condition has to last before a notification. The verdict has it at once.
	For time.Duration `json:"-"`
}

// Input is the input of Judge.
type Input struct {
	Now         time.Time
	Started     time.Time           // of the relay's process; zero: no relay answered
	Relay       relay.State         // zero: no relay answered
	Observation monitor.Observation // zero: the server was not observed
	Sink        string              // for people: "kafka at kafka-1:9092"; empty: unknown
	StartError  StartError          // if no relay answered; zero: none, or not checked
	Config      Config
}

// StartError is why a relay that was started now could not stream.
type StartError struct {
	Reason string // the error of the relay
	WAL    string
	Next   string
	Lost   bool // the slot is lost, which is another condition
}

// Severity of a Condition.
type Severity string

// The severities. Warning makes the state degraded, Critical failing, Info does not change it.
const (
	Info     Severity = "info"
	Warning  Severity = "warning"
	Critical Severity = "critical"
)

// The values of Verdict.State.
const (
	OK       = "ok"       // rows are relayed
	Degraded = "degraded" // rows are relayed or soon will be, with a problem
	Failing  = "failing"  // rows are not relayed, or will be lost
	Standby  = "standby"  // another process relays; this one waits to take over
)

// facts is an Input with values that several rules need.
type facts struct {
	Input
	slot       slot.Status
	serverTime time.Time // now, by the server's clock
	cause      cause     // why WAL is kept for the slot
}

// Judge returns the verdict with all conditions.
func Judge(in Input) Verdict {
	f := &facts{Input: in, slot: in.Observation.Slot,
		serverTime: in.Observation.Clock.ServerTime(in.Now)}
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
		v.apply(v.Conditions[0])
	}
	return v
}

var severityOrder = map[Severity]int{Info: 0, Warning: 1, Critical: 2}

// apply sets the verdict to that of its most severe condition. A warning does not degrade a
// standby.
func (v *Verdict) apply(c Condition) {
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
