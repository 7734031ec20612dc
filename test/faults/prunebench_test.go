package faults

import (
	"flag"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/sql"
	"github.com/postrider/postrider/test/parts"
)

var (
	benchRows      = flag.Int("prune-rows", 60_000, "rows that BenchmarkPrune writes while it prunes; 10000000 is the full form")
	benchRetention = flag.Duration("prune-retention", 5*time.Second, "prune.retention of BenchmarkPrune; 1m is the full form")
)

// BenchmarkPrune writes 2,000 rows a second beside a relay, first without and then with pruning, and reports how large table and indexes get, in
// retentions' worth of rows without bloat, and what the relay takes of a core.
//
//	go test ./test/faults -run '^$' -bench Prune -benchtime 1x -prune-rows 10000000 -prune-retention 1m -timeout 0
func BenchmarkPrune(b *testing.B) {
	const perSecond, every, without = 2000, 20 * time.Millisecond, 40_000
	pg := parts.ExclusivePostgres(b, embedded.PostgresConfig{Params: map[string]string{"autovacuum": "on", "autovacuum_naptime": "5s"}})
	r := newRig(b, pg.DSN(), parts.RealKafka(b))
	execute(b, r.dsn, `ALTER TABLE outbox ADD created_at timestamptz NOT NULL DEFAULT now(); CREATE INDEX ON outbox (created_at);
		ALTER TABLE outbox SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
		CREATE ROLE postrider`)
	execute(b, r.dsn, sql.Prune())
	r.settings["log.level"], r.settings["prune.retention"] = `"info"`, quote(benchRetention.String())
	r.settings["prune.interval"] = quote((*benchRetention / 6).String()) // 10s of a minute
	conn := connect(b, r.dsn)
	defer conn.Close(b.Context())
	number, largest := 0, int64(0)
	write := func(rows int) {
		tick := time.NewTicker(every)
		defer tick.Stop()
		perTick := int(perSecond * every / time.Second)
		for n := 0; n < rows; n += perTick {
			<-tick.C
			_, err := conn.Exec(b.Context(), `INSERT INTO outbox (aggregate_type, aggregate_id, payload, number)
				SELECT $1, 'k' || n % 100, jsonb_build_object('key', 'k' || n % 100, 'number', n, 'pad', repeat('x', 200)), n
				FROM generate_series($2::bigint, $2::bigint + $3::bigint - 1) n`, r.topic, number, perTick)
			require.NoError(b, err)
			number += perTick
			if n%perSecond == 0 {
				largest = max(largest, query[int64](b, r.dsn, "SELECT pg_total_relation_size('outbox')"))
			}
		}
	}
	// core is the part of a core that the relay takes while rows are written.
	core := func(p *process, rows int) float64 {
		cpu, began := p.metric(b, "process_cpu_seconds_total"), time.Now()
		write(rows)
		return (p.metric(b, "process_cpu_seconds_total") - cpu) / time.Since(began).Seconds()
	}
	for range b.N {
		p := r.started(b)
		alone := core(p, without)
		perRow := float64(query[int64](b, r.dsn, "SELECT pg_total_relation_size('outbox')")) / without
		p.stop(b)
		execute(b, r.dsn, "TRUNCATE outbox")
		largest = 0
		r.settings["prune.enabled"] = "true"
		p = r.started(b)
		pruning := core(p, *benchRows)
		worth := perRow * perSecond * benchRetention.Seconds()
		b.ReportMetric(float64(largest)/worth, "retentions")
		b.ReportMetric(100*alone, "%core-without")
		b.ReportMetric(100*pruning, "%core-pruning")
		b.ReportMetric(float64(query[int](b, r.dsn, "SELECT pg_stat_get_autovacuum_count('outbox'::regclass)::int")), "autovacuums")
		b.ReportMetric(p.metric(b, "postrider_prune_rows_total"), "rows-removed")
		p.stop(b)
	}
}
