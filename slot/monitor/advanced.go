package monitor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

// Advanced decides whether rows are lost when the slot is confirmed up to confirmed, and this
// process has published only up to acked. It returns nil if another relay may have published the
// rows in between:
//
//   - the slot has decoded since the observation last,
//   - the counters were reset after streamed, when this process last opened a stream, by the
//     server's clock, or
//   - another process held the slot, and the slot has no counters.
//
// Otherwise the slot was recreated or advanced and never sends these rows: the error is a
// *slot.LostError. Empty tables prove that no row is lost only if the slot was never seen to
// decode or to disappear: rows may be deleted as soon as they are written.
func Advanced(ctx context.Context, conn *pgx.Conn, last Observation, tables []string,
	consented bool, acked, confirmed pglogrepl.LSN, streamed time.Time, held bool) error {
	if err := awaitCounters(ctx, conn); err != nil {
		return err
	}
	var transactions int64 // zero for a slot that was never read from
	var since time.Time
	var reset *time.Time
	err := conn.QueryRow(ctx, `SELECT coalesce(d.total_txns, 0), d.stats_reset, `+countedSince+`
		FROM (SELECT) one LEFT JOIN pg_catalog.pg_stat_replication_slots d ON d.slot_name =
		$1`, last.Slot.Name).Scan(&transactions, &reset, &since)
	if err != nil {
		return fmt.Errorf("read the counters of slot %q: %w", last.Slot.Name, postgres.Error(err))
	}
	if since.After(streamed) {
		return nil
	}
	d := last.Decoding
	if d != nil && (!d.countedSince.Equal(since) || reset != nil && reset.After(d.ResetAt) ||
		transactions > 0 && transactions >= d.TotalTransactions) {
		return nil
	}
	recreated := slices.ContainsFunc(last.Events, func(e Event) bool {
		return (e.Code == slotCreated || e.Code == slotRecreated) &&
			e.At.Add(last.Clock.skew()).After(streamed)
	})
	if held && !recreated && (d == nil || d.TotalTransactions == 0) {
		return nil
	}
	lost := &slot.LostError{
		Name: last.Slot.Name, Reason: fmt.Sprintf(
			"another process has recreated it, or advanced it: it begins at %s", confirmed),
		ConfirmedFlushLSN: acked, Advanced: true,
	}
	// Otherwise last is of the new slot, whose catalog_xmin does not show the gap.
	if last.Slot.ConfirmedFlushLSN <= acked {
		lost.CatalogXmin = last.Slot.CatalogXmin
	}
	lost.Gap = slot.MeasureGap(ctx, conn, lost, tables, consented)
	if lost.Gap.Empty() && !recreated && (d == nil || d.TotalTransactions == 0) {
		return nil
	}
	lost.Gap.To = confirmed
	return lost
}

// countersTimeout limits the wait for counters before PostgreSQL 15, which returns stale ones
// after ten seconds.
const (
	countersTimeout  = 15 * time.Second
	countersInterval = 20 * time.Millisecond
)

// ErrStaleCounters is the error of a server that does not update its counters. It is temporary.
var ErrStaleCounters = errors.New("the server writes no new statistics")

// awaitCounters waits until the server's counters are not older than the call. Before PostgreSQL
// 15 they are in a file, which may be half a second old, and be those of a dropped slot. The error
// is ErrStaleCounters if the file is not written: the statistics collector hangs, its directory
// is full, or the clock was put back.
func awaitCounters(ctx context.Context, conn *pgx.Conn) error {
	if postgres.Major(conn) >= 15 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, countersTimeout, ErrStaleCounters)
	defer cancel()
	called, err := postgres.One[time.Time](ctx, conn, `SELECT pg_catalog.clock_timestamp()`)
	if err != nil {
		return fmt.Errorf("read the server's clock: %w", err)
	}
	var written time.Time
	_, err = postgres.Poll(ctx, countersInterval, 0, func() (_ bool, err error) {
		written, err = postgres.One[time.Time](ctx, conn,
			`SELECT pg_catalog.pg_stat_get_snapshot_timestamp()`)
		return !written.Before(called), err
	})
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("wait for the server's counters, which are of %s: %w",
			written.UTC().Format(time.RFC3339), err)
	}
	return nil
}
