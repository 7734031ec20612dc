package bench

import (
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/audit"
	"github.com/postrider/postrider/internal/demo"
)

// Result is one run of a workload, or the medians of several. Its JSON is a contract with scripts:
// the members of demo's report, and more. A figure that was not measured, or has no meaning for
// the workload, is null or absent.
type Result struct {
	audit.Verdict // of several runs: the sums

	// Seconds: drain: first to last record, by the broker's clock; else of the measured part.
	Seconds       *float64 `json:"seconds"`
	RowsPerSecond *float64 `json:"rows_per_second"` // delivered in Seconds
	// LatencyMS: rate, idle: commit to receipt; drain: start of the relay to append.
	LatencyMS   *Latency `json:"latency_ms"`
	CPUSeconds  *float64 `json:"cpu_seconds"`   // of the relay
	MaxRSSBytes *float64 `json:"max_rss_bytes"` // of the relay

	// IntendedLatencyMS: rate: from when the row was due to the consumer.
	IntendedLatencyMS *Latency `json:"intended_latency_ms,omitempty"`
	// AckLatencyMS: rate: commit to the broker's acknowledgement, from the relay's histogram.
	AckLatencyMS *Latency `json:"ack_latency_ms,omitempty"`

	// Of drain: writing the backlog; and from the start of the process to the first record and to
	// the last.
	LoadSeconds         *float64 `json:"load_seconds,omitempty"`
	StartToFirstSeconds *float64 `json:"start_to_first_seconds,omitempty"`
	TotalSeconds        *float64 `json:"total_seconds,omitempty"`
	// Of rate: transactions that were committed, and those not delivered when the writing ended.
	WrittenPerSecond *float64 `json:"written_per_second,omitempty"`
	BehindRows       *float64 `json:"behind_rows,omitempty"`

	WalsenderCPUSeconds *float64 `json:"walsender_cpu_seconds"`
	BrokerCPUSeconds    *float64 `json:"broker_cpu_seconds"`
	RelayCPUPerM        *float64 `json:"cpu_seconds_per_million"` // rows
	WalsenderCPUPerM    *float64 `json:"walsender_cpu_seconds_per_million"`
	BrokerCPUPerM       *float64 `json:"broker_cpu_seconds_per_million"`
	AllocsPerRow        *float64 `json:"allocs_per_row"`      // of the relay
	AllocBytesPerRow    *float64 `json:"alloc_bytes_per_row"` // of the relay
	ProduceRequests     *float64 `json:"produce_requests"`
	ProduceBytes        *float64 `json:"produce_bytes"` // of these requests
	ValueBytes          *float64 `json:"value_bytes"`   // of the records, uncompressed

	// Of idle: written by the whole server; retained for the slot at the end, and at most; from
	// the confirmed position to the server's, at most; received by the relay.
	WALBytes              *float64 `json:"wal_bytes,omitempty"`
	RetainedBytes         *float64 `json:"retained_bytes,omitempty"`
	RetainedMaxBytes      *float64 `json:"retained_max_bytes,omitempty"`
	LagMaxBytes           *float64 `json:"lag_max_bytes,omitempty"`
	ReceivedBytes         *float64 `json:"received_bytes,omitempty"`
	CPUPerSecond          *float64 `json:"cpu_per_second,omitempty"` // of the relay
	WalsenderCPUPerSecond *float64 `json:"walsender_cpu_per_second,omitempty"`
}

// Latency in milliseconds.
type Latency struct {
	P50  *float64 `json:"p50"`
	P95  *float64 `json:"p95"`
	P99  *float64 `json:"p99"`
	P999 *float64 `json:"p999"`
	Max  *float64 `json:"max"`
}

// newLatency sorts the samples. Without any, nothing was measured.
func newLatency(samples []time.Duration) *Latency {
	if len(samples) == 0 {
		return &Latency{}
	}
	slices.Sort(samples)
	ms := func(q float64) *float64 {
		return known(float64(demo.Quantile(samples, q)) / float64(time.Millisecond))
	}
	return &Latency{P50: ms(.5), P95: ms(.95), P99: ms(.99), P999: ms(.999), Max: ms(1)}
}

// bucketLatency estimates quantiles from a histogram of seconds, as Prometheus' histogram_quantile
// does, linear inside of a bucket. The highest value is not known.
func bucketLatency(before, after reading) *Latency {
	if len(after.ackBounds) == 0 || len(before.ackBounds) != len(after.ackBounds) {
		return &Latency{}
	}
	counts := slices.Clone(after.ackCounts)
	for i := range counts {
		counts[i] -= before.ackCounts[i]
	}
	total := counts[len(counts)-1]
	if total == 0 {
		return &Latency{}
	}
	ms := func(q float64) *float64 {
		rank, lower, below := q*total, 0.0, 0.0
		for i, bound := range after.ackBounds {
			if counts[i] >= rank {
				return known((lower + (bound-lower)*(rank-below)/max(1, counts[i]-below)) * 1000)
			}
			lower, below = bound, counts[i]
		}
		return nil // beyond the last bound
	}
	return &Latency{P50: ms(.5), P95: ms(.95), P99: ms(.99), P999: ms(.999)}
}

// known returns a figure with six significant digits or more. Nil: v is no number, since a part of
// it was not measured, or it was divided by zero.
func known(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	if math.Abs(v) >= 1e5 {
		v = math.Round(v)
		return &v
	}
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 6, 64), 64) // its own text
	return &v
}

// costs fills in the figures of the relay's metrics and of the processes. Without rows there is no
// cost of a row.
func (r *run) costs(rows int64) {
	before, after, result := &r.before, &r.after, &r.result
	million := float64(rows) / 1e6
	cpu, walsender := after.cpu-before.cpu, after.walsender-before.walsender
	broker := after.broker - before.broker
	result.CPUSeconds, result.RelayCPUPerM = known(cpu), known(cpu/million)
	result.WalsenderCPUSeconds, result.WalsenderCPUPerM = known(walsender), known(walsender/million)
	result.BrokerCPUSeconds, result.BrokerCPUPerM = known(broker), known(broker/million)
	result.ProduceRequests = known(after.requests - before.requests)
	result.ProduceBytes = known(after.requestBytes - before.requestBytes)
	result.MaxRSSBytes = known(after.rss)
	if rows > 0 {
		result.allocations(before.reading, after.reading)
	}
}

// allocations takes those between two readings.
func (r *Result) allocations(before, after reading) {
	published := after.published
	if !math.IsNaN(before.published) { // the relay has no series before its first acknowledgement
		published -= before.published
	}
	r.AllocsPerRow = known((after.mallocs - before.mallocs) / published)
	r.AllocBytesPerRow = known((after.allocBytes - before.allocBytes) / published)
}

// Spread is the least and the greatest of several runs.
type Spread [2]float64

// merge makes one result of several runs: sums of the audits, medians of the figures, and their
// spread, by their names in JSON.
func merge(runs []Result) (merged Result, spread map[string]Spread) {
	values := map[string][]float64{}
	for i := range runs {
		v := runs[i].Verdict
		merged.Written += v.Written
		merged.Delivered += v.Delivered
		merged.Lost += v.Lost
		merged.Duplicated += v.Duplicated
		merged.OutOfOrder += v.OutOfOrder
		merged.Phantom += v.Phantom
		merged.Partial += v.Partial
		for name, figure := range runs[i].figures() {
			values[name] = append(values[name], figure)
		}
	}
	spread = map[string]Spread{}
	merged.IntendedLatencyMS, merged.LatencyMS, merged.AckLatencyMS = &Latency{}, &Latency{},
		&Latency{}
	walk(reflect.ValueOf(&merged).Elem(), "", func(name string, figure **float64) {
		if seen := values[name]; len(seen) == len(runs) && len(seen) > 0 {
			slices.Sort(seen)
			*figure = known(median(seen))
			spread[name] = Spread{seen[0], seen[len(seen)-1]}
		}
	})
	for _, l := range []**Latency{&merged.IntendedLatencyMS, &merged.AckLatencyMS} {
		if **l == (Latency{}) {
			*l = nil
		}
	}
	return merged, spread
}

// figures are those that were measured, by their names in JSON, such as latency_ms.p99.
func (r *Result) figures() map[string]float64 {
	figures := map[string]float64{}
	walk(reflect.ValueOf(r).Elem(), "", func(name string, figure **float64) {
		if *figure != nil {
			figures[name] = **figure
		}
	})
	return figures
}

// walk visits the figures of a struct by their names in JSON.
func walk(v reflect.Value, prefix string, visit func(name string, figure **float64)) {
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		switch field := v.Field(i).Addr().Interface().(type) {
		case **float64:
			visit(prefix+name, field)
		case **Latency:
			if *field != nil {
				walk(reflect.ValueOf(*field).Elem(), prefix+name+".", visit)
			}
		}
	}
}

func median(sorted []float64) float64 {
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
