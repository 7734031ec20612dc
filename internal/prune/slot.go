package prune

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

const selectPositions = `SELECT pg_catalog.pg_current_wal_insert_lsn()::text,
	pg_catalog.pg_current_wal_flush_lsn()::text`

// selectSlot reads the slot, who streams from it, and when its counters were reset. A view of the
// statistics shows what a session may see.
const selectSlot = `SELECT pg_catalog.to_jsonb(s), r.pid, r.backend_start, d.stats_reset
	FROM pg_catalog.pg_replication_slots s
	LEFT JOIN pg_catalog.pg_stat_replication r ON r.pid = s.active_pid
		AND r.state IN ('catchup', 'streaming')
	LEFT JOIN pg_catalog.pg_stat_replication_slots d ON d.slot_name = s.slot_name
	WHERE s.slot_name = $1`

// stream is a slot as it was read, with what distinguishes it from another one of the same name.
type stream struct {
	slot.Slot
	position  pglogrepl.LSN // end of the WAL, read before the slot was
	flushed   pglogrepl.LSN // of it, what the walsender can send
	walsender walsender
	resetAt   time.Time // stats_reset; zero: not known
}

// walsender is a session that streams from the slot. A slot in use cannot be dropped, so the slot
// is the same as long as the session is.
type walsender struct {
	PID   int32     `json:"pid,omitempty"` // zero: none
	Start time.Time `json:"start,omitzero"`
}

// readStream reads a slot that a relay can stream from. Errors are those of slot.Get and
// slot.Verify.
func readStream(ctx context.Context, conn *pgx.Conn, name string) (*stream, error) {
	s := &stream{}
	var insert, flush string
	err := conn.QueryRow(ctx, selectPositions).Scan(&insert, &flush)
	if err == nil {
		s.position, err = postgres.ParseLSN(insert)
	}
	if err == nil {
		s.flushed, err = postgres.ParseLSN(flush)
	}
	if err != nil {
		return nil, fmt.Errorf("read the end of the WAL: %w", postgres.Error(err))
	}
	var row slot.CatalogRow
	var pid *int32
	var start, reset *time.Time
	err = conn.QueryRow(ctx, selectSlot, name).Scan(&row, &pid, &start, &reset)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, slot.NotFound(name)
	}
	if err != nil {
		return nil, postgres.Wrap(err, "read slot %q", name)
	}
	s.Slot = row.Parse()
	if pid != nil && start != nil {
		s.walsender = walsender{*pid, start.UTC()}
	}
	if reset != nil {
		s.resetAt = reset.UTC()
	}
	if s.Unfinished() {
		return nil, slot.NotFound(name)
	}
	return s, slot.Verify(s.Slot, conn.Config().Database)
}

// identity is what a look saves of the slot, to recognise it later.
type identity struct {
	// Position is an end of the WAL that was read before the slot was: a slot that is created later
	// begins there or behind.
	Position  postgres.TextLSN `json:"position"`
	Walsender walsender        `json:"walsender"`
	ResetAt   time.Time        `json:"reset_at,omitzero"`
}

func (s *stream) identity() identity {
	return identity{postgres.TextLSN(s.position), s.walsender, s.resetAt}
}

// is reports whether s is certainly the slot of an earlier identity. A slot that was dropped and
// made again
//
//   - keeps WAL from its creation on, and is confirmed from there on, both behind Position,
//   - has another session: the one before ended before the drop,
//   - has counters that were never reset. Before PostgreSQL 15 a datagram does that, which may be
//     lost, so there it proves nothing.
func (s *stream) is(was identity, major int) bool {
	position := pglogrepl.LSN(was.Position)
	switch {
	case s.RestartLSN != 0 && s.RestartLSN < position, s.ConfirmedFlushLSN <= position:
		return true
	case s.walsender.PID != 0 && s.walsender.PID == was.Walsender.PID &&
		s.walsender.Start.Equal(was.Walsender.Start):
		return true
	}
	return major >= 15 && !was.ResetAt.IsZero() && s.resetAt.Equal(was.ResetAt)
}
