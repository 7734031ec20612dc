package topicreader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
)

// Span is a part of a partition: the offsets from From up to End, that one not included.
type Span struct {
	Topic     string
	Partition int32
	From, End int64
}

// Spans are the partitions of a topic as they are now, from their first records on, or from the
// first at or after since if that is not zero. sink.ErrUnknownTopic: it does not exist.
func (r *Reader) Spans(ctx context.Context, topic string, since time.Time) ([]Span, error) {
	var spans []Span
	err := r.retry(ctx, topic, func(ctx context.Context) error {
		spans = nil
		listed, err := r.listEnds(ctx, topic)
		if err != nil {
			return err
		}
		ends, err := inOrder(listed[topic])
		if errors.Is(kafka.Class(err), sink.ErrUnknownTopic) {
			return cmp.Or(r.isMissing(ctx, topic), err)
		}
		if err != nil {
			return err
		}
		if since.IsZero() {
			listed, err = r.admin.ListStartOffsets(ctx, topic)
		} else {
			listed, err = r.admin.ListOffsetsAfterMilli(ctx, since.UnixMilli(), topic)
		}
		if err != nil {
			return err
		}
		starts, err := inOrder(listed[topic])
		for p := range min(len(starts), len(ends)) {
			from := min(starts[p], ends[p])                             // the end: no record is that young
			spans = append(spans, Span{topic, int32(p), from, ends[p]}) //nolint:gosec // 32 bits in Kafka
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the offsets of topic %q: %w", topic, err)
	}
	return spans, nil
}

// Whole reports whether a topic still has every record that was published to it: none was deleted
// by retention, and none is by compaction. A topic that does not exist is a sink.ErrUnknownTopic.
func (r *Reader) Whole(ctx context.Context, topic string) (bool, error) {
	spans, err := r.Spans(ctx, topic, time.Time{})
	if err != nil {
		return false, err
	}
	for _, s := range spans {
		if s.From > 0 {
			return false, nil
		}
	}
	return !r.client.IsCompacted(ctx, topic), nil
}

// Read hands over the records of the spans, one span after the other, each by offset. What was
// deleted meanwhile is left out. An error of each ends it and is returned.
func (r *Reader) Read(ctx context.Context, spans []Span,
	each func(m *sink.Message, offset int64) error) error {
	for _, s := range spans {
		err := r.Scan(ctx, s, fetchBytes, func(record *kgo.Record) error {
			if record.Attrs.IsControl() {
				return nil
			}
			return each(Message(record), record.Offset)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Scan is Read for one span with the client's records, control records too, about bytes at a time;
// 0: as many as for Read.
func (r *Reader) Scan(ctx context.Context, s Span, bytes int32,
	each func(*kgo.Record) error) error {
	if bytes == 0 {
		bytes = fetchBytes
	}
	stall := kafka.NewStall(r.client.Config.DeliveryTimeout)
	for next := s.From; next < s.End; {
		answers, err := r.Fetch(ctx, s.Topic, map[int32]int64{s.Partition: next}, bytes, fetchWait)
		if err == nil {
			err = stall.Look(ctx, answers[0].Next > next)
		}
		if err != nil {
			return fmt.Errorf("read partition %d of topic %q at offset %d: %w", s.Partition, s.Topic, next,
				err)
		}
		for _, record := range answers[0].Records {
			if record.Offset >= s.End {
				return nil
			}
			if err := each(record); err != nil {
				return err
			}
		}
		next = answers[0].Next
	}
	return nil
}
