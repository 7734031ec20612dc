package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/internal/audit"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/test/parts"
)

const contendedSQL = `
CREATE TABLE outbox (
	id             uuid PRIMARY KEY DEFAULT gen_random_uuid(),
	number         bigint GENERATED ALWAYS AS IDENTITY,
	aggregate_type text NOT NULL DEFAULT 'order',
	aggregate_id   text,
	payload        jsonb,
	seen           boolean,
	created_at     timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE PUBLICATION postrider FOR TABLE outbox WITH (publish = 'insert');`

const contendedKeys = 6

// contention is how many write at once, how many transactions each commits, and how many faults of each kind are put into the topic.
func contention() (writers, rounds, faults int) {
	if *long { // 3 million rows
		return 32, 16_000, 100
	}
	return 8, 40, 25
}

// contended has writers share all keys, so that neither created_at, which is by clocks that differ
// by minutes, nor the numbers are in the order of commits; and a relay publish the rows. kept is a
// slot from before, which nobody reads.
func contended(t *testing.T) (g *good, kept string, rows int64) {
	t.Helper()
	g = &good{topic: newCluster(t).Topic(t, partitions)}
	g.shop = newShop(t, parts.AnyVersion, contendedSQL, fmt.Sprintf(`
[router]
position_headers = true
route.topic.regex = ".*"
route.topic.replacement = %q
`, g.topic))
	kept = parts.Unique("kept")
	g.do(t, "SELECT pg_create_logical_replication_slot('"+kept+"', 'pgoutput')")
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), g.DSN()) // the test's own has ended
		require.NoError(t, err)
		defer conn.Close(context.Background())
		_, err = conn.Exec(context.Background(), "SELECT pg_drop_replication_slot($1)", kept)
		require.NoError(t, err)
	})
	r := g.run(t)
	var written atomic.Int64
	var writers, short sync.WaitGroup
	contenders, rounds, _ := contention()
	errs := make(chan error, contenders+1)
	for w := range contenders {
		conn := g.Connect(t)
		short.Add(1)
		writers.Go(func() {
			defer short.Done()
			for range rounds {
				n, err := writeContended(t.Context(), conn, w, nil)
				written.Add(n)
				if err != nil {
					errs <- err
					return
				}
			}
		})
	}
	conn := g.Connect(t)
	writers.Go(func() { // began among the first, commits last
		n, err := writeContended(t.Context(), conn, 0, short.Wait)
		written.Add(n)
		errs <- err
	})
	writers.Wait()
	require.NoError(t, <-errs)
	require.Empty(t, errs)
	g.awaitConfirmed(t, r)
	r.Stop(t)
	g.records = make([][]*kgo.Record, partitions)
	for _, record := range g.All(t, g.topic) {
		g.records[record.Partition] = append(g.records[record.Partition], record)
	}
	return g, kept, written.Load()
}

// writeContended commits one transaction of a writer: rows of several keys, some of which are
// rolled back.
func writeContended(ctx context.Context, conn *pgx.Conn, writer int, beforeCommit func()) (rows int64, err error) {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback(ctx) //nolint:errcheck // after the commit it does nothing
	insert := func() error {
		_, err := tx.Exec(ctx, `INSERT INTO outbox (aggregate_id, payload, created_at)
			SELECT 'key ' || (random() * 1000)::int % $1::int, '{}', clock_timestamp() + $2::int * interval '1 min' FROM generate_series(1, 3)`, contendedKeys, writer%5-2)
		return err
	}
	for range 1 + rand.IntN(3) {
		if err := insert(); err != nil {
			return 0, err
		}
		rows += 3
		if rand.IntN(3) == 0 {
			if _, err := tx.Exec(ctx, "SAVEPOINT s"); err != nil {
				return 0, err
			}
			if err := insert(); err != nil {
				return 0, err
			}
			if _, err := tx.Exec(ctx, "ROLLBACK TO SAVEPOINT s"); err != nil {
				return 0, err
			}
		}
	}
	if beforeCommit != nil {
		beforeCommit()
	}
	return rows, tx.Commit(ctx)
}

// without copies the records, without some of their headers.
func without(records [][]*kgo.Record, prefix string) [][]*kgo.Record {
	out := make([][]*kgo.Record, len(records))
	for i, of := range records {
		for _, r := range of {
			one := *r
			one.Headers = slices.DeleteFunc(slices.Clone(r.Headers), func(h kgo.RecordHeader) bool { return strings.HasPrefix(h.Key, prefix) })
			out[i] = append(out[i], &one)
		}
	}
	return out
}

// spoil swaps, drops and repeats records at places that do not touch each other.
func spoil(t *testing.T, records [][]*kgo.Record, each int) [][]*kgo.Record {
	t.Helper()
	out := make([][]*kgo.Record, len(records))
	var swaps, losses, repeats int
	for p, of := range records {
		last := map[string]int{} // of each key: its record before, in out
		for i, r := range of {
			before, known := last[string(r.Key)]
			delete(last, string(r.Key))
			switch {
			case known && swaps < each && i%5 == 0:
				out[p] = append(out[p], out[p][before])
				out[p][before] = r
				swaps++
			case losses < each && i%5 == 1:
				losses++
			case repeats < each && i%5 == 2:
				out[p] = append(out[p], r, r)
				repeats++
			default:
				last[string(r.Key)] = len(out[p])
				out[p] = append(out[p], r)
			}
		}
	}
	require.Equal(t, []int{each, each, each}, []int{swaps, losses, repeats})
	return out
}

// tear drops the last row of so many transactions of several rows.
func tear(t *testing.T, records [][]*kgo.Record, transactions int) [][]*kgo.Record {
	t.Helper()
	rows, last := map[string]int{}, map[string]*kgo.Record{}
	for _, of := range records {
		for _, r := range of {
			at := slices.IndexFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == router.HeaderLSN })
			commit := string(r.Headers[at].Value)
			rows[commit]++
			last[commit] = r
		}
	}
	dropped := map[*kgo.Record]bool{}
	for commit, n := range rows {
		if n > 1 && len(dropped) < transactions {
			dropped[last[commit]] = true
		}
	}
	require.Len(t, dropped, transactions)
	out := make([][]*kgo.Record, len(records))
	for i, of := range records {
		out[i] = slices.DeleteFunc(slices.Clone(of), func(r *kgo.Record) bool { return dropped[r] })
	}
	return out
}

// With -long 32 writers share each key and write 3 million rows.
func TestAudit_JudgesTheOrderOfCommits(t *testing.T) {
	t.Parallel()
	g, kept, rows := contended(t)
	clean := audit.Report{Written: rows, Records: rows, Delivered: rows, OrderJudged: rows}
	judge := func(v audited) audit.Report {
		v.Examples, v.Passes = nil, 0 // many rows are read in several passes
		return v.Report
	}

	const torn = 20
	v, code := g.audit(t, "--topic", g.publish(t, tear(t, g.records, torn)))
	require.Equal(t, 1, code)
	require.True(t, v.TransactionsJudged)
	require.EqualValues(t, []int64{torn, torn, 0, 0}, []int64{v.Lost, v.PartialTransactions, v.OutOfOrder, v.Duplicated})

	g.do(t, "UPDATE outbox SET seen = true WHERE number % 3 = 0") // which gives them another xmin
	parts.Await(t, "statistics of the updates", func() (changed bool, err error) {
		err = g.sql.QueryRow(t.Context(), "SELECT n_tup_upd > 0 FROM pg_stat_all_tables WHERE relname = 'outbox'").Scan(&changed)
		return changed, err
	})
	confirmed := "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '" + kept + "'"
	before := g.lsn(t, confirmed)

	// A correct topic is correct, whatever tells the order.
	v, code = g.audit(t)
	require.Equal(t, clean, judge(v))
	require.Equal(t, []any{0, "clean", "positions"}, []any{code, v.Result, v.OrderBy})
	bare := g.publish(t, without(g.records, "postrider."))
	v, code = g.audit(t, "--topic", bare, "--slot", kept)
	require.Equal(t, clean, judge(v))
	require.Equal(t, []any{0, "clean", "slot " + kept}, []any{code, v.Result, v.OrderBy})

	// Nothing tells it.
	unknown := clean
	unknown.OrderJudged, unknown.OrderNotJudged = 0, rows
	for _, topic := range []string{bare, g.publish(t, without(g.records, "postrider.source"))} {
		v, code = g.audit(t, "--topic", topic)
		require.Equal(t, unknown, judge(v))
		require.Equal(t, []any{0, "clean", ""}, []any{code, v.Result, v.OrderBy})
	}
	v, code = g.audit(t, "--topic", bare, "--require-order")
	require.Equal(t, []any{1, "not proven"}, []any{code, v.Result})
	p := start(t, g.environment(), "audit", "--config", g.file, "--topic", bare)
	require.Zero(t, p.Wait(t))
	require.Contains(t, p.Stdout.String(), "out of order         not judged  no record says when its row was committed")
	require.Contains(t, p.Stdout.String(), "clean: every row arrived exactly once, order not judged")

	// A column that the user names has no such order here, and the report says whose it is.
	p = start(t, g.environment(), "audit", "--config", g.file, "--order-by", "created_at")
	require.Equal(t, 1, p.Wait(t))
	require.Contains(t, p.Stdout.String(), "by created_at, as --order-by says")

	// Faults are found wherever it says that it judges.
	_, _, each := contention()
	spoilt := spoil(t, g.records, each)
	faulty := int64(each)
	faults := clean
	faults.Delivered, faults.Lost, faults.Duplicated, faults.LongestRepeat = rows-faulty, faulty, faulty, 1
	faults.OutOfOrder, faults.OrderJudged = faulty, rows-faulty
	v, code = g.audit(t, "--topic", g.publish(t, spoilt))
	require.Equal(t, 1, code)
	require.False(t, v.TransactionsJudged) // by xmin, which the updates changed
	require.Equal(t, faults, judge(v))
	topic := g.publish(t, without(spoilt, "postrider."))
	v, code = g.audit(t, "--topic", topic, "--slot", kept)
	require.Equal(t, 1, code)
	require.Equal(t, faults, judge(v))
	v, code = g.audit(t, "--topic", topic)
	require.Equal(t, 1, code)
	faults.OutOfOrder, faults.OrderJudged, faults.OrderNotJudged = 0, 0, rows-faulty
	require.Equal(t, faults, judge(v))

	require.Equal(t, before, g.lsn(t, confirmed), "the slot that was read stays as it is")
}

// Retention takes records away; then a row that is in no topic is not called lost.
func TestAudit_CallsNothingLostThatRetentionMayHaveRemoved(t *testing.T) {
	t.Parallel()
	g := deliver(t)
	admin := kadm.NewClient(g.Client(t))
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: g.topic, Partition: int32(longest(g.records)), At: 5})
	_, err := admin.DeleteRecords(t.Context(), offsets)
	require.NoError(t, err)
	v, code := g.audit(t)
	require.Equal(t, []any{1, "not proven", []string{g.topic}}, []any{code, v.Result, v.Removed})
	require.EqualValues(t, []int64{0, 0, 5}, []int64{v.Lost, v.PartialTransactions, v.NotFound})

	p := start(t, g.environment(), "audit", "--config", g.file)
	require.Equal(t, 1, p.Wait(t))
	require.Contains(t, p.Stdout.String(), "lost                 not judged  5 rows are in no topic")
	require.Contains(t, p.Stdout.String(), "not proven: 5 rows are in no topic, and may have been removed")
}

// Partitions that are added move keys.
func TestAudit_TakesAddedPartitionsForNoFault(t *testing.T) {
	t.Parallel()
	g := &good{topic: newCluster(t).Topic(t, 2)}
	g.shop = newShop(t, parts.AnyVersion, auditedSQL, fmt.Sprintf(`
[relay]
dedup = "tail"

[router]
position_headers = true
route.topic.regex = ".*"
route.topic.replacement = %q
`, g.topic))
	const rows, keys = 200, 20
	write := `INSERT INTO outbox (aggregate_id, payload) SELECT 'key ' || n %% %d, '{}' FROM generate_series(1, %d) n`
	for n := range 2 {
		r := g.run(t)
		g.do(t, fmt.Sprintf(write, keys, rows/2))
		g.awaitConfirmed(t, r)
		r.Stop(t)
		if n == 0 {
			_, err := kadm.NewClient(g.Client(t)).CreatePartitions(t.Context(), 3, g.topic)
			require.NoError(t, err)
			parts.Await(t, "five partitions", func() (bool, error) { return g.Partitions(t, g.topic) == 5, nil })
		}
	}
	v, code := g.audit(t)
	require.Zero(t, code, "%+v", v)
	require.Positive(t, v.KeysMoved)
	require.EqualValues(t, []int64{rows, 0}, []int64{v.OrderJudged, v.PartitionChanges})
}
