package relay

import (
	"time"

	"github.com/jackc/pglogrepl"
)

// Phase is what the relay is doing, in one word.
type Phase string

// The phases. Only Snapshotting, Streaming and Standby are ready.
const (
	Starting Phase = "starting" // first session not yet open
	// publishes the rows that were in the tables before the slot
	Snapshotting Phase = "snapshot"
	Streaming    Phase = "streaming"   // holds the slot and publishes
	Standby      Phase = "standby"     // another process holds the slot; waits to take over
	BackingOff   Phase = "backing_off" // the last session failed; the next is due
	Paused       Phase = "paused"      // the slot is released until the relay is resumed
	Draining     Phase = "draining"    // asked to stop; waits for what is in flight
	Stopped      Phase = "stopped"     // ended cleanly
	Halted       Phase = "halted"      // ended by an error that a new session cannot heal
)

// Ready reports whether the relay does its work, or stands by for it.
func (s State) Ready() bool {
	return s.Phase == Streaming || s.Phase == Snapshotting || s.Phase == Standby
}

// Snapshot is how far the rows that were in the tables before the slot have been published.
type Snapshot struct {
	Table string `json:"table,omitempty"` // that is being read; empty: not begun
	// published so far, over all tables, also by processes before this one
	Rows          int64   `json:"rows"`
	EstimatedRows int64   `json:"estimated_rows"`  // that there are, by the planner
	RowsPerSecond float64 `json:"rows_per_second"` // since this session began
}

// Percent is at most 99 while it is under way: the number of rows is estimated.
func (s Snapshot) Percent() int {
	if s.EstimatedRows <= 0 {
		return 0
	}
	return int(min(99, 100*s.Rows/s.EstimatedRows))
}

// Pause is who asked for a pause, and until when.
type Pause struct {
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until,omitzero"` // zero: until it is resumed
	Reason string    `json:"reason,omitempty"`
	// StoodBy says that another process held the slot when the pause began: it is not this relay's
	// to leave.
	StoodBy bool `json:"stood_by,omitempty"`
}

// State is a snapshot of the relay for probes, the status page and the status command.
// Positions keep their last known value while disconnected.
type State struct {
	Phase Phase     `json:"phase"`
	Since time.Time `json:"since"` // when Phase began
	// why the last session ended; empty while streaming, and standing by, which is no failure
	Error string `json:"error,omitempty"`
	// of Error, as in the log: broker_unreachable
	Reason string `json:"reason,omitempty"`
	// what to do about Error, as in the log; may have several lines
	Next              string        `json:"next,omitempty"`
	NextAttempt       time.Time     `json:"next_attempt,omitzero"`
	Sessions          int           `json:"sessions"` // opened so far
	ReceivedLSN       pglogrepl.LSN `json:"received_lsn"`
	AckedLSN          pglogrepl.LSN `json:"acked_lsn"`
	ConfirmedFlushLSN pglogrepl.LSN `json:"confirmed_flush_lsn"` // as last sent to the server
	// commit time of the newest transaction of which this process had a message acknowledged
	LastCommit    time.Time `json:"last_commit,omitzero"`
	InFlight      int       `json:"in_flight"` // messages
	InFlightBytes int64     `json:"in_flight_bytes"`
	// commit time of the oldest transaction not yet acked
	OldestUnacked time.Time `json:"oldest_unacked,omitzero"`
	// since when the sink acknowledged nothing of what is in flight; zero: nothing is
	WaitingSince time.Time `json:"waiting_since,omitzero"`
	// messages acknowledged since the process started
	Published uint64 `json:"published"`
	Paused    Pause  `json:"paused,omitzero"`
	// when the session loop last turned; liveness
	LastProgress time.Time `json:"last_progress"`
	Snapshot     Snapshot  `json:"snapshot,omitzero"` // of this process; zero: none
	// of the last failover that this process went through; zero: none
	Phantoms Phantoms `json:"phantoms,omitzero"`
}
