package relay

import (
	"context"
	"time"
)

// State is a snapshot. Safe for concurrent use.
func (r *Relay) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	st := r.state
	if s := r.session; s != nil {
		st.ReceivedLSN, st.AckedLSN = s.stream.ReceivedLSN(), s.window.ackedLSN()
		st.ConfirmedFlushLSN = s.stream.ConfirmedFlushLSN()
		st.InFlight, st.InFlightBytes, st.OldestUnacked = s.window.load()
		if st.InFlight > 0 {
			st.WaitingSince = time.Unix(0, s.moved.Load())
		}
		st.Published += s.acknowledged.Load()
		if st.LastProgress = time.Now(); !s.waits.Load() {
			st.LastProgress = time.Unix(0, s.progress.Load())
		}
		st.LastCommit = r.recent.lastCommit()
		r.state.LastCommit, r.state.LastProgress = st.LastCommit, st.LastProgress
		r.state.ReceivedLSN, r.state.AckedLSN = st.ReceivedLSN, st.AckedLSN
		r.state.ConfirmedFlushLSN = st.ConfirmedFlushLSN
	} else if st.Phase != Halted && st.Phase != Stopped {
		st.LastProgress = time.Now() // every wait outside a session is bounded
	}
	return st
}

func (r *Relay) enter(p Phase, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state.Phase != p {
		r.state.Phase, r.state.Since = p, time.Now()
	}
	r.state.NextAttempt = time.Time{}
	r.state.Error, r.state.Reason, r.state.Next = "", "", ""
	if err != nil {
		_, r.state.Reason = Classify(err, false)
		r.state.Error, _, r.state.Next = r.parts.Explain(err, r.state)
	}
	r.parts.Metrics.Phase.Set(string(p))
	setBool(r.parts.Metrics.Paused, p == Paused)
}

func setBool(g interface{ Set(float64) }, is bool) {
	value := 0.0
	if is {
		value = 1
	}
	g.Set(value)
}

// keepGauges observes once a second until ctx ends.
func (r *Relay) keepGauges(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.observe()
		case <-ctx.Done():
			return
		}
	}
}

// observe brings the position gauges up to date.
func (r *Relay) observe() {
	st, m := r.State(), r.parts.Metrics
	if st.ReceivedLSN > 0 {
		m.ReceivedLSN.SetLSN(st.ReceivedLSN)
		m.AckedLSN.SetLSN(st.AckedLSN)
		m.ConfirmedFlushLSN.SetLSN(st.ConfirmedFlushLSN)
	}
	r.mu.Lock()
	if s := r.session; s != nil {
		received := s.stream.ReceivedBytes()
		m.ReceivedBytes.Add(float64(received - r.counted))
		r.counted = received
	}
	r.mu.Unlock()
	m.InFlight.Set(float64(st.InFlight))
	m.InFlightBytes.Set(float64(st.InFlightBytes))
	m.LastProgress.SetTime(st.LastProgress)
	setBool(m.Ready, st.Ready())
	if st.OldestUnacked.IsZero() {
		m.OldestUnacked.Clear()
	} else {
		m.OldestUnacked.SetTime(st.OldestUnacked)
	}
}
