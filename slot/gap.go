package slot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

// gapTimeout bounds how long the rows of one table are counted: whoever waits for the message wants it now.
const gapTimeout = 5 * time.Second

// Gap is what a lost slot has not delivered, as far as the server still tells.
type Gap struct {
	From, To pglogrepl.LSN // confirmed position of the slot, and end of the server's WAL when this was looked at; zero: not known
	FromXmin uint32        // no transaction in the gap is older; zero: not known
	Tables   []TableGap
}

// TableGap is how many rows of a table cannot have been delivered. Some of them can have been: it counts from the oldest transaction in question.
type TableGap struct {
	Table  string
	Rows   int64
	Reason string // why they were not counted; empty: they were
}

// MeasureGap asks the server how large the gap is. What it does not tell is left out, or has its reason; it blocks for seconds at most.
// consented is as for MayRead.
func MeasureGap(ctx context.Context, conn *pgx.Conn, lost *LostError, tables []string, consented bool) *Gap {
	g := &Gap{From: lost.ConfirmedFlushLSN, FromXmin: lost.CatalogXmin}
	var current string
	if err := conn.QueryRow(ctx, "SELECT ("+currentLSN+")::text").Scan(&current); err == nil {
		g.To, _ = pglogrepl.ParseLSN(current) // zero if it cannot be read
	}
	for _, table := range tables {
		g.Tables = append(g.Tables, g.count(ctx, conn, table, consented))
	}
	return g
}

func (g *Gap) count(ctx context.Context, conn *pgx.Conn, table string, consented bool) TableGap {
	t := TableGap{Table: table}
	if g.FromXmin == 0 {
		t.Reason = "nothing tells from which transaction on"
		return t
	}
	if err := setTimeout(ctx, conn, "statement_timeout", gapTimeout); err != nil {
		t.Reason = err.Error()
		return t
	}
	schema, name := SplitTable(table)
	var oid uint32 // zero: there is none
	err := conn.QueryRow(ctx, `
		SELECT coalesce((SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relname = $2), 0::oid)`, schema, name).Scan(&oid)
	if err == nil {
		t.Reason, err = MayRead(ctx, conn, oid, consented)
	}
	if err != nil {
		t.Reason = err.Error()
	}
	if t.Reason != "" {
		return t
	}
	err = conn.QueryRow(ctx, "SELECT pg_catalog.count(*) FROM "+quoteTable(table)+" WHERE "+fromXmin(g.FromXmin), pgx.QueryExecModeSimpleProtocol).Scan(&t.Rows)
	switch sqlState(err) {
	case "57014": // query_canceled
		t.Reason = fmt.Sprintf("that took longer than %s", gapTimeout)
	default:
		if err != nil {
			t.Reason = err.Error()
		}
	}
	return t
}

// empty: no row of the tables is in the gap.
func (g *Gap) empty() bool {
	for _, t := range g.Tables {
		if t.Reason != "" || t.Rows > 0 {
			return false
		}
	}
	return len(g.Tables) > 0
}

// MovedOn judges a slot whose confirmed position, at to, lies beyond from, up to which this process knows everything to be published. It is nil if another
// relay can have published what lies between: the slot has gone on decoding since last was observed. It is nil too if that cannot
// be told, since the counters have begun anew after streamed, when this process last began to stream, by the server's clock: a crash does that, and
// whoever resets them. Nor can it be told where somebody else has held the slot, and nothing was ever counted: he may have confirmed that there was
// nothing. Otherwise somebody made the slot anew, and it never sends what lies between: a LostError. That no row of the tables lies there is no proof that
// nothing was lost, since rows may be deleted as soon as they are written: it counts only for a slot that was never seen to decode anything, nor to be missing.
func MovedOn(ctx context.Context, conn *pgx.Conn, last Observation, tables []string, consented bool, from, to pglogrepl.LSN, streamed time.Time, held bool) error {
	if err := awaitCounters(ctx, conn); err != nil {
		return err
	}
	var transactions int64 // zero for a slot that was never read from
	var since time.Time
	var reset *time.Time
	err := conn.QueryRow(ctx, `SELECT coalesce(d.total_txns, 0), d.stats_reset, `+countedSince+`
		FROM (SELECT) one LEFT JOIN pg_catalog.pg_stat_replication_slots d ON d.slot_name = $1`, last.Slot.Name).Scan(&transactions, &reset, &since)
	if err != nil {
		return fmt.Errorf("read the counters of slot %q: %w", last.Slot.Name, postgres.Error(err))
	}
	if since.After(streamed) {
		return nil
	}
	d := last.Decoding
	if d != nil && (!d.countedSince.Equal(since) || reset != nil && reset.After(d.ResetAt) || transactions > 0 && transactions >= d.TotalTransactions) {
		return nil
	}
	remade := slices.ContainsFunc(last.Events, func(e ServerEvent) bool {
		return (e.Code == slotCreated || e.Code == slotRecreated) && e.At.After(streamed)
	})
	if held && !remade && (d == nil || d.TotalTransactions == 0) {
		return nil
	}
	lost := &LostError{
		Name: last.Slot.Name, Reason: fmt.Sprintf("somebody has made it anew, or moved it on: it begins at %s", to),
		ConfirmedFlushLSN: from, Moved: true,
	}
	if last.Slot.ConfirmedFlushLSN <= from { // or what was observed is the new slot already, which knows nothing of the gap
		lost.CatalogXmin = last.Slot.CatalogXmin
	}
	lost.Gap = MeasureGap(ctx, conn, lost, tables, consented)
	if lost.Gap.empty() && !remade && (d == nil || d.TotalTransactions == 0) {
		return nil
	}
	lost.Gap.To = to
	return lost
}

// countersTimeout bounds the wait for counters before 15: a reader asks for new ones and takes stale ones after ten seconds.
const countersTimeout = 15 * time.Second

// ErrStaleCounters is temporary.
var ErrStaleCounters = errors.New("the server writes no new statistics")

// awaitCounters blocks until the counters that the server shows are not older than the call. Before 15 they are those of a file, which may be half a second
// old, and so of a slot of the same name that was dropped since. A statistics collector that hangs, a full stats_temp_directory and a clock that was put back
// keep it from being written: ErrStaleCounters.
func awaitCounters(ctx context.Context, conn *pgx.Conn) error {
	if major(conn) >= 15 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, countersTimeout, ErrStaleCounters)
	defer cancel()
	tick := time.NewTicker(visibleInterval)
	defer tick.Stop()
	var asked time.Time
	if err := conn.QueryRow(ctx, `SELECT pg_catalog.clock_timestamp()`).Scan(&asked); err != nil {
		return fmt.Errorf("read the server's clock: %w", postgres.Error(err))
	}
	for {
		var written time.Time
		if err := conn.QueryRow(ctx, `SELECT pg_catalog.pg_stat_get_snapshot_timestamp()`).Scan(&written); err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return fmt.Errorf("read the age of the server's counters: %w", postgres.Error(err))
		}
		if !written.Before(asked) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the server's counters, which are of %s: %w", written.UTC().Format(time.RFC3339), context.Cause(ctx))
		}
	}
}

// String is what follows the error.
func (g *Gap) String() string {
	var parts []string
	if g.From != 0 && g.To >= g.From {
		parts = append(parts, fmt.Sprintf("the gap is from %s to %s, %s of WAL of the whole server", g.From, g.To, size(float64(g.To-g.From))))
	}
	for _, t := range g.Tables {
		if t.Reason != "" {
			parts = append(parts, fmt.Sprintf("rows of %s in it were not counted: %s", t.Table, t.Reason))
			continue
		}
		parts = append(parts, fmt.Sprintf("at most %d rows of %s are in it", t.Rows, t.Table))
	}
	return strings.Join(parts, "; ")
}
