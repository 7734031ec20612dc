package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// maxTopics bounds the label topic: topic names come from rows, and a series per row would end the scraper before the relay.
const maxTopics = 200

// otherTopics is the label of all topics beyond maxTopics.
const otherTopics = "other"

// TopicMetrics are the series of one topic, resolved once so that counting a message neither allocates nor locks.
type TopicMetrics struct {
	Published prometheus.Counter // messages acknowledged
	Bytes     prometheus.Counter // their keys, values and headers
}

type topics struct {
	set *Set

	mu    sync.Mutex
	known map[string]*TopicMetrics
	other *TopicMetrics
}

// Topic is the series of a topic. It locks and allocates for a topic that is new: callers keep the result.
// Topics beyond the first 200 share one.
func (s *Set) Topic(topic string) *TopicMetrics {
	t := &s.topics
	t.mu.Lock()
	defer t.mu.Unlock()
	if m, ok := t.known[topic]; ok {
		return m
	}
	if len(t.known) >= maxTopics {
		if t.other == nil {
			t.other = t.newLocked(otherTopics)
		}
		return t.other
	}
	if t.known == nil {
		t.known = make(map[string]*TopicMetrics)
	}
	m := t.newLocked(topic)
	t.known[topic] = m
	return m
}

func (t *topics) newLocked(label string) *TopicMetrics {
	return &TopicMetrics{
		Published: t.set.published.WithLabelValues(label),
		Bytes:     t.set.publishedBytes.WithLabelValues(label),
	}
}
