package trace

import (
	"context"
	"fmt"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/status"
	"github.com/postrider/postrider/slot"
)

// endLSN is a position of the server's WAL that is behind the commit of every row that was seen:
// a row is visible only when its commit is in the WAL.
type endLSN = pglogrepl.LSN

// selectEnd is the end of what is written, and not only of what is flushed: with
// synchronous_commit off a row is visible before its commit is flushed.
const selectEnd = `SELECT (CASE WHEN pg_catalog.pg_is_in_recovery() THEN
	pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_insert_lsn() END)::text`

// readSlot reads the end of the WAL, and then the slot.
func (s *search) readSlot(ctx context.Context) error {
	text, err := postgres.One[string](ctx, s.conn, selectEnd)
	if err != nil {
		return fmt.Errorf("read the end of the WAL: %w", err)
	}
	if s.end, err = postgres.ParseLSN(text); err != nil {
		return err
	}
	s.slot, err = slot.Get(ctx, s.conn, s.cfg.Slot.Name)
	shown := &Slot{Name: s.cfg.Slot.Name, Server: status.LSN(s.end)}
	s.result.Slot = shown
	if slot.IsMissing(err) {
		s.noSlot, shown.Problem = true, "does not exist"
		return nil
	}
	if err != nil {
		return err
	}
	if s.slot.Lost() {
		shown.Problem = "is lost"
	}
	shown.Active, shown.Confirmed = s.slot.Active, status.LSN(s.slot.ConfirmedFlushLSN)
	if s.end > s.slot.ConfirmedFlushLSN {
		shown.Behind = int64(s.end - s.slot.ConfirmedFlushLSN)
	}
	return nil
}

// passed reports whether the slot will not send the row of an event any more; nil: not known. A
// row has no LSN: with one of a record or a dead letter it is exact. Else it is known of rows of
// transactions that are older than the slot's catalog_xmin, and of all rows if the slot is at the
// end of the WAL.
func (s *search) passed(e *event) *bool {
	if s.noSlot || s.slot.Name == "" {
		return nil
	}
	if e.Commit.LSN != "" {
		if lsn, err := postgres.ParseLSN(e.Commit.LSN); err == nil {
			return new(lsn < s.slot.ConfirmedFlushLSN)
		}
	}
	if e.Row == nil {
		return nil
	}
	// Xids wrap around. One that is 2^31 transactions old has a negative age.
	older := e.age < 0 || s.slot.CatalogXmin != 0 && int32(e.Row.XID-s.slot.CatalogXmin) < 0
	if older || s.end != 0 && s.slot.ConfirmedFlushLSN >= s.end {
		return new(true)
	}
	return nil
}
