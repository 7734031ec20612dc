package kafka

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/IBM/sarama"

	"postrider/sink"
)

// record is a producer message with room for what sarama wants as objects of its own, reused from message to message:
// at 100,000 messages a second their allocation would be a third of the sink's cost.
type record struct {
	producer   sarama.ProducerMessage // Metadata points back to the record
	key, value encoded
	headers    []sarama.RecordHeader
	names      []byte // header names, as bytes
	size       int    // as sarama counts it, with overhead

	message  *sink.Message
	sequence uint64 // order of publishing
	inFlight atomic.Bool
}

// encoded hands bytes to sarama without a copy. Nil bytes stand for null: then the encoder itself must be absent.
type encoded struct {
	bytes   []byte
	claimed int // as how many bytes sarama is to count them while it puts batches together; see travelAlone
}

func (e *encoded) Encode() ([]byte, error) { return e.bytes, nil }
func (e *encoded) Length() int             { return e.claimed }

func (r *record) fill(m *sink.Message) {
	r.message = m
	p := &r.producer
	p.Topic, p.Partition, p.Timestamp = m.Topic, m.Partition, m.Timestamp
	p.Key, p.Value = nil, nil
	if m.Key != nil {
		r.key = encoded{m.Key, len(m.Key)}
		p.Key = &r.key
	}
	if m.Value != nil {
		r.value = encoded{m.Value, len(m.Value)}
		p.Value = &r.value
	}

	n := 0
	for i := range m.Headers {
		n += len(m.Headers[i].Key)
	}
	names := slices.Grow(r.names[:0], n) // grown once: the headers hold parts of it
	headers := r.headers[:0]
	for i := range m.Headers {
		at := len(names)
		names = append(names, m.Headers[i].Key...)
		headers = append(headers, sarama.RecordHeader{Key: names[at:len(names):len(names)], Value: m.Headers[i].Value})
	}
	r.names, r.headers = names, headers
	p.Headers = headers
	r.size = p.ByteSize(2)
}

// empty lets go of the message's bytes.
func (r *record) empty() {
	r.message = nil
	r.key, r.value = encoded{}, encoded{}
	r.producer.Key, r.producer.Value = nil, nil
	r.producer.Headers = nil
	clear(r.headers)
}

// records owns all records of a sink. A record is free, filled by the publisher, or in flight; the step out of "in
// flight" is taken once, by whoever reports the message.
type records struct {
	mu       sync.Mutex
	all      []*record // as many as were ever in flight at the same time
	returned []*record // free again, left by the result loop

	free     []*record // the publisher's own: no lock
	sequence uint64    // the publisher's own
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
	r := &record{}
	r.producer.Metadata = r
	rs.mu.Lock()
	rs.all = append(rs.all, r)
	rs.mu.Unlock()
	return r
}

// putBack returns a record that was taken and never launched. Only the publisher calls it.
func (rs *records) putBack(r *record) {
	r.empty()
	rs.free = append(rs.free, r)
}

// launch marks a record as in flight. Only the publisher calls it.
func (rs *records) launch(r *record) {
	rs.sequence++
	r.sequence = rs.sequence
	r.inFlight.Store(true)
}

// land takes a record out of flight. False: its message was reported already.
func (rs *records) land(r *record) bool { return r.inFlight.CompareAndSwap(true, false) }

// reuse gives a landed record back, once sarama is through with it.
func (rs *records) reuse(r *record) {
	r.empty()
	rs.mu.Lock()
	rs.returned = append(rs.returned, r)
	rs.mu.Unlock()
}

// landAll takes what is still in flight out of it, in the order of publishing.
func (rs *records) landAll() []*record {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	var landed []*record
	for _, r := range rs.all {
		if rs.land(r) {
			landed = append(landed, r)
		}
	}
	slices.SortFunc(landed, func(a, b *record) int { return cmp.Compare(a.sequence, b.sequence) })
	return landed
}
