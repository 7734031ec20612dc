package producer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/sink/kafka/topicreader"
)

// deadLetterBytes is the size of a fetch request. A larger batch is returned whole.
const deadLetterBytes = 4 << 20

// Read calls each with the records since the last Read, up to the end that each partition has at
// first. If there are none it waits for some, up to wait. Records of a transaction are delivered
// when it is committed. An open transaction does not delay the records after it.
func (d *DeadLetters) Read(ctx context.Context, wait time.Duration,
	each func(m *sink.Message, offset int64)) error {
	if err := d.read(ctx, wait, each); err != nil {
		return fmt.Errorf("read topic %q: %w", d.topic, err)
	}
	return nil
}

// Undecided reports whether records were read of transactions whose end was not. Kafka writes its
// markers a moment after a producer has committed.
func (d *DeadLetters) Undecided() bool { return len(d.transactions.Open) > 0 }

func (d *DeadLetters) read(ctx context.Context, wait time.Duration,
	each func(m *sink.Message, offset int64)) error {
	n, err := d.client.Partitions(ctx, d.topic)
	if err != nil {
		return err
	}
	left := map[int32]int64{} // next offsets of the partitions that are not read to their ends
	for p := range n {
		left[p] = d.next[p]
	}
	ends, delivered := map[int32]int64{}, false
	deliver := func(m *sink.Message, offset int64) { delivered = true; each(m, offset) }
	if err := d.deliverCommitted(ctx, deliver); err != nil { // the rest after an error
		return err
	}
	for stall := kafka.NewStall(d.cfg.DeliveryTimeout); len(left) > 0; {
		answers, err := d.reader.Fetch(ctx, d.topic, left, deadLetterBytes, wait)
		if err != nil {
			return err
		}
		wait = 0
		advanced := false
		for _, a := range answers {
			if _, known := ends[a.Partition]; !known && a.End >= 0 {
				ends[a.Partition], advanced = a.End, true
			}
			advanced = advanced || a.Next > d.next[a.Partition]
			if err := d.take(ctx, a, deliver); err != nil {
				return err
			}
			left[a.Partition] = a.Next
			if end, known := ends[a.Partition]; known && a.Next >= end {
				delete(left, a.Partition)
			}
		}
		if err := stall.Look(ctx, advanced); err != nil {
			return err
		}
	}
	if !delivered {
		return kafka.Pause(ctx, kafka.ReadPause)
	}
	return nil
}

// take delivers the records of an answer that are committed or of no transaction.
func (d *DeadLetters) take(ctx context.Context, a topicreader.Fetched,
	each func(m *sink.Message, offset int64)) error {
	for _, r := range a.Records {
		d.next[a.Partition] = r.Offset + 1
		for _, offset := range d.transactions.Add(r, r.Offset) {
			if offset == r.Offset {
				each(topicreader.Message(r), offset)
			} else {
				d.committed = append(d.committed, deadLetterOffset{a.Partition, offset})
			}
		}
		if err := d.deliverCommitted(ctx, each); err != nil {
			return err
		}
	}
	d.next[a.Partition] = a.Next
	return nil
}

// deliverCommitted reads the records in committed again and delivers them. After an error the next
// call continues.
func (d *DeadLetters) deliverCommitted(ctx context.Context,
	each func(m *sink.Message, offset int64)) error {
	for len(d.committed) > 0 {
		at := d.committed[0]
		m, err := d.Get(ctx, at.partition, at.offset)
		if err != nil {
			return err
		}
		if m != nil { // not deleted meanwhile
			each(m, at.offset)
		}
		d.committed = d.committed[1:]
	}
	return nil
}

// Get reads one record, or returns nil if it was deleted.
func (d *DeadLetters) Get(ctx context.Context, partition int32,
	offset int64) (*sink.Message, error) {
	if m, ok := d.find(partition, offset); ok {
		return m, nil
	}
	answers, err := d.reader.Fetch(ctx, d.topic, map[int32]int64{partition: offset}, deadLetterBytes,
		0)
	if err == nil && answers[0].Next <= offset {
		err = fmt.Errorf("%w: the leader does not let it be read yet", sink.ErrUnreachable)
	}
	if err != nil {
		return nil, fmt.Errorf("read offset %d of partition %d of topic %q: %w", offset, partition,
			d.topic, err)
	}
	d.fetched = answers[0]
	m, _ := d.find(partition, offset)
	return m, nil
}

// find looks for a record in the last answer to Get. It returns nil and true if the answer covers
// the offset and has no record there.
func (d *DeadLetters) find(partition int32, offset int64) (m *sink.Message, ok bool) {
	f, rs := &d.fetched, d.fetched.Records
	if len(rs) == 0 || f.Partition != partition || offset < rs[0].Offset || offset >= f.Next {
		return nil, false
	}
	at, found := slices.BinarySearchFunc(rs, offset,
		func(r *kgo.Record, offset int64) int { return int(r.Offset - offset) })
	if !found || rs[at].Attrs.IsControl() {
		return nil, true
	}
	return topicreader.Message(rs[at]), true
}
