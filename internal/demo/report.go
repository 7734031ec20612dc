package demo

import (
	"math"
	"runtime"
	"syscall"
	"time"

	"github.com/postrider/postrider/internal/audit"
)

// Report is the result of a demo. Its JSON is a contract with scripts.
type Report struct {
	audit.Verdict
	Seconds       float64 `json:"seconds"` // first transaction to last receipt
	RowsPerSecond float64 `json:"rows_per_second"`
	LatencyMS     Latency `json:"latency_ms"`  // commit to receipt
	CPUSeconds    float64 `json:"cpu_seconds"` // of this process, embedded broker included
	MaxRSSBytes   int64   `json:"max_rss_bytes"`
}

// Latency in milliseconds.
type Latency struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func (d *Demo) report(seconds float64) Report {
	all := d.meter.sorted()
	ms := func(q float64) float64 {
		return math.Round(float64(Quantile(all, q))/float64(time.Millisecond)*1000) / 1000
	}
	r := Report{Verdict: d.tally.Verdict(), Seconds: math.Round(seconds*1000) / 1000,
		LatencyMS: Latency{P50: ms(.5), P95: ms(.95), P99: ms(.99), Max: ms(1)}}
	if seconds > 0 {
		r.RowsPerSecond = math.Round(float64(r.Delivered) / seconds)
	}
	r.CPUSeconds, r.MaxRSSBytes = usage()
	return r
}

// usage returns what this process has used so far.
func usage() (cpuSeconds float64, maxRSSBytes int64) {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0, 0
	}
	cpu := time.Duration(u.Utime.Nano() + u.Stime.Nano())
	rss := int64(u.Maxrss)
	if runtime.GOOS != "darwin" {
		rss *= 1024 // kilobytes elsewhere
	}
	return math.Round(cpu.Seconds()*1000) / 1000, rss
}
