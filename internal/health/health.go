// Package health gives the one answer to "is it well?": conditions, each with its reason, what it means for the WAL, and what to type next,
// and the verdict that follows from the gravest. Judge is pure: no I/O, no clock. The conditions carry the names of the alerts in
// deploy/prometheus and of the headings in docs/RUNBOOKS.md, so that page, status, log, notification and rule speak of the same thing in
// the same words.
//
//	health.go    Judge: the verdict
//	phase.go     what the phase of the relay says
//	relay.go     conditions of the relay
//	retention.go WAL that is kept
//	loss.go      the slot or the disk is about to be lost
//	culprit.go   who keeps WAL from being removed
//	others.go    other slots of the server
//	server.go    conditions of the server, and of looking at it
//	phantoms.go  events of transactions that a failover lost
//	watcher.go   how long conditions have held, for log and metrics
//	units.go     bytes and durations for people
//	config.go    the section [health]
package health

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/monitor"
)

// Verdict is the state, with the gravest of the conditions behind it.
type Verdict struct {
	State      string      `json:"state"`                // ok, degraded, failing or standby
	Reason     string      `json:"reason"`               // one sentence
	WAL        string      `json:"wal,omitempty"`        // what it means for the WAL that PostgreSQL keeps; empty: nothing out of the ordinary
	Next       string      `json:"next,omitempty"`       // command or SQL to type next, one a line, a remark behind # or --; or a sentence
	Runbook    string      `json:"runbook,omitempty"`    // heading in docs/RUNBOOKS.md, without the #; empty: none
	Conditions []Condition `json:"conditions,omitempty"` // all that hold, the gravest first
}

// ChangeHints replaces what is to be typed, of the verdict and of its conditions.
func (v *Verdict) ChangeHints(change func(hint string) string) {
	v.Next = change(v.Next)
	for i := range v.Conditions {
		v.Conditions[i].Next = change(v.Conditions[i].Next)
	}
}

// Condition is something that is not as it should be. A Verdict has at most one of each name.
type Condition struct {
	Name     string    `json:"name"` // of the alert: PostriderSlotNearLoss
	Severity Severity  `json:"severity"`
	Reason   string    `json:"reason"` // one sentence; figures in it change from look to look
	WAL      string    `json:"wal,omitempty"`
	Next     string    `json:"next,omitempty"`
	Cause    string    `json:"culprit,omitempty"` // who it is because of: "transaction of pid 4711 (psql)", "slot other", "kafka at kafka-1:9092", "paused relay"
	Since    time.Time `json:"since,omitzero"`    // since when it holds, as far as known; a Watcher fills in what is not
	// For is how long it has to hold before somebody is told; it is part of the verdict at once.
	For time.Duration `json:"-"`
}

// Input is what a verdict rests on.
type Input struct {
	Now         time.Time
	Relay       relay.State         // zero: no relay answered
	Observation monitor.Observation // zero: nobody looked at the server
	Sink        string              // where messages go, as people call it: "kafka at kafka-1:9092"; empty: not known
	StartError  StartError          // what would keep a relay from streaming, where none answered; zero: nothing, or not looked at
	Config      Config
}

// StartError is why a relay that was started now would not stream.
type StartError struct {
	Reason string // as the relay itself would say it
	WAL    string
	Next   string
	Lost   bool // it is that the slot is lost, which is a condition of its own
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

// The names of the conditions.
const (
	SlotLost          = "PostriderSlotLost"
	SlotNearLoss      = "PostriderSlotNearLoss"
	TimeToLoss        = "PostriderTimeToLoss"
	TimeToDiskFull    = "PostriderTimeToDiskFull"
	NotReady          = "PostriderNotReady"
	Stuck             = "PostriderStuck"
	StandbyGate       = "PostriderStandbyGate"
	PublicationBroken = "PostriderPublicationBroken"
	PhantomEvents     = "PostriderPhantomEvents"
	Paused            = "PostriderPaused"
	SlotInactive      = "PostriderSlotInactive"
	HeldByTransaction = "PostriderHeldByTransaction"
	OtherSlot         = "PostriderOtherSlot"
	Backlog           = "PostriderBacklog"
	LagHigh           = "PostriderLagHigh"
	CatalogXminAge    = "PostriderCatalogXminAge"
	ObservationOld    = "PostriderObservationOld"
	ClockSkew         = "PostriderClockSkew"
	SlotExtended      = "PostriderSlotExtended"
)

// rules find the conditions, in the order in which they count among those of one severity: what can lose rows, then what keeps rows from being
// relayed, then what follows from that. A judge returns the zero Condition if its condition does not hold.
var rules = []struct {
	name  string
	judge func(*facts) Condition
}{
	{SlotLost, judgeLost},
	{SlotNearLoss, judgeNearLoss},
	{TimeToLoss, judgeTimeToLoss},
	{TimeToDiskFull, judgeTimeToDiskFull},
	{NotReady, judgeNotReady},
	{Stuck, judgeStuck},
	{StandbyGate, judgeStandbys},
	{PublicationBroken, judgePublication},
	{PhantomEvents, judgePhantoms},
	{Paused, judgePaused},
	{SlotInactive, judgeInactive},
	{HeldByTransaction, judgeHeld},
	{OtherSlot, judgeOthers},
	{Backlog, judgeBacklog},
	{LagHigh, judgeLag},
	{CatalogXminAge, judgeXminAge},
	{ObservationOld, judgeObservation},
	{ClockSkew, judgeClock},
	{SlotExtended, judgeExtended},
}

// Names returns the name of every condition there is.
func Names() []string {
	names := make([]string, len(rules))
	for i, r := range rules {
		names[i] = r.name
	}
	return names
}

// Runbook is the heading in docs/RUNBOOKS.md that a condition of this name has, as it stands behind the # of a link.
func Runbook(name string) string { return strings.ToLower(name) }

// facts is an Input with what several rules ask of it.
type facts struct {
	Input
	slot       slot.Status
	serverTime time.Time // now, by the server's clock: for the times that it gave
	cause      cause     // why WAL is kept for the slot
}

// Judge finds all conditions that hold, and the verdict of the gravest.
func Judge(in Input) Verdict {
	f := &facts{Input: in, slot: in.Observation.Slot, serverTime: in.Now}
	if c := in.Observation.Clock; c != nil {
		f.serverTime = in.Now.Add(c.Skew.Duration())
	}
	f.cause = f.findCause()
	v := judgePhase(f)
	for _, r := range rules {
		if c := r.judge(f); c.Severity != "" {
			c.Name = r.name
			v.Conditions = append(v.Conditions, c)
		}
	}
	slices.SortStableFunc(v.Conditions, func(a, b Condition) int { return cmp.Compare(gravity[b.Severity], gravity[a.Severity]) })
	if len(v.Conditions) > 0 {
		v.take(v.Conditions[0])
	}
	return v
}

var gravity = map[Severity]int{Info: 0, Warning: 1, Critical: 2}

// take makes the gravest condition the reason. A relay that stands by is degraded by nothing that it does not do itself.
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
