package trace

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/internal/audit"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/sink/kafka/producer"
	"github.com/postrider/postrider/sink/kafka/topicreader"
)

// topics reads topics within a limit.
type topics struct {
	reader *topicreader.Reader
	left   int64 // bytes that may be read still
	// tail is how many records behind the first of an event are read: a relay that starts again
	// repeats what was in flight, and no more.
	tail       int
	looked     []TopicLooked
	incomplete map[string]bool // topics of which not all was read that could have a record
	partial    map[string]bool // topics that lack records that were published to them
	missing    map[string]bool // topics that do not exist
}

func openTopics(ctx context.Context, cfg config.Config, limit int64) (*topics, error) {
	// Committed records only: what consumers see of a relay with exactly_once.
	reader, err := topicreader.Open(ctx, cfg.Sink.Kafka, true)
	if err != nil {
		return nil, err
	}
	return &topics{reader: reader, left: limit, tail: cfg.Relay.InFlightMessages,
		incomplete: map[string]bool{}, partial: map[string]bool{}, missing: map[string]bool{}}, nil
}

// readCommand gives our login the rights to read a topic.
func readCommand(cfg kafka.Config, topic string) string {
	return kafka.AllowCommand(cfg, "--operation Describe --operation Read --topic "+topic)
}

// hunt is what is looked for in one topic.
type hunt struct {
	topic   string
	headers []string            // that may have the id
	byID    map[string][]*event // rows, by the value of the header and by the plain id
	events  []*event            // the same
	left    int                 // of these, without a record
	id      string              // without rows: the id, or
	key     *string             // the key of the records
	since   time.Time           // zero: not known
	found   []Record            // without rows
}

// readTopics reads the topics to which the rows are routed, or the one that the request names.
func (s *search) readTopics(ctx context.Context) (failed error) {
	if s.Topic != "" {
		if s.Since.IsZero() {
			s.Since = time.Now().Add(-topicSince)
		}
		h := &hunt{topic: s.Topic, id: s.ID, key: s.Key, since: s.Since, headers: s.idHeaders()}
		err := s.topics.read(ctx, h)
		s.addRecords(h.found)
		return s.kafkaFailure(s.Topic, err)
	}
	for _, h := range s.hunts() {
		if err := s.topics.read(ctx, h); err != nil {
			failed = errors.Join(failed, s.kafkaFailure(h.topic, err))
			s.topics.incomplete[h.topic] = true
		}
	}
	return failed
}

// idHeaders are the names that the header with the id may have.
func (s *search) idHeaders() []string {
	names := []string{"id"}
	for i := range s.cfg.Router {
		names = append(names, s.cfg.Router[i].HeaderID)
	}
	return names
}

// hunts are the events that are in a topic if they are published, by topic.
func (s *search) hunts() (all []*hunt) {
	byTopic := map[string]*hunt{}
	for _, e := range s.events {
		if e.topic == "" || e.ID == "" || e.Row == nil && e.acknowledged == nil {
			continue
		}
		h := byTopic[e.topic]
		if h == nil {
			h = &hunt{topic: e.topic, byID: map[string][]*event{}, since: e.since}
			byTopic[e.topic] = h
			all = append(all, h)
		}
		for _, name := range e.headers {
			if !slices.Contains(h.headers, name) {
				h.headers = append(h.headers, name)
			}
		}
		if e.since.Before(h.since) { // zero is before
			h.since = e.since
		}
		h.events = append(h.events, e)
		h.left++
		h.byID[e.ID] = append(h.byID[e.ID], e)
		if id := string(e.idValue); e.idValue != nil && id != e.ID {
			h.byID[id] = append(h.byID[id], e)
		}
	}
	for _, h := range all {
		if !s.Since.IsZero() {
			h.since = s.Since
		}
	}
	return all
}

// take keeps a record that is one of those that are looked for.
func (h *hunt) take(r *kgo.Record) {
	value := idOf(r, h.headers)
	switch {
	case h.key == nil && value == nil:
	case h.byID != nil:
		of := h.byID[string(value)]
		if of == nil {
			of = h.byID[string(audit.PlainText(value))]
		}
		for _, e := range of {
			// The id alone decides, unless rows share it.
			if len(of) == 1 || bytes.Equal(e.key, r.Key) {
				if len(e.Records) == 0 {
					h.left--
				}
				e.Records = append(e.Records, recordOf(r, value))
			}
		}
	case h.key != nil:
		if r.Key != nil && (string(r.Key) == *h.key || string(audit.PlainText(r.Key)) == *h.key) {
			h.found = append(h.found, recordOf(r, value))
		}
	case string(value) == h.id || string(audit.PlainText(value)) == h.id:
		h.found = append(h.found, recordOf(r, value))
	}
}

// done reports whether every event was found. Those of a key without rows are not counted.
func (h *hunt) done() bool {
	if h.byID == nil {
		return h.key == nil && len(h.found) > 0
	}
	return h.left == 0
}

// read reads a topic: the partitions of the keys first, the others for events that are not found
// there, as after partitions were added.
func (t *topics) read(ctx context.Context, h *hunt) error {
	spans, err := t.reader.Spans(ctx, h.topic, h.since)
	if errors.Is(err, sink.ErrUnknownTopic) {
		t.missing[h.topic] = true
		return nil
	}
	if err != nil {
		return err
	}
	expected := h.expect(len(spans))
	slices.SortStableFunc(spans, func(a, b topicreader.Span) int {
		return order(!expected[a.Partition], !expected[b.Partition])
	})
	for _, span := range spans {
		if h.done() {
			return nil
		}
		read := t.forward
		if h.since.IsZero() {
			read = t.backward
		}
		if err := read(ctx, h, span); err != nil {
			return err
		}
	}
	if h.done() {
		return nil
	}
	whole, err := t.reader.Whole(ctx, h.topic)
	t.partial[h.topic] = !whole
	return err
}

// order is that of false before true.
func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// expect returns the partitions that the records have by their keys, of n.
func (h *hunt) expect(n int) map[int32]bool {
	expected := map[int32]bool{}
	if h.key != nil {
		expected[int32(producer.KeyHash([]byte(*h.key))%int64(n))] = true //nolint:gosec // below n
	}
	for _, e := range h.events {
		if e.hash >= 0 {
			e.partition = int32(e.hash % int64(n)) //nolint:gosec // below n
			e.Route.Partition = &e.partition
		}
		if e.partition >= 0 {
			expected[e.partition] = true
		}
	}
	return expected
}

// What ends the reading of a span.
var (
	errFound = errors.New("found")
	errLimit = errors.New("limit reached")
)

// forward reads a span from its beginning, up to some records behind what is looked for.
func (t *topics) forward(ctx context.Context, h *hunt, span topicreader.Span) error {
	l := newLooked(span)
	tail := t.tail
	err := t.scan(ctx, h, span, &l, func() error {
		if h.done() {
			tail--
		}
		if tail < 0 {
			return errFound
		}
		return nil
	})
	if err == nil {
		l.To = span.End
	}
	return t.end(h, l, err)
}

// firstWindow is how many offsets of a partition are read first from its end; each further time it
// is twice as many.
const firstWindow = 10_000

// backward reads a span from its end: of rows without a time the newest are the likeliest. It
// goes on for as many records as forward does, since what it finds may be a repetition.
func (t *topics) backward(ctx context.Context, h *hunt, span topicreader.Span) error {
	l := newLooked(span)
	l.From, l.To = span.End, span.End
	var err error
	more := true
	for window := int64(firstWindow); err == nil && l.From > span.From && more; window *= 2 {
		if more = !h.done(); !more {
			window = int64(t.tail)
		}
		part := span
		part.From, part.End = max(span.From, l.From-window), l.From
		err = t.scan(ctx, h, part, &l, func() error { return nil })
		switch {
		case err == nil:
			l.From, l.To = part.From, span.End
		case l.From < span.End:
			l.To = span.End
		default: // not even the newest
			l.From = part.From
		}
	}
	return t.end(h, l, err)
}

func newLooked(span topicreader.Span) TopicLooked {
	return TopicLooked{Topic: span.Topic, Partition: span.Partition, From: span.From, To: span.From,
		End: span.End}
}

// scan reads a span until each or the limit ends it.
func (t *topics) scan(ctx context.Context, h *hunt, span topicreader.Span, l *TopicLooked,
	each func() error) error {
	if t.left <= 0 && span.From < span.End {
		return errLimit
	}
	return t.reader.Scan(ctx, span, 0, func(r *kgo.Record) error {
		l.To = r.Offset + 1
		if r.Attrs.IsControl() {
			return nil
		}
		l.Records++
		if l.First.IsZero() || r.Timestamp.Before(l.First) {
			l.First = r.Timestamp.UTC()
		}
		if r.Timestamp.After(l.Last) {
			l.Last = r.Timestamp.UTC()
		}
		h.take(r)
		if err := each(); err != nil {
			return err
		}
		if t.left -= int64(size(r)); t.left <= 0 {
			return errLimit
		}
		return nil
	})
}

// size is that of a record in memory.
func size(r *kgo.Record) int {
	n := len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}

// end notes what was read of a partition.
func (t *topics) end(h *hunt, l TopicLooked, err error) error {
	switch {
	case errors.Is(err, errLimit) && !h.done():
		t.incomplete[h.topic] = true
		err = nil
	case err == nil, errors.Is(err, errFound), errors.Is(err, errLimit):
		l.Complete, err = true, nil
	}
	if l.Records > 0 || l.From < l.End {
		t.looked = append(t.looked, l)
	}
	return err
}
