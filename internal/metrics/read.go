package metrics

import (
	"slices"
	"strings"

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
	readings := make([]TopicReading, 0, len(known)+1)
	for name, m := range known {
		readings = append(readings, m.reading(name))
	}
	s.topics.mu.Lock()
	other := s.topics.other
	s.topics.mu.Unlock()
	if other != nil {
		readings = append(readings, other.reading(otherTopics))
	}
	slices.SortFunc(readings, func(a, b TopicReading) int {
		return strings.Compare(a.Topic, b.Topic)
	})
	return readings
}

func (m *TopicMetrics) reading(name string) TopicReading {
	return TopicReading{
		Topic:     name,
		Published: read(m.Published).GetCounter().GetValue(),
		Bytes:     read(m.Bytes).GetCounter().GetValue(),
		Last:      read(m.Last).GetGauge().GetValue(),
	}
}

// Failed is the number of messages that the sink reported as failed.
func (s *Set) Failed() float64 {
	collected := make(chan prometheus.Metric)
	go func() {
		defer close(collected)
		s.PublishErrors.Collect(collected)
	}()
	total := 0.0
	for m := range collected {
		total += read(m).GetCounter().GetValue()
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

func read(m prometheus.Metric) *dto.Metric {
	out := new(dto.Metric)
	if err := m.Write(out); err != nil {
		// Only for a label that is not UTF-8.
		panic("metrics: a series cannot be written: " + err.Error())
	}
	return out
}
