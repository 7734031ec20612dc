package metrics

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// maxTopics bounds the label topic: topic names come from rows, and a series per row would end the scraper before the relay.
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
	set *Set

	known atomic.Pointer[map[string]*TopicMetrics] // replaced as a whole, never written
	mu    sync.Mutex                               // held by who replaces known
	other *TopicMetrics                            // nil until it is needed
}

// Topic is the series of a topic; topics beyond the first 200 share one. For a topic that is known it neither locks nor
// allocates.
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
	if m, ok := known[topic]; ok {
		return m
	}
	if len(known) >= maxTopics {
		if t.other == nil {
			t.other = t.resolve(otherTopics)
		}
		return t.other
	}
	topic = strings.Clone(topic) // its memory may be that of a whole batch of rows
	more := maps.Clone(known)
	m := t.resolve(topic)
	more[topic] = m
	t.known.Store(&more)
	return m
}

func (t *topics) resolve(label string) *TopicMetrics {
	return &TopicMetrics{
		Published: t.set.published.WithLabelValues(label),
		Bytes:     t.set.publishedBytes.WithLabelValues(label),
		Last:      t.set.lastPublished.WithLabelValues(label),
	}
}
