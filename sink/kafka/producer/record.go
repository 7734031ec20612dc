package producer

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
)

// record is a producer record that is reused: its allocation would be a good part of the sink's
// cost. It is the context of its own producer record, where the hook finds it again.
type record struct {
	producer kgo.Record
	message  *sink.Message
	topic    *topicQueues
	queue    *partitionQueue
	size     int     // at least what it takes in a batch
	next     *record // behind it in the queue
}

var _ context.Context = (*record)(nil)

// A record never ends; the context of the produce call ends the production.
func (r *record) Deadline() (time.Time, bool) { return time.Time{}, false }
func (r *record) Done() <-chan struct{}       { return nil }
func (r *record) Err() error                  { return nil }
func (r *record) Value(any) any               { return nil }

func (r *record) fill(m *sink.Message) {
	r.message = m
	r.size = kafka.SizeInBatch(m)
	headers := appendHeaders(r.producer.Headers[:0], m)
	r.producer = kgo.Record{Topic: m.Topic, Key: m.Key, Value: m.Value, Headers: headers,
		Timestamp: m.Timestamp, Context: r}
}

// empty lets go of the message's bytes.
func (r *record) empty() {
	clear(r.producer.Headers)
	r.producer.Key, r.producer.Value = nil, nil
	r.message, r.topic, r.queue, r.next = nil, nil, nil, nil
}

// records are those that are free.
type records struct {
	free []*record // the publisher's own: no lock

	mu       sync.Mutex
	returned []*record
}

// take returns a free record. Only the publisher calls it.
func (rs *records) take() *record {
	if len(rs.free) == 0 {
		rs.mu.Lock()
		rs.free, rs.returned = rs.returned, rs.free
		rs.mu.Unlock()
	}
	if n := len(rs.free); n > 0 {
		r := rs.free[n-1]
		rs.free = rs.free[:n-1]
		return r
	}
	return &record{}
}

// putBack returns a record that was taken and not used. Only the publisher calls it.
func (rs *records) putBack(r *record) {
	r.empty()
	rs.free = append(rs.free, r)
}

// giveBack returns records that the client is through with.
func (rs *records) giveBack(used []*record) {
	for _, r := range used {
		r.empty()
	}
	rs.mu.Lock()
	rs.returned = append(rs.returned, used...)
	rs.mu.Unlock()
}

// kafkaRecord is a record that is used once.
func kafkaRecord(m *sink.Message) *kgo.Record {
	r := &kgo.Record{Topic: m.Topic, Key: m.Key, Value: m.Value, Partition: m.Partition,
		Timestamp: m.Timestamp}
	if len(m.Headers) > 0 {
		r.Headers = appendHeaders(make([]kgo.RecordHeader, 0, len(m.Headers)), m)
	}
	return r
}

func appendHeaders(headers []kgo.RecordHeader, m *sink.Message) []kgo.RecordHeader {
	for i := range m.Headers {
		headers = append(headers, kgo.RecordHeader(m.Headers[i]))
	}
	return headers
}
