package slot

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
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
	Synced   bool `json:"synced"` // 17: this is such a copy
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

// CatalogRow is the row as JSON: the columns differ from version to version, and the members of an
// object may be missing.
type CatalogRow struct {
	Slot
	Name              string  `json:"slot_name"`
	CatalogXmin       *string `json:"catalog_xmin"`
	RestartLSN        *string `json:"restart_lsn"`
	ConfirmedFlushLSN *string `json:"confirmed_flush_lsn"`
}

// Parse is the Slot with the columns that have another form.
func (r CatalogRow) Parse() (Slot, error) {
	s := r.Slot
	s.Name = r.Name
	var err error
	if r.CatalogXmin != nil {
		xmin, err := strconv.ParseUint(*r.CatalogXmin, 10, 32)
		if err != nil {
			return Slot{}, fmt.Errorf("catalog_xmin: %w", err)
		}
		s.CatalogXmin = uint32(xmin)
	}
	if s.RestartLSN, err = postgres.ParseOptionalLSN(r.RestartLSN); err != nil {
		return Slot{}, err
	}
	s.ConfirmedFlushLSN, err = postgres.ParseOptionalLSN(r.ConfirmedFlushLSN)
	return s, err
}

// CurrentLSNSQL is the position at which the server writes, or on a standby replays.
const CurrentLSNSQL = `CASE WHEN pg_catalog.pg_is_in_recovery() THEN
	pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_lsn() END`

const selectSlots = `SELECT pg_catalog.to_jsonb(s), (` + CurrentLSNSQL +
	`)::text FROM pg_catalog.pg_replication_slots s`

// Get reads one slot, with the server's position. ErrNotFound if there is none of this name.
func Get(ctx context.Context, conn *pgx.Conn, name string) (Status, error) {
	found, err := query(ctx, conn, selectSlots+` WHERE s.slot_name = $1`, name)
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
		Err: &diagnosis{fmt.Sprintf("slot %q does not exist", name), []error{ErrNotFound}},
		WAL: "nothing is kept for the relay",
		Fix: "postrider slot list\nif it was the relay's, and it was dropped, look which rows were " +
			"not delivered:\npostrider recover",
	}
}

// List reads all slots of the server, physical ones and those of other databases too, by name.
func List(ctx context.Context, conn *pgx.Conn) ([]Status, error) {
	found, err := query(ctx, conn, selectSlots+` ORDER BY s.slot_name`)
	if err != nil {
		return nil, fmt.Errorf("list slots: %w", err)
	}
	return found, nil
}

func query(ctx context.Context, conn *pgx.Conn, sql string, args ...any) ([]Status, error) {
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return nil, postgres.Error(err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Status, error) {
		var document []byte
		var current *string
		if err := row.Scan(&document, &current); err != nil {
			return Status{}, err
		}
		var r CatalogRow
		if err := json.Unmarshal(document, &r); err != nil {
			return Status{}, err
		}
		s, err := r.Parse()
		if err != nil {
			return Status{}, err
		}
		currentLSN, err := postgres.ParseOptionalLSN(current)
		return NewStatus(s, currentLSN, time.Now()), err
	})
	return found, postgres.Error(err)
}

// Drop removes a slot that no session reads from: the WAL it keeps is released.
// replication.ErrSlotInUse if it is active.
func Drop(ctx context.Context, conn *pgx.Conn, name string) error {
	if _, err := conn.Exec(ctx, `SELECT pg_catalog.pg_drop_replication_slot($1)`, name); err != nil {
		return fmt.Errorf("drop slot %q: %w", name, commandError(ctx, conn, err, name))
	}
	return nil
}

// Advance moves the confirmed position of an inactive slot forward, at most to the server's own,
// and returns where it then stands. Rows in between are never delivered.
func Advance(ctx context.Context, conn *pgx.Conn, name string,
	to pglogrepl.LSN) (pglogrepl.LSN, error) {
	var end string
	err := conn.QueryRow(ctx, `SELECT end_lsn::text FROM pg_catalog.pg_replication_slot_advance($1,
		$2::pg_catalog.pg_lsn)`, name, to.String()).Scan(&end)
	if err != nil {
		return 0, fmt.Errorf("advance slot %q to %s: %w", name, to, commandError(ctx, conn, err, name))
	}
	return postgres.ParseLSN(end)
}
