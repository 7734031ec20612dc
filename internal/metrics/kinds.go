package metrics

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/prometheus/client_golang/prometheus"
)

const namespace = "postrider"

// Optional is a gauge that is absent until it is set, because a zero would be read as a position, a time or an empty disk.
// Its methods may be called from any goroutine and do not allocate.
type Optional struct {
	desc *prometheus.Desc
	bits atomic.Uint64 // of a float64; NaN is absent
}

// Set sets the value; NaN clears it.
func (o *Optional) Set(v float64) { o.bits.Store(math.Float64bits(v)) }

// SetBool sets 1 or 0.
func (o *Optional) SetBool(v bool) {
	if v {
		o.Set(1)
		return
	}
	o.Set(0)
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

// Describe implements prometheus.Collector.
func (o *Optional) Describe(ch chan<- *prometheus.Desc) { ch <- o.desc }

// Collect implements prometheus.Collector.
func (o *Optional) Collect(ch chan<- prometheus.Metric) {
	if v := math.Float64frombits(o.bits.Load()); !math.IsNaN(v) {
		ch <- prometheus.MustNewConstMetric(o.desc, prometheus.GaugeValue, v)
	}
}

// counted is an Optional that only grows: a counter that somebody else keeps.
type counted struct{ *Optional }

// Collect implements prometheus.Collector.
func (c counted) Collect(ch chan<- prometheus.Metric) {
	if v := math.Float64frombits(c.bits.Load()); !math.IsNaN(v) {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, v)
	}
}

// OptionalVec is a family of gauges by labels, whose members are there only between Set and the Replace that leaves them out.
// Its methods may be called from any goroutine.
type OptionalVec struct {
	desc *prometheus.Desc
	mu   sync.Mutex
	now  map[string]OptionalSample // by joined labels
}

// OptionalSample is a member of an OptionalVec.
type OptionalSample struct {
	labels []string
	value  float64
}

// Sample is a value for OptionalVec.Replace.
func Sample(value float64, labels ...string) OptionalSample { return OptionalSample{labels, value} }

// Replace makes samples all there are.
func (v *OptionalVec) Replace(samples ...OptionalSample) {
	next := make(map[string]OptionalSample, len(samples))
	for _, s := range samples {
		next[strings.Join(s.labels, "\xff")] = s
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.now = next
}

// Describe implements prometheus.Collector.
func (v *OptionalVec) Describe(ch chan<- *prometheus.Desc) { ch <- v.desc }

// Collect implements prometheus.Collector.
func (v *OptionalVec) Collect(ch chan<- prometheus.Metric) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, s := range v.now {
		ch <- prometheus.MustNewConstMetric(v.desc, prometheus.GaugeValue, s.value, s.labels...)
	}
}

// Enum is a family of gauges of which one is 1: the value that holds now. All are absent until the first Set.
type Enum struct {
	desc   *prometheus.Desc
	values []string
	now    atomic.Pointer[string]
}

// Set makes value the one that holds. A value that was not declared counts too, and leaves the others 0.
func (e *Enum) Set(value string) { e.now.Store(&value) }

// Describe implements prometheus.Collector.
func (e *Enum) Describe(ch chan<- *prometheus.Desc) { ch <- e.desc }

// Collect implements prometheus.Collector.
func (e *Enum) Collect(ch chan<- prometheus.Metric) {
	now := e.now.Load()
	if now == nil {
		return
	}
	declared := false
	for _, v := range e.values {
		holds := 0.0
		if v == *now {
			holds, declared = 1, true
		}
		ch <- prometheus.MustNewConstMetric(e.desc, prometheus.GaugeValue, holds, v)
	}
	if !declared {
		ch <- prometheus.MustNewConstMetric(e.desc, prometheus.GaugeValue, 1, *now)
	}
}

// builder makes and registers one series at a time, so that New reads as a table.
type builder struct{ reg prometheus.Registerer }

func (b builder) gauge(subsystem, name, help string) prometheus.Gauge {
	c := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help})
	b.reg.MustRegister(c)
	return c
}

func (b builder) gauges(subsystem, name string, labels []string, help string) *prometheus.GaugeVec {
	c := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help}, labels)
	b.reg.MustRegister(c)
	return c
}

func (b builder) counter(subsystem, name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help})
	b.reg.MustRegister(c)
	return c
}

func (b builder) counters(subsystem, name, label, help string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help}, []string{label})
	b.reg.MustRegister(c)
	return c
}

func (b builder) histogram(subsystem, name, help string) prometheus.Histogram {
	c := prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: namespace, Subsystem: subsystem, Name: name, Help: help, Buckets: latencyBuckets,
	})
	b.reg.MustRegister(c)
	return c
}

func (b builder) optional(subsystem, name, help string) *Optional {
	o := &Optional{desc: prometheus.NewDesc(prometheus.BuildFQName(namespace, subsystem, name), help, nil, nil)}
	o.Clear()
	b.reg.MustRegister(o)
	return o
}

func (b builder) counted(subsystem, name, help string) *Optional {
	o := &Optional{desc: prometheus.NewDesc(prometheus.BuildFQName(namespace, subsystem, name), help, nil, nil)}
	o.Clear()
	b.reg.MustRegister(counted{o})
	return o
}

func (b builder) optionals(subsystem, name string, labels []string, help string) *OptionalVec {
	v := &OptionalVec{desc: prometheus.NewDesc(prometheus.BuildFQName(namespace, subsystem, name), help, labels, nil)}
	b.reg.MustRegister(v)
	return v
}

func (b builder) enum(subsystem, name, label string, values []string, help string) *Enum {
	e := &Enum{
		desc:   prometheus.NewDesc(prometheus.BuildFQName(namespace, subsystem, name), help, []string{label}, nil),
		values: values,
	}
	b.reg.MustRegister(e)
	return e
}
