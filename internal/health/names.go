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

// rules are in the order of precedence within a severity: loss of rows, then what stops the relay,
// then the consequences.
var rules = []struct {
	name  string
	judge func(*facts) Condition // without Severity: none; Judge sets an empty WAL or Next
	live  bool                   // applies only to a slot that is not lost
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
	{CatalogXminAge, judgeXminAge, true},
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

// Runbook returns the anchor of a condition in docs/RUNBOOKS.md.
func Runbook(name string) string { return strings.ToLower(name) }

// above returns Critical or Warning for a value above that threshold, else nothing.
func above[T cmp.Ordered](value, warning, critical T) Severity {
	switch {
	case value > critical:
		return Critical
	case value > warning:
		return Warning
	}
	return ""
}
