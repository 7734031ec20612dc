package metrics

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// maxTopics bounds the label topic: topic names come from rows, and a scraper cannot take a series
// per row.
const maxTopics = 200

// otherTopics is the label of all topics beyond maxTopics.
const otherTopics = "other"

// TopicMetrics are the series of one topic.
type TopicMetrics struct {
	Published prometheus.Counter // messages acknowledged
	Bytes     prometheus.Counter // their keys, values and headers
	Last      prometheus.Gauge   // Unix time of the last one, in seconds
}

type topics struct {
	series struct {
		Published *prometheus.CounterVec `name:"sink_published_total" labels:"topic"`
		Bytes     *prometheus.CounterVec `name:"sink_published_bytes_total" labels:"topic"`
		Last      *prometheus.GaugeVec   `name:"sink_last_published_timestamp_seconds" labels:"topic"`
	}

	known atomic.Pointer[map[string]*TopicMetrics] // by label; replaced as a whole, never written
	mu    sync.Mutex                               // locked to replace known
}

// Topic returns the series of a topic; topics beyond the first 200 share one. For a known topic it
// neither locks nor allocates.
func (s *Set) Topic(topic string) *TopicMetrics {
	if m, ok := (*s.topics.known.Load())[topic]; ok {
		return m
	}
	return s.topics.add(topic)
}

func (t *topics) add(topic string) *TopicMetrics {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := *t.known.Load()
	label := topic
	if known[topic] == nil && len(known) >= maxTopics {
		label = otherTopics
	}
	if m := known[label]; m != nil {
		return m
	}
	label = strings.Clone(label) // it may be a part of a whole batch of rows
	m := &TopicMetrics{
		Published: t.series.Published.WithLabelValues(label),
		Bytes:     t.series.Bytes.WithLabelValues(label),
		Last:      t.series.Last.WithLabelValues(label),
	}
	more := maps.Clone(known)
	more[label] = m
	t.known.Store(&more)
	return m
}
