package prune

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

// rows deletes the rows of one table.
type rows struct {
	conn     *pgx.Conn
	cfg      Config
	slot     string
	table    *table
	coverage *Coverage
	now      time.Time // of the look, by the server's clock
	kept     []string  // ids of rows with open dead letters; not nil
}

// removable is the condition of rows that may go. Its only parameter, $1, is kept.
func (r *rows) removable() string {
	conditions := []string{r.old(), r.coverage.Delivered()}
	if above := r.coverage.Above(); above != "" {
		conditions = append(conditions, above)
	}
	if r.cfg.OnDelivery {
		conditions = conditions[1:]
	}
	return "(" + strings.Join(append(conditions, r.free()), ") AND (") + ")"
}

// old is the condition of rows that are older than the retention: by the column if it holds a
// time, else by the time since which no transaction that wrote a row is open.
func (r *rows) old() string {
	cutoff := r.now.Add(-r.cfg.retention())
	if !r.table.holds {
		return r.coverage.CommittedBefore(cutoff)
	}
	return postgres.QuoteName(r.table.Column) + " < " + postgres.QuoteText(
		cutoff.UTC().Format(time.RFC3339Nano)) + "::" + r.table.ColumnType
}

// free is the condition of rows without open dead letters: such a row may be the only copy.
func (r *rows) free() string {
	if len(r.kept) == 0 {
		return "$1::text[] IS NOT NULL"
	}
	var ids []string
	for _, id := range r.table.ids {
		ids = append(ids, "COALESCE("+slot.WrittenSQL(postgres.QuoteName(id))+" <> ALL ($1::text[]), "+
			"true)")
	}
	return strings.Join(ids, " AND ")
}

// chunkSQL deletes a chunk and returns how many rows those were, with the greatest value of the
// column. Rows that another session has locked are skipped.
func (r *rows) chunkSQL(from string) string {
	name, order, greatest := slot.QuoteTable(r.table.Name), "", "NULL"
	if r.table.indexed {
		order, greatest = " ORDER BY "+postgres.QuoteName(r.table.Column), "pg_catalog.max(last)::text"
	}
	if from != "" { // the index entries before it are of rows that this run has deleted
		from = " AND " + postgres.QuoteName(r.table.Column) + " >= " + postgres.QuoteText(from) + "::" +
			r.table.ColumnType
	}
	last := "NULL::text"
	if r.table.indexed {
		last = postgres.QuoteName(r.table.Column)
	}
	return fmt.Sprintf(`WITH gone AS (DELETE FROM ONLY %[1]s WHERE ctid = ANY (ARRAY(
	SELECT ctid FROM ONLY %[1]s WHERE %[2]s%[3]s%[4]s LIMIT %[5]d FOR UPDATE SKIP LOCKED))
	RETURNING %[6]s AS last) SELECT pg_catalog.count(*), %[7]s FROM gone`, name, r.removable(),
		from, order, r.cfg.ChunkRows, last, greatest)
}

const (
	// maxPause bounds the pause after a chunk that could not get a lock.
	maxPause = 5 * time.Second
	// maxAttempts bounds the chunks in a row that fail with an error of temporary.
	maxAttempts = 10
	lagInterval = 200 * time.Millisecond
)

// temporary are serialization_failure, deadlock_detected and lock_not_available.
var temporary = []string{"40001", "40P01", "55P03"}

// delete deletes all removable rows in chunks, each in a transaction of its own, and returns how
// many those were. After each it pauses for as long as the chunk took, and while a standby or the
// slot is behind by more than MaxLag.
func (r *rows) delete(ctx context.Context) (removed int64, err error) {
	if r.coverage.Delivered() == neverDelivered ||
		!r.cfg.OnDelivery && r.old() == neverCommitted {
		return 0, nil
	}
	from, pause := "", time.Duration(0)
	for attempt := 1; ; {
		if err := r.awaitLag(ctx); err != nil {
			return removed, err
		}
		began := time.Now()
		var n int64
		var last *string
		err := r.conn.QueryRow(ctx, r.chunkSQL(from), pgx.QueryExecModeExec, r.kept).Scan(&n, &last)
		switch {
		case slices.Contains(temporary, postgres.SQLState(err)) && attempt < maxAttempts:
			attempt++
			pause = min(2*pause+r.cfg.LockTimeout, maxPause)
		case err != nil:
			return removed, fmt.Errorf("delete rows of table %s: %w", r.table.Name, postgres.Error(err))
		default:
			removed += n
			if n < int64(r.cfg.ChunkRows) {
				return removed, nil
			}
			attempt, pause = 1, time.Since(began)
			if last != nil {
				from = *last
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return removed, context.Cause(ctx)
		}
	}
}

// selectLag is how many bytes of WAL the slot, or a standby that this role sees, is behind. What a
// standby has received counts: with recovery_min_apply_delay it applies it hours later. A receiver
// that replays nothing is no standby: pg_receivewal flushes a segment only when it is full.
const selectLag = `SELECT GREATEST(0, pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(),
	LEAST((SELECT s.confirmed_flush_lsn FROM pg_catalog.pg_replication_slots s
		WHERE s.slot_name = $1::text),
	(SELECT pg_catalog.min(r.flush_lsn) FROM pg_catalog.pg_stat_replication r
		WHERE r.state = 'streaming' AND r.replay_lsn IS NOT NULL))))::bigint`

// awaitLag blocks while WAL is behind by more than MaxLag, for half a minute at most: then it
// returns ErrBehind.
func (r *rows) awaitLag(ctx context.Context) error {
	var lag int64
	caughtUp, err := postgres.Poll(ctx, lagInterval, confirmTimeout, func() (ok bool, err error) {
		lag, err = postgres.One[int64](ctx, r.conn, selectLag, r.slot)
		return lag <= r.cfg.MaxLag, err
	})
	if err != nil {
		return fmt.Errorf("look how far standbys are behind: %w", err)
	}
	if !caughtUp {
		return &slot.Error{Err: fmt.Errorf("%w: the slot or a standby is behind by %s", ErrBehind,
			slot.Size(float64(lag))), WAL: restKept, Fix: "postrider status"}
	}
	return nil
}

// restKept is what it means for the rows that a run ended early.
const restKept = "the rest of the rows stays until the next run"

// counts are what a dry run finds in a table.
type counts struct{ Rows, Removable, Unproven, Held int64 }

// count counts all rows, those that would be deleted, those that are old enough and not proven to
// be delivered, and those that stay because of an open dead letter. It reads the whole table.
func (r *rows) count(ctx context.Context) (c counts, err error) {
	old := r.old()
	if r.cfg.OnDelivery {
		old = "true"
	}
	delivered := r.coverage.Delivered()
	err = r.conn.QueryRow(ctx, fmt.Sprintf(`SELECT pg_catalog.count(*),
	pg_catalog.count(*) FILTER (WHERE %[2]s),
	pg_catalog.count(*) FILTER (WHERE (%[3]s) AND NOT (%[4]s)),
	pg_catalog.count(*) FILTER (WHERE NOT (%[5]s)) FROM ONLY %[1]s`, slot.QuoteTable(r.table.Name),
		r.removable(), old, delivered, r.free()), pgx.QueryExecModeExec, r.kept).
		Scan(&c.Rows, &c.Removable, &c.Unproven, &c.Held)
	return c, postgres.Wrap(err, "count the rows of table %s", r.table.Name)
}

// oldest fills in the time of the oldest row, if an index has it.
func (r *rows) oldest(ctx context.Context, report *TableReport) error {
	if !r.table.indexed || !r.table.holds {
		return nil
	}
	column := postgres.QuoteName(r.table.Column)
	oldest, err := postgres.One[*time.Time](ctx, r.conn, "SELECT pg_catalog.min("+column+
		")::timestamp with time zone FROM ONLY "+slot.QuoteTable(r.table.Name)+
		" WHERE pg_catalog.isfinite("+column+")")
	if oldest != nil {
		report.OldestRow = *oldest
	}
	return postgres.Wrap(err, "look for the oldest row of table %s", r.table.Name)
}
