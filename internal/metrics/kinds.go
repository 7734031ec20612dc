package metrics

import (
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/prometheus/client_golang/prometheus"
)

// described is the part of a prometheus.Collector that all have in common.
type described struct{ desc *prometheus.Desc }

// Describe implements prometheus.Collector.
func (d described) Describe(ch chan<- *prometheus.Desc) { ch <- d.desc }

// Optional is a gauge that is absent until it is set: a zero would be read as a position, a time
// or an empty disk. With counter values it is a counter that the server keeps. Its methods are
// safe for concurrent use and do not allocate.
type Optional struct {
	described
	kind prometheus.ValueType
	bits atomic.Uint64 // of a float64; NaN is absent
}

// Set sets the value; NaN clears it.
func (o *Optional) Set(v float64) { o.bits.Store(math.Float64bits(v)) }

// SetBool sets 1 or 0.
func (o *Optional) SetBool(v bool) {
	n := 0.0
	if v {
		n = 1
	}
	o.Set(n)
}

// SetLSN sets a byte position; the zero LSN is "not known" and clears it.
func (o *Optional) SetLSN(lsn pglogrepl.LSN) {
	if lsn == 0 {
		o.Clear()
		return
	}
	o.Set(float64(lsn))
}

// SetTime sets a Unix time in seconds; the zero time clears it.
func (o *Optional) SetTime(t time.Time) {
	if t.IsZero() {
		o.Clear()
		return
	}
	o.Set(float64(t.UnixMicro()) / 1e6)
}

// Clear makes the series absent.
func (o *Optional) Clear() { o.Set(math.NaN()) }

// Collect implements prometheus.Collector.
func (o *Optional) Collect(ch chan<- prometheus.Metric) {
	if v := math.Float64frombits(o.bits.Load()); !math.IsNaN(v) {
		ch <- prometheus.MustNewConstMetric(o.desc, o.kind, v)
	}
}

// OptionalVec is a family of gauges by labels that has exactly the samples of the last Replace.
// Its methods are safe for concurrent use.
type OptionalVec struct {
	described
	mu  sync.Mutex                // guards now
	now map[string]OptionalSample // by joined labels
}

// OptionalSample is a member of an OptionalVec.
type OptionalSample struct {
	labels []string
	value  float64
}

// Sample is a value for OptionalVec.Replace.
func Sample(value float64, labels ...string) OptionalSample {
	return OptionalSample{labels, value}
}

// Replace sets all samples of the family.
func (v *OptionalVec) Replace(samples ...OptionalSample) {
	next := make(map[string]OptionalSample, len(samples))
	for _, s := range samples {
		next[strings.Join(s.labels, "\xff")] = s
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.now = next
}

// Collect implements prometheus.Collector.
func (v *OptionalVec) Collect(ch chan<- prometheus.Metric) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, s := range v.now {
		ch <- prometheus.MustNewConstMetric(v.desc, prometheus.GaugeValue, s.value, s.labels...)
	}
}

// Enum is a family of gauges of which one is 1: the current value. All are absent until the first
// Set.
type Enum struct {
	OptionalVec
	values []string
}

// Set makes value the current one, also a value that is not among the declared ones.
func (e *Enum) Set(value string) {
	samples := make([]OptionalSample, 0, len(e.values)+1)
	for _, v := range e.values {
		samples = append(samples, Sample(0, v))
	}
	e.Replace(append(samples, Sample(1, value))...) // the last of one label counts
}

// former exports a counter under the name that it had before, for rules and dashboards that read
// that one.
type former struct {
	described
	now    *prometheus.CounterVec
	labels []string
}

// Collect implements prometheus.Collector.
func (f *former) Collect(ch chan<- prometheus.Metric) {
	for m := range collect(f.now) {
		values := make([]string, len(f.labels))
		for _, pair := range m.GetLabel() {
			if i := slices.Index(f.labels, pair.GetName()); i >= 0 {
				values[i] = pair.GetValue()
			}
		}
		ch <- prometheus.MustNewConstMetric(f.desc, prometheus.CounterValue,
			m.GetCounter().GetValue(), values...)
	}
}
