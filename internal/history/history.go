// Package history keeps the last hour of a relay in memory, for the charts of the status page.
package history

import (
	"slices"
	"sync"
	"time"
)

const (
	// Interval is the time between two samples.
	Interval = 10 * time.Second
	length   = int(time.Hour / Interval)
)

// Reading is the relay's counters and gauges at one moment.
type Reading struct {
	At        time.Time
	Published float64 // messages, since the start of the process
	Failed    float64 // messages, since the start of the process
	Latency   Buckets // commit to acknowledgement, since the start of the process
	InFlight  int     // messages

	LagBytes, RetainedBytes *int64   // nil: not known
	WAL, Drain              *float64 // bytes per second; nil: not known
}

// Buckets is a histogram: Counts[i] observations are at or below Bounds[i], in seconds. The last
// count is that of all observations.
type Buckets struct {
	Bounds []float64
	Counts []uint64 // one more than Bounds
}

// Sample is the difference between two readings.
type Sample struct {
	At                 time.Time `json:"at"`
	PublishedPerSecond float64   `json:"published_per_second"`
	FailedPerSecond    float64   `json:"failed_per_second"`
	LatencyP50         *float64  `json:"latency_p50_seconds,omitempty"` // nil: none published
	LatencyP99         *float64  `json:"latency_p99_seconds,omitempty"`
	LagBytes           *int64    `json:"lag_bytes,omitempty"`
	RetainedBytes      *int64    `json:"retained_bytes,omitempty"`
	WALBytesPerSecond  *float64  `json:"wal_bytes_per_second,omitempty"`
	DrainPerSecond     *float64  `json:"drain_bytes_per_second,omitempty"`
	InFlight           int       `json:"in_flight"`
}

// History is the samples of an hour. The zero value is ready. Safe for concurrent use.
type History struct {
	mu      sync.Mutex // guards what follows
	last    Reading
	samples []Sample // the oldest first
}

// Add makes a sample of r and the reading before it. The first reading makes none.
func (h *History) Add(r Reading) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.last
	h.last = r
	seconds := r.At.Sub(before.At).Seconds()
	if before.At.IsZero() || seconds <= 0 {
		return
	}
	if len(h.samples) == length {
		h.samples = slices.Delete(h.samples, 0, 1)
	}
	h.samples = append(h.samples, Sample{
		At:                 r.At,
		PublishedPerSecond: (r.Published - before.Published) / seconds,
		FailedPerSecond:    (r.Failed - before.Failed) / seconds,
		LatencyP50:         quantile(0.50, before.Latency, r.Latency),
		LatencyP99:         quantile(0.99, before.Latency, r.Latency),
		LagBytes:           r.LagBytes, RetainedBytes: r.RetainedBytes,
		WALBytesPerSecond: r.WAL, DrainPerSecond: r.Drain,
		InFlight: r.InFlight,
	})
}

// Samples returns the last hour, the oldest first.
func (h *History) Samples() []Sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Sample{}, h.samples...) // [] in JSON, not null
}

// quantile estimates as Prometheus' histogram_quantile does, from the observations between two
// readings. nil: there are no observations.
func quantile(q float64, before, after Buckets) *float64 {
	count := func(i int) float64 {
		n := float64(after.Counts[i])
		if i < len(before.Counts) {
			n -= float64(before.Counts[i])
		}
		return n
	}
	last := len(after.Counts) - 1
	if last < 1 || count(last) <= 0 {
		return nil
	}
	rank := q * count(last)
	for i, bound := range after.Bounds {
		if count(i) < rank {
			continue
		}
		low, below := 0.0, 0.0
		if i > 0 {
			low, below = after.Bounds[i-1], count(i-1)
		}
		return new(low + (bound-low)*(rank-below)/(count(i)-below))
	}
	return new(after.Bounds[len(after.Bounds)-1])
}
