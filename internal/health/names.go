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
// Condition without Severity if it does not hold.
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
	{StandbyGate, judgeStandby},
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
