package metrics

import (
	"iter"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// TopicReading holds the values of the series of a topic.
type TopicReading struct {
	Topic     string
	Published float64 // messages acknowledged
	Bytes     float64
	Last      float64 // Unix time of the last one, in seconds
}

// Topics reads the series of all topics, by name.
func (s *Set) Topics() []TopicReading {
	known := *s.topics.known.Load()
	readings := make([]TopicReading, 0, len(known))
	for _, name := range slices.Sorted(maps.Keys(known)) {
		m := known[name]
		readings = append(readings, TopicReading{
			Topic:     name,
			Published: read(m.Published).GetCounter().GetValue(),
			Bytes:     read(m.Bytes).GetCounter().GetValue(),
			Last:      read(m.Last).GetGauge().GetValue(),
		})
	}
	return readings
}

// Failed is the number of messages that the sink reported as failed.
func (s *Set) Failed() (total float64) {
	for m := range collect(s.PublishErrors) {
		total += m.GetCounter().GetValue()
	}
	return total
}

// Latency reads CommitToAck: how many observations lie at or below each bound, in seconds, and as
// last count that of all.
func (s *Set) Latency() (bounds []float64, counts []uint64) {
	h := read(s.CommitToAck).GetHistogram()
	for _, b := range h.GetBucket() {
		bounds = append(bounds, b.GetUpperBound())
		counts = append(counts, b.GetCumulativeCount())
	}
	return bounds, append(counts, h.GetSampleCount())
}

// collect returns the series of a collector.
func collect(c prometheus.Collector) iter.Seq[*dto.Metric] {
	return func(yield func(*dto.Metric) bool) {
		metrics := make(chan prometheus.Metric)
		go func() { // ends with the range below, which reads to the end
			defer close(metrics)
			c.Collect(metrics)
		}()
		more := true
		for m := range metrics {
			more = more && yield(read(m))
		}
	}
}

func read(m prometheus.Metric) *dto.Metric {
	out := new(dto.Metric)
	if err := m.Write(out); err != nil {
		// Only for a label that is not UTF-8.
		panic("metrics: a series cannot be written: " + err.Error())
	}
	return out
}
