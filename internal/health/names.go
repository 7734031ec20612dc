package health

import (
	"cmp"
	"strings"
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

// rules find the conditions, in the order in which they count within a severity: what can lose
// rows, then what keeps rows from being relayed, then what follows from that. A judge returns a
// Condition without Severity if there is none. Those with live apply only for a slot that is not
// lost. Judge fills in WAL and Next where a judge leaves them empty.
var rules = []struct {
	name  string
	judge func(*facts) Condition
	live  bool
}{
	{SlotLost, judgeLost, false},
	{SlotNearLoss, judgeNearLoss, true},
	{TimeToLoss, judgeTimeToLoss, true},
	{TimeToDiskFull, judgeTimeToDiskFull, false},
	{NotReady, judgeNotReady, false},
	{Stuck, judgeStuck, false},
	{StandbyGate, judgeStandby, false},
	{PublicationBroken, judgePublication, false},
	{PhantomEvents, judgePhantoms, false},
	{Paused, judgePaused, false},
	{SlotInactive, judgeInactive, true},
	{HeldByTransaction, judgeHeld, true},
	{OtherSlot, judgeOthers, false},
	{Backlog, judgeBacklog, true},
	{LagHigh, judgeLag, false},
	{CatalogXminAge, judgeXminAge, false},
	{ObservationOld, judgeObservation, false},
	{ClockSkew, judgeClock, false},
	{SlotExtended, judgeExtended, true},
}

// Names lists the names of all conditions.
func Names() []string {
	names := make([]string, len(rules))
	for i, r := range rules {
		names[i] = r.name
	}
	return names
}

// Runbook is the heading of a condition in docs/RUNBOOKS.md, as in a link behind the #.
func Runbook(name string) string { return strings.ToLower(name) }

// above is Critical or Warning for a value above a threshold, else empty.
func above[T cmp.Ordered](value, warning, critical T) Severity {
	switch {
	case value > critical:
		return Critical
	case value > warning:
		return Warning
	}
	return ""
}
