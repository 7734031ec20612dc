package relay

import (
	"time"

	"github.com/jackc/pglogrepl"
)

// Phase is what the relay is doing, in one word.
type Phase string

// The phases. Only Snapshotting, Streaming and Standby are ready.
const (
	Starting     Phase = "starting"    // first session not yet open
	Snapshotting Phase = "snapshot"    // publishes the rows from before the slot
	Streaming    Phase = "streaming"   // uses the slot and publishes
	Standby      Phase = "standby"     // another process uses the slot; waits to take over
	BackingOff   Phase = "backing_off" // the last session failed; the next is due
	Paused       Phase = "paused"      // the slot is released until the relay is resumed
	Draining     Phase = "draining"    // stops; waits for what is in flight
	Stopped      Phase = "stopped"     // ended cleanly
	Halted       Phase = "halted"      // ended by an error that a new session cannot fix
)

// Ready reports whether the relay does its work, or stands by for it.
func (s State) Ready() bool {
	return s.Phase == Streaming || s.Phase == Snapshotting || s.Phase == Standby
}

// Snapshot is how far the rows that were in the tables before the slot have been published.
type Snapshot struct {
	Table         string  `json:"table,omitempty"` // that is being read; empty: not begun
	Rows          int64   `json:"rows"`            // of all tables, published by any process
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

// Pause is why the relay is paused, and until when.
type Pause struct {
	Since   time.Time `json:"since"`
	Until   time.Time `json:"until,omitzero"` // zero: until it is resumed
	Reason  string    `json:"reason,omitempty"`
	StoodBy bool      `json:"stood_by,omitempty"` // another process used the slot when it began
}

// State is a snapshot of the relay. Positions keep their last value while disconnected.
type State struct {
	Phase             Phase         `json:"phase"`
	Since             time.Time     `json:"since"`            // when Phase began
	Error             string        `json:"error,omitempty"`  // of the last session, or empty
	Reason            string        `json:"reason,omitempty"` // of Error: broker_unreachable, ...
	Next              string        `json:"next,omitempty"`   // what to do about Error, in lines
	NextAttempt       time.Time     `json:"next_attempt,omitzero"`
	Sessions          int           `json:"sessions"` // opened so far
	ReceivedLSN       pglogrepl.LSN `json:"received_lsn"`
	AckedLSN          pglogrepl.LSN `json:"acked_lsn"`
	ConfirmedFlushLSN pglogrepl.LSN `json:"confirmed_flush_lsn"` // as last sent to the server
	// LastCommit is the newest commit time that this process had a message acknowledged of.
	LastCommit    time.Time `json:"last_commit,omitzero"`
	InFlight      int       `json:"in_flight"` // messages
	InFlightBytes int64     `json:"in_flight_bytes"`
	OldestUnacked time.Time `json:"oldest_unacked,omitzero"` // commit time of a transaction
	// WaitingSince is since when the sink acknowledged nothing; zero: nothing is in flight.
	WaitingSince time.Time `json:"waiting_since,omitzero"`
	Published    uint64    `json:"published"` // messages acknowledged since the process started
	Paused       Pause     `json:"paused,omitzero"`
	LastProgress time.Time `json:"last_progress"`     // when the session last turned; liveness
	Snapshot     Snapshot  `json:"snapshot,omitzero"` // of this process; zero: none
	Phantoms     Phantoms  `json:"phantoms,omitzero"` // of the last failover; zero: none
}
