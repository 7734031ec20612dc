package monitor

import (
	"slices"

	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/slot"
)

// Export returns the export function of a Monitor, which sets the slot's series. A failed
// observation leaves them as they are; postrider_slot_observed_timestamp_seconds has their time.
func Export(m *metrics.Set) func(Observation) {
	return func(o Observation) {
		if o.Slot.Error != "" {
			m.SlotObserveErrors.Inc()
			return
		}
		if o.Slot.Lost() {
			o = onlyLost(o)
		}
		exportSlot(m, o.Slot)
		exportServer(m, o)
		exportForecast(m, o)
		exportOthers(m, o.Others)
	}
}

// onlyLost removes from the Observation of a lost slot what other alerts would call a danger. The
// server keeps no WAL for it, even where PostgreSQL 18 has left its restart_lsn, and ignores its
// catalog_xmin.
func onlyLost(o Observation) Observation {
	o.Slot.LagBytes, o.Slot.RetainedBytes, o.CatalogXminAge = nil, nil, nil
	o.Blockers, o.Forecast.Loss.Seconds = nil, nil
	return o
}

func exportSlot(m *metrics.Set, s slot.Status) {
	m.SlotActive.SetBool(s.Active)
	m.SlotConfirmedFlushLSN.SetLSN(s.ConfirmedFlushLSN)
	m.SlotRestartLSN.SetLSN(s.RestartLSN)
	m.SlotServerWALLSN.SetLSN(s.CurrentWALLSN)
	set(m.SlotLagBytes, s.LagBytes)
	set(m.SlotRetainedBytes, s.RetainedBytes)
	set(m.SlotSafeWALBytes, s.SafeWALSize)
	m.SlotWALStatus.Set(s.WALStatus)
	m.SlotInactiveSince.SetTime(s.InactiveSince)
	m.SlotConflicting.SetBool(s.Conflicting)
	m.SlotFailover.SetBool(s.Failover)
	m.SlotSynced.SetBool(s.Synced)
	if s.PublicationOK != nil {
		m.SlotPublicationOK.SetBool(*s.PublicationOK)
	}
	m.SlotInvalidated.Replace()
	if s.InvalidationReason != "" {
		m.SlotInvalidated.Replace(metrics.Sample(1, s.InvalidationReason))
	}
	m.SlotObserved.SetTime(s.ObservedAt)
}

func exportServer(m *metrics.Set, o Observation) {
	set(m.SlotWALLimitBytes, o.Limit.Effective)
	set(m.SlotCatalogXminAge, o.CatalogXminAge)
	m.SlotStandbyBlocked.Clear()
	if len(o.Standbys) > 0 {
		m.SlotStandbyBlocked.SetBool(slices.ContainsFunc(o.Standbys,
			func(s StandbySlot) bool { return s.Blocks }))
	}
	known := map[string]bool{}
	var oldest []metrics.OptionalSample
	for _, b := range o.Blockers { // the oldest first
		if !known[b.Kind] {
			known[b.Kind] = true
			oldest = append(oldest, metrics.Sample(float64(b.Since.UnixMilli())/1e3, b.Kind))
		}
	}
	m.SlotOldestBlocker.Replace(oldest...)
	var spilled, spills, streamed, decoded *int64 // nil: the slot was never read from
	if d := o.Decoding; d != nil {
		spilled, spills = &d.SpillBytes, &d.SpillTransactions
		streamed, decoded = &d.StreamBytes, &d.TotalBytes
	}
	set(m.SlotSpillBytes, spilled)
	set(m.SlotSpillTransactions, spills)
	set(m.SlotStreamBytes, streamed)
	set(m.SlotDecodedBytes, decoded)
	if o.Clock != nil {
		m.SlotClockSkew.Set(float64(o.Clock.Skew))
	}
}

func exportForecast(m *metrics.Set, o Observation) {
	r := o.Rates
	m.SlotWALRate.Replace(sample(sample(nil, r.WAL5m, "5m"), r.WAL1h, "1h")...)
	m.SlotDrainRate.Replace(sample(sample(nil, r.Drain5m, "5m"), r.Drain1h, "1h")...)
	set(m.SlotTimeToLoss, o.Forecast.Loss.Seconds)
	set(m.SlotTimeToDiskFull, o.Forecast.DiskFull.Seconds)
	set(m.SlotCatchUp, o.Forecast.CatchUp.Seconds)
}

// exportOthers leaves out a lost slot, which keeps nothing even where PostgreSQL 18 has left its
// restart_lsn, and the synchronized copy of a slot, which is inactive until a failover.
func exportOthers(m *metrics.Set, others []slot.Status) {
	var active, retained, safe []metrics.OptionalSample
	for _, s := range others {
		if s.Lost() || s.Synced {
			continue
		}
		value := 0.0
		if s.Active {
			value = 1
		}
		active = append(active, metrics.Sample(value, s.Name))
		retained = sample(retained, s.RetainedBytes, s.Name)
		safe = sample(safe, s.SafeWALSize, s.Name)
	}
	m.SlotOtherActive.Replace(active...)
	m.SlotOtherRetained.Replace(retained...)
	m.SlotOtherSafeWAL.Replace(safe...)
}

// sample appends a sample, unless n is nil.
func sample[N int64 | float64](to []metrics.OptionalSample, n *N,
	label string) []metrics.OptionalSample {
	if n == nil {
		return to
	}
	return append(to, metrics.Sample(float64(*n), label))
}

func set[N int64 | float64](o *metrics.Optional, n *N) {
	if n == nil {
		o.Clear()
		return
	}
	o.Set(float64(*n))
}
