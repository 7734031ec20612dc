package producer

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
)

// record is a message and its reused kgo.Record: an allocation for each would be a good part of
// the sink's cost. It is the Context of that kgo.Record, so that the hook can find it.
type record struct {
	kgo     kgo.Record
	message *sink.Message
	topic   *topicQueues
	queue   *partitionQueue
	size    int     // upper bound of its bytes in a batch
	next    *record // in the queue
}

var _ context.Context = (*record)(nil)

// The methods of context.Context: a record is never canceled, only the context of ProduceSync is.
func (r *record) Deadline() (time.Time, bool) { return time.Time{}, false }
func (r *record) Done() <-chan struct{}       { return nil }
func (r *record) Err() error                  { return nil }
func (r *record) Value(any) any               { return nil }

func (r *record) fill(m *sink.Message) {
	r.message = m
	r.size = kafka.SizeInBatch(m)
	headers := appendHeaders(r.kgo.Headers[:0], m)
	r.kgo = kgo.Record{Topic: m.Topic, Key: m.Key, Value: m.Value, Headers: headers,
		Timestamp: m.Timestamp, Context: r}
}

// reset drops all references to the message and its bytes.
func (r *record) reset() {
	clear(r.kgo.Headers)
	r.kgo.Key, r.kgo.Value = nil, nil
	r.message, r.topic, r.queue, r.next = nil, nil, nil, nil
}

// recordPool holds free records.
type recordPool struct {
	free []*record // only Publish uses it, without lock

	mu       sync.Mutex // guards returned
	returned []*record
}

// get returns a free record. Only Publish calls it.
func (p *recordPool) get() *record {
	if len(p.free) == 0 {
		p.mu.Lock()
		p.free, p.returned = p.returned, p.free
		p.mu.Unlock()
	}
	if n := len(p.free); n > 0 {
		r := p.free[n-1]
		p.free = p.free[:n-1]
		return r
	}
	return &record{}
}

// putUnused frees a record that the client did not get. Only Publish calls it.
func (p *recordPool) putUnused(r *record) {
	r.reset()
	p.free = append(p.free, r)
}

// put frees records that the client has reported.
func (p *recordPool) put(used []*record) {
	for _, r := range used {
		r.reset()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if room := recordsKept - len(p.returned); room < len(used) {
		used = used[:max(room, 0)]
	}
	p.returned = append(p.returned, used...)
}

// recordsKept is how many free records are kept: more than the relay's default limits have in
// flight, unless partitions were stalled.
const recordsKept = 10_000

// kafkaRecord returns a new kgo.Record for a message.
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
