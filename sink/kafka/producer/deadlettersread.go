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

// deadLetterBytes is what one request asks for; a larger batch comes as a whole.
const deadLetterBytes = 4 << 20

// Read hands over the records from the end of the last Read, until every partition was read to the
// end that it had at first. If there are none it waits up to wait for some. Records of a transaction
// come when it is committed; records behind an open one come before that.
func (d *DeadLetters) Read(ctx context.Context, wait time.Duration,
	each func(m *sink.Message, offset int64)) error {
	if err := d.read(ctx, wait, each); err != nil {
		return fmt.Errorf("read topic %q: %w", d.topic, err)
	}
	return nil
}

func (d *DeadLetters) read(ctx context.Context, wait time.Duration,
	each func(m *sink.Message, offset int64)) error {
	n, err := d.client.Partitions(ctx, d.topic)
	if err != nil {
		return err
	}
	left := map[int32]int64{} // partitions that are not at their ends, and where they are read
	for p := range n {
		left[p] = d.next[p]
	}
	ends, handed := map[int32]int64{}, false
	hand := func(m *sink.Message, offset int64) { handed = true; each(m, offset) }
	if err := d.handCommitted(ctx, hand); err != nil { // what an error left behind
		return err
	}
	for stall := kafka.NewStall(d.cfg.DeliveryTimeout); len(left) > 0; {
		answers, err := d.reader.Fetch(ctx, d.topic, left, deadLetterBytes, wait)
		if err != nil {
			return err
		}
		wait = 0
		moved := false
		for _, a := range answers {
			if _, known := ends[a.Partition]; !known && a.End >= 0 {
				ends[a.Partition], moved = a.End, true
			}
			moved = moved || a.Next > d.next[a.Partition]
			if err := d.take(ctx, a, hand); err != nil {
				return err
			}
			left[a.Partition] = a.Next
			if end, known := ends[a.Partition]; known && a.Next >= end {
				delete(left, a.Partition)
			}
		}
		if err := stall.Look(ctx, moved); err != nil {
			return err
		}
	}
	if !handed {
		return kafka.Pause(ctx, kafka.ReadPause)
	}
	return nil
}

// take hands over what a partition has that is decided.
func (d *DeadLetters) take(ctx context.Context, a topicreader.Fetched,
	each func(m *sink.Message, offset int64)) error {
	for _, r := range a.Records {
		d.next[a.Partition] = r.Offset + 1
		for _, offset := range d.transactions.Add(r, r.Offset) {
			if offset == r.Offset {
				each(topicreader.Message(r), offset)
			} else {
				d.committed = append(d.committed, deadLetterPlace{a.Partition, offset})
			}
		}
		if err := d.handCommitted(ctx, each); err != nil {
			return err
		}
	}
	d.next[a.Partition] = a.Next
	return nil
}

// handCommitted reads the records of transactions that were committed again, and hands them over.
// After an error it goes on where it was.
func (d *DeadLetters) handCommitted(ctx context.Context,
	each func(m *sink.Message, offset int64)) error {
	for len(d.committed) > 0 {
		at := d.committed[0]
		m, err := d.Get(ctx, at.partition, at.offset)
		if err != nil {
			return err
		}
		if m != nil { // else it was deleted meanwhile
			each(m, at.offset)
		}
		d.committed = d.committed[1:]
	}
	return nil
}

// Get reads one record again; nil if it was deleted.
func (d *DeadLetters) Get(ctx context.Context, partition int32,
	offset int64) (*sink.Message, error) {
	if m, covered := d.find(partition, offset); covered {
		return m, nil
	}
	answers, err := d.reader.Fetch(ctx, d.topic, map[int32]int64{partition: offset}, deadLetterBytes,
		0)
	if err != nil {
		return nil, fmt.Errorf("read offset %d of partition %d of topic %q: %w", offset, partition,
			d.topic, err)
	}
	d.got = answers[0]
	m, _ := d.find(partition, offset)
	return m, nil
}

// find returns a record that Get has read; nil if there is none at that offset. covered: it would
// be among them.
func (d *DeadLetters) find(partition int32, offset int64) (m *sink.Message, covered bool) {
	rs := d.got.Records
	if len(rs) == 0 || d.got.Partition != partition || offset < rs[0].Offset || offset >= d.got.Next {
		return nil, false
	}
	at, found := slices.BinarySearchFunc(rs, offset,
		func(r *kgo.Record, offset int64) int { return int(r.Offset - offset) })
	if !found || rs[at].Attrs.IsControl() {
		return nil, true
	}
	return topicreader.Message(rs[at]), true
}
