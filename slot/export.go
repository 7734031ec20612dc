package slot

import "postrider/metrics"

// Export returns an observer for a Watcher that sets the slot's series. When an observation did not succeed the positions stay,
// and postrider_slot_observed_timestamp_seconds tells their age.
func Export(m *metrics.Set) func(Status) {
	return func(s Status) {
		if s.Error != "" {
			m.SlotObserveErrors.Inc()
			return
		}
		m.SlotActive.SetBool(s.Active)
		m.SlotConfirmedFlushLSN.SetLSN(s.ConfirmedFlushLSN)
		m.SlotRestartLSN.SetLSN(s.RestartLSN)
		m.SlotServerWALLSN.SetLSN(s.CurrentWALLSN)
		set(m.SlotLagBytes, s.LagBytes)
		set(m.SlotRetainedBytes, s.RetainedBytes)
		set(m.SlotSafeWALBytes, s.SafeWALSize)
		m.SlotWALStatus.Set(s.WALStatus)
		if s.PublicationOK != nil {
			m.SlotPublicationOK.SetBool(*s.PublicationOK)
		}
		m.SlotObserved.SetTime(s.ObservedAt)
	}
}

func set(o *metrics.Optional, bytes *int64) {
	if bytes == nil {
		o.Clear()
		return
	}
	o.Set(float64(*bytes))
}
