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
	searched   []TopicSearched
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

// topicQuery is what is looked for in one topic.
type topicQuery struct {
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
		q := &topicQuery{topic: s.Topic, id: s.ID, key: s.Key, since: s.Since, headers: s.idHeaders()}
		err := s.topics.read(ctx, q)
		s.addRecords(q.found)
		return s.kafkaFailure(s.Topic, err)
	}
	for _, q := range s.topicQueries() {
		if err := s.topics.read(ctx, q); err != nil {
			failed = errors.Join(failed, s.kafkaFailure(q.topic, err))
			s.topics.incomplete[q.topic] = true
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

// topicQueries are the events that are in a topic if they are published, by topic.
func (s *search) topicQueries() (all []*topicQuery) {
	byTopic := map[string]*topicQuery{}
	for _, e := range s.events {
		if e.topic == "" || e.ID == "" || e.Row == nil && e.acknowledged == nil {
			continue
		}
		q := byTopic[e.topic]
		if q == nil {
			q = &topicQuery{topic: e.topic, byID: map[string][]*event{}, since: e.since}
			byTopic[e.topic] = q
			all = append(all, q)
		}
		for _, name := range e.headers {
			if !slices.Contains(q.headers, name) {
				q.headers = append(q.headers, name)
			}
		}
		if e.since.Before(q.since) { // zero is before
			q.since = e.since
		}
		q.events = append(q.events, e)
		q.left++
		q.byID[e.ID] = append(q.byID[e.ID], e)
		if id := string(e.idValue); e.idValue != nil && id != e.ID {
			q.byID[id] = append(q.byID[id], e)
		}
	}
	for _, q := range all {
		if !s.Since.IsZero() {
			q.since = s.Since
		}
	}
	return all
}

// take keeps a record that is one of those that are looked for.
func (q *topicQuery) take(r *kgo.Record) {
	value := idOf(r, q.headers)
	switch {
	case q.key == nil && value == nil:
	case q.byID != nil:
		of := q.byID[string(value)]
		if of == nil {
			of = q.byID[string(audit.PlainText(value))]
		}
		for _, e := range of {
			// The id alone decides, unless rows share it.
			if len(of) == 1 || bytes.Equal(e.key, r.Key) {
				if len(e.Records) == 0 {
					q.left--
				}
				e.Records = append(e.Records, recordOf(r, value))
			}
		}
	case q.key != nil:
		if r.Key != nil && (string(r.Key) == *q.key || string(audit.PlainText(r.Key)) == *q.key) {
			q.found = append(q.found, recordOf(r, value))
		}
	case string(value) == q.id || string(audit.PlainText(value)) == q.id:
		q.found = append(q.found, recordOf(r, value))
	}
}

// done reports whether every event was found. Those of a key without rows are not counted.
func (q *topicQuery) done() bool {
	if q.byID == nil {
		return q.key == nil && len(q.found) > 0
	}
	return q.left == 0
}

// read reads a topic: the partitions of the keys first, the others for events that are not found
// there, as after partitions were added.
func (t *topics) read(ctx context.Context, q *topicQuery) error {
	spans, err := t.reader.Spans(ctx, q.topic, q.since)
	if errors.Is(err, sink.ErrUnknownTopic) {
		t.missing[q.topic] = true
		return nil
	}
	if err != nil {
		return err
	}
	expected := q.expect(len(spans))
	slices.SortStableFunc(spans, func(a, b topicreader.Span) int {
		return order(!expected[a.Partition], !expected[b.Partition])
	})
	for _, span := range spans {
		if q.done() {
			return nil
		}
		read := t.forward
		if q.since.IsZero() {
			read = t.backward
		}
		if err := read(ctx, q, span); err != nil {
			return err
		}
	}
	if q.done() {
		return nil
	}
	whole, err := t.reader.Whole(ctx, q.topic)
	t.partial[q.topic] = !whole
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
func (q *topicQuery) expect(n int) map[int32]bool {
	expected := map[int32]bool{}
	if q.key != nil {
		expected[int32(producer.KeyHash([]byte(*q.key))%int64(n))] = true //nolint:gosec // below n
	}
	for _, e := range q.events {
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
func (t *topics) forward(ctx context.Context, q *topicQuery, span topicreader.Span) error {
	l := newSearched(span)
	tail := t.tail
	err := t.scan(ctx, q, span, &l, func() error {
		if q.done() {
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
	return t.end(q, l, err)
}

// firstWindow is how many offsets of a partition are read first from its end; each further time it
// is twice as many.
const firstWindow = 10_000

// backward reads a span from its end: of rows without a time the newest are the likeliest. It
// goes on for as many records as forward does, since what it finds may be a repetition.
func (t *topics) backward(ctx context.Context, q *topicQuery, span topicreader.Span) error {
	l := newSearched(span)
	l.From, l.To = span.End, span.End
	var err error
	more := true
	for window := int64(firstWindow); err == nil && l.From > span.From && more; window *= 2 {
		if more = !q.done(); !more {
			window = int64(t.tail)
		}
		part := span
		part.From, part.End = max(span.From, l.From-window), l.From
		err = t.scan(ctx, q, part, &l, func() error { return nil })
		switch {
		case err == nil:
			l.From, l.To = part.From, span.End
		case l.From < span.End:
			l.To = span.End
		default: // not even the newest
			l.From = part.From
		}
	}
	return t.end(q, l, err)
}

func newSearched(span topicreader.Span) TopicSearched {
	return TopicSearched{Topic: span.Topic, Partition: span.Partition, From: span.From, To: span.From,
		End: span.End}
}

// scan reads a span until each or the limit ends it.
func (t *topics) scan(ctx context.Context, q *topicQuery, span topicreader.Span, l *TopicSearched,
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
		q.take(r)
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
func (t *topics) end(q *topicQuery, l TopicSearched, err error) error {
	switch {
	case errors.Is(err, errLimit) && !q.done():
		t.incomplete[q.topic] = true
		err = nil
	case err == nil, errors.Is(err, errFound), errors.Is(err, errLimit):
		l.Complete, err = true, nil
	}
	if l.Records > 0 || l.From < l.End {
		t.searched = append(t.searched, l)
	}
	return err
}
