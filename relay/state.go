package relay

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/internal/ratelimit"
	"github.com/postrider/postrider/sink"
)

// Phase is what the relay is doing.
type Phase string

// The phases. Only Snapshotting, Streaming and Standby are ready.
const (
	Starting     Phase = "starting"    // no session yet since the start or since a pause
	Snapshotting Phase = "snapshot"    // publishes the rows from before the slot
	Streaming    Phase = "streaming"   // uses the slot and publishes
	Standby      Phase = "standby"     // another process uses the slot; waits to take over
	BackingOff   Phase = "backing_off" // the last session failed; waits before the next
	Paused       Phase = "paused"      // the slot is released until the relay is resumed
	Draining     Phase = "draining"    // stops; waits for messages in flight
	Stopped      Phase = "stopped"     // ended cleanly
	Halted       Phase = "halted"      // ended by an error that a new session cannot fix
)

// Ready reports whether the relay publishes or stands by.
func (s State) Ready() bool {
	return s.Phase == Streaming || s.Phase == Snapshotting || s.Phase == Standby
}

// Snapshot is the progress of publishing the rows that were in the tables before the slot.
type Snapshot struct {
	Table         string  `json:"table,omitempty"` // being read; empty: not begun
	Rows          int64   `json:"rows"`            // of all tables, published by any process
	EstimatedRows int64   `json:"estimated_rows"`  // of all tables, by the planner
	RowsPerSecond float64 `json:"rows_per_second"` // since this session began
}

// Percent is the progress in percent: at most 99, because the number of rows is estimated.
func (s Snapshot) Percent() int {
	if s.EstimatedRows <= 0 {
		return 0
	}
	return int(min(99, 100*s.Rows/s.EstimatedRows))
}

// Pause has the reason and the times of a pause.
type Pause struct {
	Since   time.Time `json:"since"`
	Until   time.Time `json:"until,omitzero"` // zero: until it is resumed
	Reason  string    `json:"reason,omitempty"`
	StoodBy bool      `json:"stood_by,omitempty"` // another process used the slot when it began
}

// State is a snapshot of the relay. Positions keep their last value while disconnected.
type State struct {
	Phase       Phase     `json:"phase"`
	Since       time.Time `json:"since"`            // when Phase began
	Error       string    `json:"error,omitempty"`  // of the last session, or empty
	Reason      string    `json:"reason,omitempty"` // of Error: broker_unreachable, ...
	Next        string    `json:"next,omitempty"`   // what to do about Error, in lines
	NextAttempt time.Time `json:"next_attempt,omitzero"`
	Sessions    int       `json:"sessions"` // opened so far
	// SystemID is the server's system identifier; empty before the first session.
	SystemID          string        `json:"system_id,omitempty"`
	ReceivedLSN       pglogrepl.LSN `json:"received_lsn"`
	AckedLSN          pglogrepl.LSN `json:"acked_lsn"`
	ConfirmedFlushLSN pglogrepl.LSN `json:"confirmed_flush_lsn"` // as last sent to the server
	// LastCommit is the newest commit time of a message acknowledged to this process.
	LastCommit    time.Time `json:"last_commit,omitzero"`
	InFlight      int       `json:"in_flight"` // messages
	InFlightBytes int64     `json:"in_flight_bytes"`
	OldestUnacked time.Time `json:"oldest_unacked,omitzero"` // commit time of a transaction
	// WaitingSince is when the sink last acknowledged a message; zero: nothing is in flight.
	WaitingSince time.Time `json:"waiting_since,omitzero"`
	// Stalled are the partitions that acknowledge nothing; zero: there are none, or the sink does not
	// know.
	Stalled      sink.Stalled `json:"stalled,omitzero"`
	Published    uint64       `json:"published"` // messages acknowledged since the process started
	Paused       Pause        `json:"paused,omitzero"`
	LastProgress time.Time    `json:"last_progress"`     // of the session; for liveness
	Snapshot     Snapshot     `json:"snapshot,omitzero"` // of this process; zero: none
	Phantoms     Phantoms     `json:"phantoms,omitzero"` // of the last failover; zero: none
	// Rate has the limits of the rate; zero: there are none.
	Rate ratelimit.State `json:"rate,omitzero"`
}

// State returns a snapshot. Safe for concurrent use.
func (r *Relay) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	st := r.state
	if s := r.session; s != nil {
		st.ReceivedLSN, st.AckedLSN = s.stream.ReceivedLSN(), s.window.ackedLSN()
		st.ConfirmedFlushLSN = s.stream.ConfirmedFlushLSN()
		st.InFlight, st.InFlightBytes, st.OldestUnacked = s.window.inFlight()
		if st.InFlight > 0 {
			st.WaitingSince = s.lastAck.get()
		}
		if staller, ok := s.sink.(sink.Staller); ok {
			st.Stalled = staller.Stalled()
		}
		st.Published += s.acknowledged.Load()
		st.LastProgress = s.lastProgress()
		st.LastCommit = r.recent.lastCommit()
		r.state.LastCommit, r.state.LastProgress = st.LastCommit, st.LastProgress
		r.state.ReceivedLSN, r.state.AckedLSN = st.ReceivedLSN, st.AckedLSN
		r.state.ConfirmedFlushLSN = st.ConfirmedFlushLSN
	} else if st.Phase != Halted && st.Phase != Stopped {
		st.LastProgress = time.Now() // a wait outside of a session is no hang
	}
	st.Rate = r.parts.Limiter.State()
	return st
}

// lastProgress is when the pump last went on, and now while it is in a call that bounds its time,
// to the sink or to a schema registry: many new subjects take long, one after the other.
func (s *session) lastProgress() time.Time {
	if s.inSink.Load() {
		return time.Now()
	}
	last := s.progress.get()
	if requested := s.router.Requested(); requested.After(last) {
		return requested
	}
	return last
}

// instant is a time for several goroutines. It keeps the monotonic reading, which a number of
// nanoseconds does not have: without it a step of the wall clock would be taken for a hang.
type instant struct {
	mu sync.Mutex
	at time.Time
}

func (i *instant) set(at time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.at = at
}

func (i *instant) get() time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.at
}

// enter sets the phase and the error; nil clears it.
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

// keepGauges sets the gauges once a second until ctx ends.
func (r *Relay) keepGauges(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.setGauges()
		case <-ctx.Done():
			return
		}
	}
}

// setGauges sets the gauges from the State, and counts received bytes.
func (r *Relay) setGauges() {
	st, m := r.State(), r.parts.Metrics
	if st.ReceivedLSN > 0 {
		m.ReceivedLSN.SetLSN(st.ReceivedLSN)
		m.AckedLSN.SetLSN(st.AckedLSN)
		m.ConfirmedFlushLSN.SetLSN(st.ConfirmedFlushLSN)
	}
	r.mu.Lock()
	if s := r.session; s != nil {
		received := s.stream.ReceivedBytes()
		m.ReceivedBytes.Add(float64(received - r.reportedBytes))
		r.reportedBytes = received
	}
	r.mu.Unlock()
	m.InFlight.Set(float64(st.InFlight))
	m.Stalled.Set(float64(st.Stalled.Partitions))
	m.InFlightBytes.Set(float64(st.InFlightBytes))
	m.LastProgress.SetTime(st.LastProgress)
	setBool(m.Ready, st.Ready())
	if st.OldestUnacked.IsZero() {
		m.OldestUnacked.Clear()
	} else {
		m.OldestUnacked.SetTime(st.OldestUnacked)
	}
}
