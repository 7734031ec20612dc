package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts"
)

// manyPartitions replaces the outbox by one with n partitions, a day each, which are there before the publication.
func (r *rig) manyPartitions(t testing.TB, n int, viaRoot bool) {
	t.Helper()
	r.partitioned(t, "FOR TABLE outbox")
	execute(t, r.dsn, "SELECT pg_drop_replication_slot('"+r.slot+"')")
	execute(t, r.dsn, "DROP PUBLICATION "+r.publication)
	r.addPartitions(t, 1, n-1)
	execute(t, r.dsn, fmt.Sprintf("CREATE PUBLICATION %s FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = %t)", r.publication, viaRoot))
	execute(t, r.dsn, "SELECT pg_create_logical_replication_slot('"+r.slot+"', 'pgoutput')")
}

// addPartitions makes those of the days from to to. A transaction of a thousand fits into the server's table of locks.
func (r *rig) addPartitions(t testing.TB, from, to int) {
	t.Helper()
	conn := connect(t, r.dsn)
	defer conn.Close(t.Context())
	for ; from <= to; from += 1000 {
		_, err := conn.Exec(t.Context(), fmt.Sprintf(`DO $$ BEGIN FOR d IN %d..%d LOOP
			EXECUTE format('CREATE TABLE outbox_%%1$s PARTITION OF outbox FOR VALUES IN (%%1$s)', d); END LOOP; END $$`, from, min(from+999, to)))
		require.NoError(t, err)
	}
}

// insertDays commits the next event of as many keys, one in each partition of the days from to to, in transactions of 100.
func (r *rig) insertDays(t testing.TB, from, to int, number uint64) {
	t.Helper()
	conn := connect(t, r.dsn)
	defer conn.Close(t.Context())
	for ; from <= to; from += 100 {
		_, err := conn.Exec(t.Context(), `INSERT INTO outbox (day, aggregate_type, aggregate_id, payload, number)
			SELECT d, $1, 'day-' || d, jsonb_build_object('key', 'day-' || d, 'number', $4::bigint), $4 FROM generate_series($2::int, $3::int) d`,
			r.topic, from, min(from+99, to), int64(number))
		require.NoError(t, err)
		for d := from; d <= min(from+99, to); d++ {
			r.tally.Wrote(fmt.Sprint("day-", d), number)
		}
	}
}

// statements counts what the server has executed in the database, from pg_stat_statements, with the times in milliseconds.
func statements(t testing.TB, dsn, like string) (calls int64, mean, highest float64) {
	t.Helper()
	conn := connect(t, dsn)
	defer conn.Close(t.Context())
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT coalesce(sum(calls), 0)::bigint, coalesce(sum(total_exec_time) / sum(calls), 0), coalesce(max(max_exec_time), 0)
		FROM pg_stat_statements WHERE query LIKE $1 AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())`, like).Scan(&calls, &mean, &highest))
	return calls, mean, highest
}

func TestFault51_ManyPartitionsStartAndStreamAsOne(t *testing.T) {
	t.Parallel()
	n := full(t, 100, 5000)
	pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{Params: map[string]string{"shared_preload_libraries": "pg_stat_statements"}})
	for _, viaRoot := range []bool{true, false} {
		t.Run(fmt.Sprintf("publish_via_partition_root = %t", viaRoot), func(t *testing.T) {
			r := newRig(t, pg.DSN(), parts.RealKafka(t))
			delete(r.settings, "relay.in_flight_messages")
			r.manyPartitions(t, n, viaRoot)
			execute(t, r.dsn, "CREATE EXTENSION pg_stat_statements; SELECT pg_stat_statements_reset()")
			began := time.Now()
			p := r.started(t)
			start := time.Since(began)
			r.insertDays(t, 0, n-1, 1)
			first := r.caughtUp(t)

			// Partitions come and go meanwhile, and rows with them.
			changed := max(n/100, 5)
			r.addPartitions(t, n, n+changed-1)
			r.insertDays(t, n, n+changed-1, 1)
			r.drained(t, time.Minute)
			for d := range changed {
				execute(t, r.dsn, fmt.Sprintf("DROP TABLE outbox_%d", d))
			}
			r.insertDays(t, changed, n+changed-1, 2)
			second := r.caughtUp(t)
			looked := func() int64 { calls, _, _ := statements(t, r.dsn, "%pg_publication%"); return calls }
			before := looked()
			eventually(t, time.Minute, "two more looks of the monitor", func() bool { return looked() >= before+2 })
			require.Equal(t, 1, p.ask().Relay.Sessions)
			peak := p.peak(t)
			p.stop(t)

			began = time.Now()
			r.printed(t, "check")
			check := time.Since(began)
			requireExact(t, r.judge(t))
			calls, mean, highest := statements(t, r.dsn, "%pg_catalog.%")
			matrix(t, 51, "", fmt.Sprintf("%d partitions, %d added and as many dropped: streams %.2f s after the start, a row in each in %.1f s, the next in %.1f s, memory at most %s; check in %.2f s; the server executed %d statements for both, %.1f ms on average, %.0f ms at most",
				n, changed, start.Seconds(), first.Seconds(), second.Seconds(), mib(peak), check.Seconds(), calls, mean, highest))
			t.Log(slowest(t, r.dsn))
		})
	}
}

// slowest are the statements that took the server the longest.
func slowest(t testing.TB, dsn string) string {
	t.Helper()
	return query[string](t, dsn, `SELECT coalesce(string_agg(format('%s calls, %s ms on average, %s ms at most: %s', calls, round(mean_exec_time::numeric, 1), round(max_exec_time::numeric, 1), left(regexp_replace(query, '\s+', ' ', 'g'), 300)), E'\n'), '')
		FROM (SELECT * FROM pg_stat_statements WHERE query LIKE '%pg_catalog.%' AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) ORDER BY total_exec_time DESC LIMIT 8) s`)
}
