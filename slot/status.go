package slot

import (
	"encoding/json"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/internal/postgres"
)

// Status is a slot as it was observed, with the distances an operator asks for. Its JSON has
// positions in PostgreSQL's text form, and leaves out what is not known.
type Status struct {
	Slot
	CurrentWALLSN pglogrepl.LSN // where the server wrote at the time
	LagBytes      *int64        // CurrentWALLSN - ConfirmedFlushLSN; nil: not known
	// CurrentWALLSN - RestartLSN: what is kept for the slot; nil: nothing, or not known
	RetainedBytes *int64
	PublicationOK *bool // the publication brings every table; nil: not looked at
	// What is wrong with the publication, and what to type next; empty: nothing, or not looked at.
	PublicationProblem, PublicationFix string

	ObservedAt time.Time // when, by our clock; zero: never
	Error      string    // why the last observation did not succeed; what stands above is older then
}

func NewStatus(s Slot, current pglogrepl.LSN, now time.Time) Status {
	return Status{
		Slot: s, CurrentWALLSN: current, ObservedAt: now,
		LagBytes: distance(current, s.ConfirmedFlushLSN), RetainedBytes: distance(current, s.RestartLSN),
	}
}

// distance is never negative: on a standby a copied slot can be ahead of what has been replayed.
func distance(to, from pglogrepl.LSN) *int64 {
	if to == 0 || from == 0 {
		return nil
	}
	var n int64
	if to > from {
		n = int64(to - from)
	}
	return &n
}

type statusJSON struct {
	Name               string     `json:"name"`
	Plugin             string     `json:"plugin,omitempty"`
	Database           string     `json:"database,omitempty"`
	Temporary          bool       `json:"temporary,omitempty"`
	TwoPhase           bool       `json:"two_phase,omitempty"`
	Active             bool       `json:"active"`
	ActivePID          int32      `json:"active_pid,omitempty"`
	CatalogXmin        uint32     `json:"catalog_xmin,omitempty"`
	WALStatus          string     `json:"wal_status,omitempty"`
	SafeWALSize        *int64     `json:"safe_wal_size,omitempty"`
	RestartLSN         string     `json:"restart_lsn,omitempty"`
	ConfirmedFlushLSN  string     `json:"confirmed_flush_lsn,omitempty"`
	CurrentWALLSN      string     `json:"current_wal_lsn,omitempty"`
	LagBytes           *int64     `json:"lag_bytes,omitempty"`
	RetainedBytes      *int64     `json:"retained_bytes,omitempty"`
	Conflicting        bool       `json:"conflicting,omitempty"`
	Failover           bool       `json:"failover"`
	Synced             bool       `json:"synced"`
	InactiveSince      *time.Time `json:"inactive_since,omitempty"`
	InvalidationReason string     `json:"invalidation_reason,omitempty"`
	PublicationOK      *bool      `json:"publication_ok,omitempty"`
	PublicationProblem string     `json:"publication_problem,omitempty"`
	PublicationFix     string     `json:"publication_fix,omitempty"`
	ObservedAt         *time.Time `json:"observed_at,omitempty"`
	Error              string     `json:"error,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (s Status) MarshalJSON() ([]byte, error) {
	return json.Marshal(statusJSON{
		Name: s.Name, Plugin: s.Plugin, Database: s.Database, Temporary: s.Temporary,
		TwoPhase: s.TwoPhase,
		Active:   s.Active, ActivePID: s.ActivePID, CatalogXmin: s.CatalogXmin, WALStatus: s.WALStatus,
		SafeWALSize: s.SafeWALSize,
		RestartLSN:  lsnText(s.RestartLSN), ConfirmedFlushLSN: lsnText(s.ConfirmedFlushLSN),
		CurrentWALLSN: lsnText(s.CurrentWALLSN),
		LagBytes:      s.LagBytes, RetainedBytes: s.RetainedBytes, Conflicting: s.Conflicting,
		Failover: s.Failover, Synced: s.Synced,
		InactiveSince: timeOrNil(s.InactiveSince), InvalidationReason: s.InvalidationReason,
		PublicationOK: s.PublicationOK, PublicationProblem: s.PublicationProblem,
		PublicationFix: s.PublicationFix, ObservedAt: timeOrNil(s.ObservedAt), Error: s.Error,
	})
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Status) UnmarshalJSON(document []byte) error {
	var j statusJSON
	if err := json.Unmarshal(document, &j); err != nil {
		return err
	}
	row := CatalogRow{
		Name: j.Name, Plugin: j.Plugin, Database: j.Database, Temporary: j.Temporary,
		TwoPhase: j.TwoPhase,
		Active:   j.Active, ActivePID: j.ActivePID, WALStatus: j.WALStatus, SafeWALSize: j.SafeWALSize,
		RestartLSN: &j.RestartLSN, ConfirmedFlushLSN: &j.ConfirmedFlushLSN, Conflicting: j.Conflicting,
		Failover: j.Failover, Synced: j.Synced, InactiveSince: j.InactiveSince,
		InvalidationReason: j.InvalidationReason,
	}
	read, err := row.Slot()
	if err != nil {
		return err
	}
	read.CatalogXmin = j.CatalogXmin
	current, err := postgres.ParseOptionalLSN(&j.CurrentWALLSN)
	if err != nil {
		return err
	}
	*s = Status{
		Slot: read, CurrentWALLSN: current, LagBytes: j.LagBytes, RetainedBytes: j.RetainedBytes,
		PublicationOK: j.PublicationOK, PublicationProblem: j.PublicationProblem,
		PublicationFix: j.PublicationFix, Error: j.Error,
	}
	if j.ObservedAt != nil {
		s.ObservedAt = *j.ObservedAt
	}
	return nil
}

func lsnText(lsn pglogrepl.LSN) string {
	if lsn == 0 {
		return ""
	}
	return lsn.String()
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
