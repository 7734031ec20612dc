package slot

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

// Plugin is the output plugin whose messages the decoder reads.
const Plugin = "pgoutput"

// Slot is a row of pg_replication_slots. What the server's version does not have is zero.
type Slot struct {
	Name      string `json:"name"`
	Plugin    string `json:"plugin,omitempty"` // empty for a physical slot
	Database  string `json:"database,omitempty"`
	Temporary bool   `json:"temporary,omitempty"`
	TwoPhase  bool   `json:"two_phase,omitempty"`
	Active    bool   `json:"active"`
	ActivePID int32  `json:"active_pid,omitempty"` // zero: not active

	// No transaction that the slot may still deliver is older, also when it is lost; zero: none.
	CatalogXmin       uint32        `json:"catalog_xmin,omitempty"`
	RestartLSN        pglogrepl.LSN `json:"-"` // oldest WAL the slot keeps; zero: none
	ConfirmedFlushLSN pglogrepl.LSN `json:"-"` // zero: the creation is not finished
	// WALStatus is reserved, extended, unreserved or lost; empty: the slot keeps no WAL.
	WALStatus string `json:"wal_status,omitempty"`
	// SafeWALSize is the bytes that may be written before it can be lost, may be negative; nil: no
	// limit, or lost.
	SafeWALSize *int64 `json:"safe_wal_size,omitempty"`

	// 16: invalidated by recovery on a standby
	Conflicting bool `json:"conflicting,omitempty"`
	// 17: standbys may keep a copy
	Failover bool `json:"failover"`
	Synced   bool `json:"synced"` // 17: this is such a copy, on a standby
	// 17; zero: active, or not known
	InactiveSince      time.Time `json:"inactive_since,omitzero"`
	InvalidationReason string    `json:"invalidation_reason,omitempty"` // 17; empty: valid
}

// Lost reports whether the slot can never be read from again.
func (s Slot) Lost() bool {
	return s.WALStatus == "lost" || s.InvalidationReason != "" || s.Conflicting
}

// Unfinished reports whether the slot is being created: it has no position to read from yet, and
// is gone if its creation is cancelled.
func (s Slot) Unfinished() bool { return s.Plugin != "" && s.ConfirmedFlushLSN == 0 && !s.Lost() }

// CatalogRow is the row as JSON: its columns differ from version to version.
type CatalogRow struct {
	Slot
	Name              string           `json:"slot_name"`
	CatalogXmin       uint32           `json:"catalog_xmin,string"`
	RestartLSN        postgres.TextLSN `json:"restart_lsn"`
	ConfirmedFlushLSN postgres.TextLSN `json:"confirmed_flush_lsn"`
}

// Parse returns the Slot with the columns that have another form.
func (r CatalogRow) Parse() Slot {
	s := r.Slot
	s.Name, s.CatalogXmin = r.Name, r.CatalogXmin
	s.RestartLSN = pglogrepl.LSN(r.RestartLSN)
	s.ConfirmedFlushLSN = pglogrepl.LSN(r.ConfirmedFlushLSN)
	return s
}

// CurrentLSNSQL is the position at which the server writes, or on a standby replays.
const CurrentLSNSQL = `CASE WHEN pg_catalog.pg_is_in_recovery() THEN
	pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_lsn() END`

// RowSQL is the row s of pg_replication_slots as a CatalogRow. A promotion leaves synced set,
// where it means nothing: the slot is a copy no more.
const RowSQL = `CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.to_jsonb(s)
	ELSE pg_catalog.to_jsonb(s) - 'synced' END`

const selectSlots = `SELECT ` + RowSQL + `, (` + CurrentLSNSQL +
	`)::text FROM pg_catalog.pg_replication_slots s`

// Get reads one slot, with the server's position. ErrNotFound if there is none of this name.
func Get(ctx context.Context, conn *pgx.Conn, name string) (Status, error) {
	found, err := postgres.Collect(ctx, conn, readStatus, selectSlots+` WHERE s.slot_name = $1`, name)
	if err != nil {
		return Status{}, fmt.Errorf("read slot %q: %w", name, err)
	}
	if len(found) == 0 {
		return Status{}, NotFound(name)
	}
	return found[0], nil
}

// NotFound is the error of a slot that does not exist.
func NotFound(name string) error {
	return &Error{
		Err: diagnosed(fmt.Sprintf("slot %q does not exist", name), ErrNotFound),
		WAL: "nothing is kept for the relay",
		Fix: "postrider slot list\nif it was the relay's, and it was dropped, look which rows were " +
			"not delivered:\npostrider recover",
	}
}

// List reads all slots of the server, physical ones and those of other databases too, by name.
func List(ctx context.Context, conn *pgx.Conn) ([]Status, error) {
	found, err := postgres.Collect(ctx, conn, readStatus, selectSlots+` ORDER BY s.slot_name`)
	return found, postgres.Wrap(err, "list slots")
}

func readStatus(row pgx.CollectableRow) (Status, error) {
	var r CatalogRow
	var current *string
	if err := row.Scan(&r, &current); err != nil || current == nil {
		return NewStatus(r.Parse(), 0, time.Now()), err
	}
	lsn, err := postgres.ParseLSN(*current)
	return NewStatus(r.Parse(), lsn, time.Now()), err
}

// Drop removes a slot that no session reads from: the WAL it keeps is released.
// replication.ErrSlotInUse if it is active.
func Drop(ctx context.Context, conn *pgx.Conn, name string) error {
	_, err := conn.Exec(ctx, `SELECT pg_catalog.pg_drop_replication_slot($1)`, name)
	return postgres.Wrap(commandError(ctx, conn, err, name), "drop slot %q", name)
}

// Advance moves the confirmed position of an inactive slot forward, at most to the server's own,
// and returns the new one. Rows in between are never delivered.
func Advance(ctx context.Context, conn *pgx.Conn, name string,
	to pglogrepl.LSN) (pglogrepl.LSN, error) {
	end, err := postgres.One[string](ctx, conn, `SELECT end_lsn::text
		FROM pg_catalog.pg_replication_slot_advance($1, $2::pg_catalog.pg_lsn)`, name, to.String())
	if err != nil {
		return 0, fmt.Errorf("advance slot %q to %s: %w", name, to, commandError(ctx, conn, err, name))
	}
	return postgres.ParseLSN(end)
}

// Status is a slot as it was observed, with its distances. Its JSON has positions in PostgreSQL's
// text form, and leaves out what is not known.
type Status struct {
	Slot
	CurrentWALLSN pglogrepl.LSN `json:"-"` // where the server wrote at the time
	// LagBytes is CurrentWALLSN - ConfirmedFlushLSN; nil: not known.
	LagBytes *int64 `json:"lag_bytes,omitempty"`
	// RetainedBytes is CurrentWALLSN - RestartLSN, what is kept for the slot; nil: nothing, or not
	// known.
	RetainedBytes *int64 `json:"retained_bytes,omitempty"`
	// PublicationOK: the publication publishes every table; nil: not looked at.
	PublicationOK *bool `json:"publication_ok,omitempty"`
	// What is wrong with the publication, and what to type next; empty: nothing, or not looked at.
	PublicationProblem string `json:"publication_problem,omitempty"`
	PublicationFix     string `json:"publication_fix,omitempty"`

	ObservedAt time.Time `json:"observed_at,omitzero"` // when, by our clock; zero: never
	// Error is why the last observation failed; the other fields are older then.
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
	return new(max(0, int64(to)-int64(from)))
}

// plain is a Status without methods.
type plain Status

// statusJSON has the positions in PostgreSQL's text form.
type statusJSON struct {
	*plain
	RestartLSN        postgres.TextLSN `json:"restart_lsn,omitzero"`
	ConfirmedFlushLSN postgres.TextLSN `json:"confirmed_flush_lsn,omitzero"`
	CurrentWALLSN     postgres.TextLSN `json:"current_wal_lsn,omitzero"`
}

// MarshalJSON implements json.Marshaler.
func (s Status) MarshalJSON() ([]byte, error) {
	return json.Marshal(statusJSON{
		(*plain)(&s), postgres.TextLSN(s.RestartLSN), postgres.TextLSN(s.ConfirmedFlushLSN),
		postgres.TextLSN(s.CurrentWALLSN),
	})
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Status) UnmarshalJSON(document []byte) error {
	*s = Status{}
	j := statusJSON{plain: (*plain)(s)}
	err := json.Unmarshal(document, &j)
	s.RestartLSN = pglogrepl.LSN(j.RestartLSN)
	s.ConfirmedFlushLSN = pglogrepl.LSN(j.ConfirmedFlushLSN)
	s.CurrentWALLSN = pglogrepl.LSN(j.CurrentWALLSN)
	return err
}

// TemporaryName is the name of a slot that ends with its connection. Slots belong to the whole
// server, and containers often share a process id: the random part distinguishes them.
func TemporaryName(purpose string) string {
	return fmt.Sprintf("postrider_%s_%d_%016x", purpose, os.Getpid(), rand.Uint64())
}
