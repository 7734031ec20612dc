package faults

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// BenchmarkWriteBack runs a relay under a load of 2,000 rows a second for a minute, without and with write-back: its CPU, the server's WAL, and how long a
// committed row is pending. Figures for docs/WRITE-BACK.md: go test -run '^$' -bench WriteBack -benchtime 1x ./test/faults
func BenchmarkWriteBack(b *testing.B) {
	const rows, each, lasts = 10, 5 * time.Millisecond, time.Minute // 2,000 a second
	for _, on := range []bool{false, true} {
		b.Run(fmt.Sprint("on=", on), func(b *testing.B) {
			r := newRig(b, server(b, "18"), parts.RealKafka(b)).writesBack(b)
			r.settings["write_back.interval"], r.settings["write_back.enabled"] = `"1s"`, fmt.Sprint(on)
			r.settings["relay.in_flight_messages"], r.settings["log.level"] = "10000", `"info"`
			p := r.started(b)
			if on { // rows from before are never marked
				eventually(b, time.Minute, "the write-back has begun", func() bool {
					return query[bool](b, r.dsn, "SELECT EXISTS (SELECT FROM postrider_prune)")
				})
			}
			conn := connect(b, r.dsn)
			defer conn.Close(b.Context())
			watch := connect(b, r.dsn)
			defer watch.Close(b.Context())
			written, ages, seconds := 0, []float64{}, 0
			insert := func(until time.Time) {
				tick := time.NewTicker(each)
				defer tick.Stop()
				for now := range tick.C {
					if now.After(until) {
						return
					}
					_, err := conn.Exec(b.Context(), `INSERT INTO outbox (aggregate_type, aggregate_id, payload, number, created_at)
						SELECT $1, n::text, jsonb_build_object('text', repeat('x', 200)), n, clock_timestamp() FROM generate_series($2::int, $2::int + $3 - 1) n`, r.topic, written, rows)
					require.NoError(b, err)
					written += rows
					if s := int(time.Until(until).Seconds() * 5); on && s != seconds {
						seconds = s
						var age float64
						require.NoError(b, watch.QueryRow(b.Context(), `SELECT COALESCE(EXTRACT(epoch FROM clock_timestamp() - min(created_at)), 0)::float8
							FROM outbox WHERE status = 'PENDING'`).Scan(&age))
						ages = append(ages, age)
					}
				}
			}
			for b.Loop() {
				insert(time.Now().Add(10 * time.Second)) // until everything is warm
				ages, written = nil, 0
				cpu, wal := p.metric(b, "process_cpu_seconds_total"), currentLSN(b, r.dsn)
				insert(time.Now().Add(lasts))
				end := currentLSN(b, r.dsn)
				b.ReportMetric((p.metric(b, "process_cpu_seconds_total")-cpu)/lasts.Seconds()*100, "%core")
				if on {
					r.marked(b)
				}
				b.ReportMetric(float64(end-wal)/float64(written), "WAL-B/row")
				b.ReportMetric(float64(written)/lasts.Seconds(), "rows/s")
				if slices.Sort(ages); len(ages) > 0 {
					b.ReportMetric(ages[len(ages)/2], "s-p50")
					b.ReportMetric(ages[len(ages)*99/100], "s-p99")
				}
			}
			p.stop(b)
		})
	}
}
