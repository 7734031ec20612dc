package demo

import (
	"math"
	"runtime"
	"slices"
	"sync"
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
	d.meter.mu.Lock()
	all := slices.Sorted(slices.Values(d.meter.latencies))
	d.meter.mu.Unlock()
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

// meter measures the time from a writer's commit to the consumer's receipt. It is zero for an
// event that is received before its writer has the answer to its commit.
type meter struct {
	mu        sync.Mutex
	waiting   map[event]time.Time // one side is known: commit, or receipt
	latencies []time.Duration     // of all events
	reported  int                 // latencies[reported:] came since the last call of recent
}

type event struct {
	key    string
	number uint64
}

func newMeter() *meter { return &meter{waiting: map[event]time.Time{}} }

func (m *meter) committed(e event, at time.Time) { m.pair(e, at, -1) }

func (m *meter) received(e event, at time.Time) { m.pair(e, at, 1) }

// pair adds a latency when both sides are known: at minus that of the other side, times sign.
func (m *meter) pair(e event, at time.Time, sign time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	other, ok := m.waiting[e]
	if !ok {
		m.waiting[e] = at
		return
	}
	delete(m.waiting, e)
	m.latencies = append(m.latencies, max(0, sign*at.Sub(other)))
}

// recent returns the quantiles of the latencies since its last call.
func (m *meter) recent() (p50, p99 time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	since := slices.Sorted(slices.Values(m.latencies[m.reported:]))
	m.reported = len(m.latencies)
	return Quantile(since, .5), Quantile(since, .99)
}

// Quantile returns a quantile of a sorted list; zero if the list is empty.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
