package bench

import (
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/audit"
)

var update = flag.Bool("update", false, "rewrite testdata/tables.golden")

func TestMerge_TakesMediansAndSumsTheAudits(t *testing.T) {
	run := func(rate, p99 float64) Result {
		return Result{Verdict: audit.Verdict{Written: 10, Delivered: 10},
			RowsPerSecond: known(rate), LatencyMS: &Latency{P99: known(p99)}}
	}
	runs := []Result{run(300, 1), run(100, 9), run(200, 4)}
	runs[1].BrokerCPUSeconds = known(5) // known in one run only
	merged, spread := merge(runs)
	require.Equal(t, audit.Verdict{Written: 30, Delivered: 30}, merged.Verdict)
	require.InDelta(t, 200, *merged.RowsPerSecond, 0)
	require.InDelta(t, 4, *merged.LatencyMS.P99, 0)
	require.Equal(t, map[string]Spread{"rows_per_second": {100, 300}, "latency_ms.p99": {1, 9}},
		spread)
	require.Nil(t, merged.BrokerCPUSeconds, "not measured is never zero")
	require.Nil(t, merged.AckLatencyMS)
}

// What demo prints, bench prints of each workload.
func TestResult_HasTheContractsMembers(t *testing.T) {
	text, err := json.Marshal(Measured{Result: Result{LatencyMS: &Latency{}}})
	require.NoError(t, err)
	var members map[string]any
	require.NoError(t, json.Unmarshal(text, &members))
	for _, name := range []string{"written", "delivered", "lost", "duplicated", "out_of_order",
		"seconds", "rows_per_second", "latency_ms", "cpu_seconds", "max_rss_bytes"} {
		require.Contains(t, members, name)
	}
	for _, name := range []string{"p50", "p95", "p99", "max"} {
		require.Contains(t, members["latency_ms"], name)
	}
}

func TestAllocations_AreKnownWithoutAnAcknowledgementBefore(t *testing.T) {
	var r Result
	r.allocations(reading{mallocs: 100, allocBytes: 1000, published: math.NaN()}, reading{mallocs: 300, allocBytes: 5000, published: 100})
	require.InDelta(t, 2, *r.AllocsPerRow, 0)
	require.InDelta(t, 40, *r.AllocBytesPerRow, 0)

	r.allocations(reading{published: 100}, reading{mallocs: 300, published: math.NaN()})
	require.Nil(t, r.AllocsPerRow)
}

func TestBucketLatency_CountsWhatCameBetween(t *testing.T) {
	bounds := []float64{.001, .002, .01}
	before := reading{ackBounds: bounds, ackCounts: []float64{5, 5, 5, 5}}
	after := reading{ackBounds: bounds, ackCounts: []float64{55, 95, 104, 105}}
	l := bucketLatency(before, after)
	require.InDelta(t, 1, *l.P50, 1e-9, "half of a hundred lie in the first bucket")
	require.InDelta(t, 6.4444, *l.P95, 1e-3, "5 of the 9 in the third")
	require.InDelta(t, 10, *l.P99, 1e-9)
	require.Nil(t, l.P999, "beyond the last bound")
	require.Nil(t, l.Max)
	require.Equal(t, &Latency{}, bucketLatency(before, before))
	require.Equal(t, &Latency{}, bucketLatency(reading{}, reading{}))
}

func TestNewLatency_IsExact(t *testing.T) {
	var samples []time.Duration
	for i := 1000; i > 0; i-- {
		samples = append(samples, time.Duration(i)*time.Millisecond)
	}
	l := newLatency(samples)
	require.InDelta(t, 501, *l.P50, 0)
	require.InDelta(t, 1000, *l.P999, 0)
	require.InDelta(t, 1000, *l.Max, 0)
	require.Equal(t, &Latency{}, newLatency(nil))
}

func TestMeasured_SaysPlainlyWhatWasNotKeptUp(t *testing.T) {
	m := Measured{Workload: Workload{Kind: Rate, Rate: 1000},
		Result: Result{WrittenPerSecond: known(999), BehindRows: known(3)}}
	require.Empty(t, m.behind())
	m.WrittenPerSecond = known(700)
	require.Contains(t, m.behind(), "the writers committed 700/s")
	m.WrittenPerSecond, m.BehindRows = known(1000), known(5000)
	require.Contains(t, m.behind(), "5000 rows were not delivered")
}

func TestValidate_NamesWhatCannotBeMeasured(t *testing.T) {
	good := Workload{Kind: Drain, Rows: 10, Tx: 10, Size: 200}
	require.NoError(t, good.Validate(true))
	for says, change := range map[string]func(w *Workload){
		"0 rows:":                func(w *Workload) { w.Rows = 0 },
		"more than the 10 rows":  func(w *Workload) { w.Tx = 11 },
		"0 rows per transaction": func(w *Workload) { w.Tx = 0 },
		"payload of 10 bytes":    func(w *Workload) { w.Size = 10 },
		"keeps them in memory":   func(w *Workload) { w.Rows, w.Size = 2_000_000, 10_000 },
		"0 transactions a second": func(w *Workload) {
			*w = Workload{Kind: Rate, Size: 200, Duration: time.Minute}
		},
		"a duration of 1ms": func(w *Workload) {
			*w = Workload{Kind: Idle, Size: 200, Rate: 1, Duration: time.Millisecond}
		},
		"are 3600000000 rows": func(w *Workload) {
			*w = Workload{Kind: Rate, Size: 200, Rate: maxRate, Duration: time.Hour}
		},
		"must be 1 to 1000000": func(w *Workload) {
			*w = Workload{Kind: Rate, Size: 200, Rate: maxRate + 1, Duration: time.Hour}
		},
	} {
		w := good
		change(&w)
		require.ErrorContains(t, w.Validate(true), says)
	}
	big := Workload{Kind: Drain, Rows: 2_000_000, Tx: 10, Size: 10_000}
	require.NoError(t, big.Validate(false), "a broker with a disk")
}

func TestWriteTables_PrintsTheGoldenTables(t *testing.T) {
	figures := func(runs int) Measured {
		r := Result{Verdict: audit.Verdict{Written: 100_000, Delivered: 100_000},
			Seconds: known(.65), RowsPerSecond: known(153_846), TotalSeconds: known(.75),
			StartToFirstSeconds: known(.0973), CPUSeconds: known(.6), RelayCPUPerM: known(6.04),
			AllocsPerRow: known(1.98), MaxRSSBytes: known(45 << 20),
			LatencyMS: &Latency{P50: known(1.5), P95: known(2), P99: known(12.25),
				P999: known(130.4), Max: known(1300)}, WrittenPerSecond: known(990)}
		m := Measured{Runs: runs, Result: r,
			Spread: map[string]Spread{"rows_per_second": {140_000, 160_000}}}
		return m
	}
	drain, rate, idle := figures(3), figures(1), figures(1)
	drain.Workload = Workload{Kind: Drain, Rows: 100_000, Tx: 100_000, Size: 10_000}
	rate.Workload = Workload{Kind: Rate, Rate: 5000, Size: 200}
	rate.BehindRows = known(0)
	rate.NotCarried = rate.behind()
	idle.Workload = Workload{Kind: Idle, Rate: 1000, Size: 200}
	idle.WALBytes = known(3 << 20)
	report := &Report{Environment: Environment{Version: "v1.0.0", Revision: "0123456789abcdef",
		Postgres: "17.11", Kafka: "4.1", Platform: "linux/amd64", Cores: 2,
		CPU: "Some CPU", Date: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)},
		Workloads: []Measured{drain, rate, idle}}
	var out strings.Builder
	WriteTables(&out, report)
	golden := filepath.Join("testdata", "tables.golden")
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(out.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), out.String())

	later := *report
	later.Date, later.Workloads = report.Date.AddDate(0, 0, 1), []Measured{rate}
	elsewhere := later
	elsewhere.Cores = 64
	joined := Join([]*Report{report, &elsewhere, &later})
	require.Len(t, joined, 2)
	require.Len(t, joined[0].Workloads, 4)
	require.Equal(t, later.Date, joined[0].Date)
	require.Len(t, report.Workloads, 3, "as it was")

	report.Workloads[0].Lost = 1
	out.Reset()
	WriteTables(&out, report)
	require.Contains(t, out.String(),
		"audit of drain, all rows per transaction, 10 kB: "+
			"written 100000, delivered 100000, lost 1")
}

func TestNumber_HasThreeDigits(t *testing.T) {
	for v, want := range map[float64]string{0: "0.00", .004: "0.00", 1.984: "1.98", 9.999: "10.0",
		99.96: "100", 999.6: "1,000", 153_846: "154,000", 999_999: "1,000,000"} {
		require.Equal(t, want, number(v))
	}
}
