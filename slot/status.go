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
	CurrentWALLSN pglogrepl.LSN `json:"-"` // where the server wrote at the time
	// LagBytes is CurrentWALLSN - ConfirmedFlushLSN; nil: not known.
	LagBytes *int64 `json:"lag_bytes,omitempty"`
	// RetainedBytes is CurrentWALLSN - RestartLSN, what is kept for the slot; nil: nothing, or not
	// known.
	RetainedBytes *int64 `json:"retained_bytes,omitempty"`
	// PublicationOK: the publication brings every table; nil: not looked at.
	PublicationOK *bool `json:"publication_ok,omitempty"`
	// What is wrong with the publication, and what to type next; empty: nothing, or not looked at.
	PublicationProblem string `json:"publication_problem,omitempty"`
	PublicationFix     string `json:"publication_fix,omitempty"`

	ObservedAt time.Time `json:"observed_at,omitzero"` // when, by our clock; zero: never
	// Error is why the last observation did not succeed; what stands above is older then.
	Error string `json:"error,omitempty"`
}

// NewStatus is a slot as it was at a moment, when the server wrote at current.
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

// plain is a Status without methods.
type plain Status

// statusJSON has the positions in PostgreSQL's text form.
type statusJSON struct {
	*plain
	RestartLSN        textLSN `json:"restart_lsn,omitzero"`
	ConfirmedFlushLSN textLSN `json:"confirmed_flush_lsn,omitzero"`
	CurrentWALLSN     textLSN `json:"current_wal_lsn,omitzero"`
}

// MarshalJSON implements json.Marshaler.
func (s Status) MarshalJSON() ([]byte, error) {
	return json.Marshal(statusJSON{
		(*plain)(&s), textLSN(s.RestartLSN), textLSN(s.ConfirmedFlushLSN), textLSN(s.CurrentWALLSN),
	})
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Status) UnmarshalJSON(document []byte) error {
	*s = Status{}
	j := statusJSON{plain: (*plain)(s)}
	err := json.Unmarshal(document, &j)
	s.RestartLSN, s.ConfirmedFlushLSN = pglogrepl.LSN(j.RestartLSN),
		pglogrepl.LSN(j.ConfirmedFlushLSN)
	s.CurrentWALLSN = pglogrepl.LSN(j.CurrentWALLSN)
	return err
}

type textLSN pglogrepl.LSN

func (l textLSN) MarshalText() ([]byte, error) { return []byte(pglogrepl.LSN(l).String()), nil }

func (l *textLSN) UnmarshalText(text []byte) error {
	lsn, err := postgres.ParseLSN(string(text))
	*l = textLSN(lsn)
	return err
}
