package bench

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/audit"
	"github.com/postrider/postrider/internal/demo"
)

// Result is one run of a workload, or the medians of several. Its JSON is a contract with scripts: what demo prints, and more. What was not
// measured, or means nothing for the workload, is null or absent.
type Result struct {
	audit.Verdict          // of several runs: the sums
	Seconds       *float64 `json:"seconds"`         // drain: first to last record, by the broker's clock; else of the measured part
	RowsPerSecond *float64 `json:"rows_per_second"` // delivered in these seconds
	LatencyMS     *Latency `json:"latency_ms"`      // rate, idle: commit seen by the writer to record seen by the consumer; drain: start of the relay to append
	CPUSeconds    *float64 `json:"cpu_seconds"`     // of the relay
	MaxRSSBytes   *float64 `json:"max_rss_bytes"`   // of the relay

	IntendedLatencyMS *Latency `json:"intended_latency_ms,omitempty"` // rate: from when the row was due to the consumer
	AckLatencyMS      *Latency `json:"ack_latency_ms,omitempty"`      // rate: commit to the broker's acknowledgement, from the relay's histogram

	LoadSeconds         *float64 `json:"load_seconds,omitempty"`           // drain: writing the backlog
	StartToFirstSeconds *float64 `json:"start_to_first_seconds,omitempty"` // drain: start of the process to the first record
	TotalSeconds        *float64 `json:"total_seconds,omitempty"`          // drain: start of the process to the last record
	WrittenPerSecond    *float64 `json:"written_per_second,omitempty"`     // rate: transactions that were committed
	BehindRows          *float64 `json:"behind_rows,omitempty"`            // rate: committed and not delivered when the writing ended

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

	WALBytes              *float64 `json:"wal_bytes,omitempty"`                // idle: written by the whole server meanwhile
	RetainedBytes         *float64 `json:"retained_bytes,omitempty"`           // idle: kept for the slot, at the end
	RetainedMaxBytes      *float64 `json:"retained_max_bytes,omitempty"`       // idle: and at most
	LagMaxBytes           *float64 `json:"lag_max_bytes,omitempty"`            // idle: from the confirmed position to the server's, at most
	ReceivedBytes         *float64 `json:"received_bytes,omitempty"`           // idle: by the relay from the server
	CPUPerSecond          *float64 `json:"cpu_per_second,omitempty"`           // idle: of the relay
	WalsenderCPUPerSecond *float64 `json:"walsender_cpu_per_second,omitempty"` // idle
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
	ms := func(q float64) *float64 { return known(float64(demo.Quantile(samples, q)) / float64(time.Millisecond)) }
	return &Latency{P50: ms(.5), P95: ms(.95), P99: ms(.99), P999: ms(.999), Max: ms(1)}
}

// bucketLatency estimates quantiles from a histogram of seconds, as Prometheus' histogram_quantile does: a line inside of a bucket. The
// highest value is not known.
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

// known is a figure that was measured, with at most six significant digits.
func known(v float64) *float64 {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		if v != 0 {
			return nil
		}
		return &v
	}
	unit := math.Pow(10, math.Floor(math.Log10(math.Abs(v)))-5)
	if unit < 1 {
		v = math.Round(v/unit) * unit
		v = math.Round(v*1e9) / 1e9
	} else {
		v = math.Round(v)
	}
	return &v
}

// minus is nil if either was not measured.
func minus(a, b *float64) *float64 {
	if a == nil || b == nil {
		return nil
	}
	return known(*a - *b)
}

// times is nil if it was not measured.
func times(a *float64, factor float64) *float64 {
	if a == nil {
		return nil
	}
	return known(*a * factor)
}

// per is a share of something that has to be there: nil if one was not measured, or there was none.
func per(a, b *float64) *float64 {
	if a == nil || b == nil || *b == 0 {
		return nil
	}
	return known(*a / *b)
}

// costs fills in what follows from the relay's readings, the processes' CPU and the number of rows.
func (r *Result) costs(before, after usage, rows int64) {
	perMillion := 1e6 / float64(max(1, rows))
	r.CPUSeconds = minus(after.cpu, before.cpu)
	r.WalsenderCPUSeconds = minus(after.walsender, before.walsender)
	r.BrokerCPUSeconds = minus(after.broker, before.broker)
	r.RelayCPUPerM = times(r.CPUSeconds, perMillion)
	r.WalsenderCPUPerM = times(r.WalsenderCPUSeconds, perMillion)
	r.BrokerCPUPerM = times(r.BrokerCPUSeconds, perMillion)
	r.ProduceRequests = minus(after.requests, before.requests)
	r.ProduceBytes = minus(after.requestBytes, before.requestBytes)
	r.allocations(before.reading, after.reading)
}

func (r *Result) allocations(before, after reading) {
	published := minus(after.published, before.published)
	r.AllocsPerRow = per(minus(after.mallocs, before.mallocs), published)
	r.AllocBytesPerRow = per(minus(after.allocBytes, before.allocBytes), published)
}

// Spread is the least and the greatest of several runs.
type Spread [2]float64

// merge makes one result of several runs: sums of the audits, medians of the figures, and between what they lie, by their names in JSON.
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
		walk(reflect.ValueOf(&runs[i]).Elem(), "", false, func(name string, figure **float64) {
			if *figure != nil {
				values[name] = append(values[name], **figure)
			}
		})
	}
	spread = map[string]Spread{}
	walk(reflect.ValueOf(&merged).Elem(), "", true, func(name string, figure **float64) {
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

// walk visits every figure of a struct, by its path in JSON; fill makes what is nil on the way.
func walk(v reflect.Value, prefix string, fill bool, visit func(name string, figure **float64)) {
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		switch field := v.Field(i).Addr().Interface().(type) {
		case **float64:
			visit(prefix+name, field)
		case **Latency:
			if *field == nil && fill {
				*field = &Latency{}
			}
			if *field != nil {
				walk(reflect.ValueOf(*field).Elem(), prefix+name+".", fill, visit)
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
