package monitor

import (
	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/slot"
)

// Export returns an observer for a Monitor that sets the slot's series. When an observation did
// not succeed all of them stay as they are, and postrider_slot_observed_timestamp_seconds tells
// their age.
func Export(m *metrics.Set) func(Observation) {
	return func(o Observation) {
		if o.Slot.Error != "" {
			m.SlotObserveErrors.Inc()
			return
		}
		exportSlot(m, o.Slot)
		exportServer(m, o)
		exportForecast(m, o)
		exportOthers(m, o.Others)
	}
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
		blocked := false
		for _, g := range o.Standbys {
			blocked = blocked || g.Blocks
		}
		m.SlotStandbyBlocked.SetBool(blocked)
	}
	oldest := map[string]metrics.OptionalSample{}
	for _, h := range o.Blockers { // the oldest first
		if _, known := oldest[h.Kind]; !known {
			oldest[h.Kind] = metrics.Sample(float64(h.Since.UnixMilli())/1e3, h.Kind)
		}
	}
	var held []metrics.OptionalSample
	for _, s := range oldest {
		held = append(held, s)
	}
	m.SlotOldestBlocker.Replace(held...)
	if d := o.Decoding; d != nil {
		m.SlotSpillBytes.Set(float64(d.SpillBytes))
		m.SlotSpillTransactions.Set(float64(d.SpillTransactions))
		m.SlotStreamBytes.Set(float64(d.StreamBytes))
		m.SlotDecodedBytes.Set(float64(d.TotalBytes))
	} else { // a slot that was never read from
		for _, series := range []*metrics.Optional{m.SlotSpillBytes, m.SlotSpillTransactions,
			m.SlotStreamBytes, m.SlotDecodedBytes} {
			series.Clear()
		}
	}
	if o.Clock != nil {
		m.SlotClockSkew.Set(float64(o.Clock.Skew))
	}
}

func exportForecast(m *metrics.Set, o Observation) {
	window := func(v *metrics.OptionalVec, in5m, in1h *float64) {
		var samples []metrics.OptionalSample
		if in5m != nil {
			samples = append(samples, metrics.Sample(*in5m, "5m"))
		}
		if in1h != nil {
			samples = append(samples, metrics.Sample(*in1h, "1h"))
		}
		v.Replace(samples...)
	}
	window(m.SlotWALRate, o.Rates.WAL5m, o.Rates.WAL1h)
	window(m.SlotDrainRate, o.Rates.Drain5m, o.Rates.Drain1h)
	estimate := func(series *metrics.Optional, e Estimate) {
		if e.Seconds == nil {
			series.Clear()
			return
		}
		series.Set(*e.Seconds)
	}
	estimate(m.SlotTimeToLoss, o.Forecast.Loss)
	estimate(m.SlotTimeToDiskFull, o.Forecast.DiskFull)
	estimate(m.SlotCatchUp, o.Forecast.CatchUp)
}

func exportOthers(m *metrics.Set, others []slot.Status) {
	var active, retained, safe []metrics.OptionalSample
	for _, s := range others {
		streams := 0.0
		if s.Active {
			streams = 1
		}
		active = append(active, metrics.Sample(streams, s.Name))
		if s.RetainedBytes != nil {
			retained = append(retained, metrics.Sample(float64(*s.RetainedBytes), s.Name))
		}
		if s.SafeWALSize != nil {
			safe = append(safe, metrics.Sample(float64(*s.SafeWALSize), s.Name))
		}
	}
	m.SlotOtherActive.Replace(active...)
	m.SlotOtherRetained.Replace(retained...)
	m.SlotOtherSafeWAL.Replace(safe...)
}

func set(o *metrics.Optional, n *int64) {
	if n == nil {
		o.Clear()
		return
	}
	o.Set(float64(*n))
}
