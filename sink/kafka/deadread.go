package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/postrider/postrider/sink"
)

// fetched is what one answer brought of a partition.
type fetched struct {
	partition int32
	batches   []*sarama.RecordBatch // from the offset on that was asked for, markers too
	end       int64                 // of the partition, when the broker answered
}

// undecided are the records of a transaction of which neither commit nor abort was read, by the producer that writes it and the partition.
type undecided struct {
	producer  int64
	partition int32
}

// readPause spaces questions that bring nothing, however soon they are answered.
const readPause = 50 * time.Millisecond

// Read hands over the records from where the last Read ended, until every partition was read to the end that it had when it was first asked. If there
// are none at all it waits for some as long as wait. Records of transactions come once they are committed. It does not stop, as a reader of committed
// records does, in front of a transaction that is open: that of a relay which was killed may stay open until its transaction_timeout, and what stands behind
// it is there. Each transaction is judged by its own marker; of one that is open only offsets are kept.
func (d *DeadLetters) Read(ctx context.Context, wait time.Duration, each func(m *sink.Message, offset int64)) error {
	partitions, err := d.partitions(ctx)
	if err != nil {
		return fmt.Errorf("read topic %q: %w", d.topic, err)
	}
	ends, handed := map[int32]int64{}, false
	hand := func(m *sink.Message, offset int64) { handed = true; each(m, offset) }
	for stuck := newStuck(d.cfg); len(partitions) > 0; {
		var answers []fetched
		err := d.within(ctx, func() (err error) { answers, err = d.fetch(partitions, d.longestWait(wait)); return err })
		if err != nil {
			return fmt.Errorf("read topic %q: %w", d.topic, err)
		}
		wait = fetchWait
		moved := false
		for _, a := range answers {
			if _, known := ends[a.partition]; !known {
				ends[a.partition], moved = a.end, true
			}
			before := d.next[a.partition]
			if err := d.take(ctx, a, hand); err != nil {
				return fmt.Errorf("read topic %q: %w", d.topic, err)
			}
			moved = moved || d.next[a.partition] != before
		}
		partitions = slices.DeleteFunc(partitions, func(p int32) bool {
			end, known := ends[p]
			return known && d.next[p] >= end
		})
		if err := stuck.look(ctx, moved); err != nil {
			return fmt.Errorf("read topic %q: %w", d.topic, err)
		}
	}
	if !handed {
		return pause(ctx, readPause)
	}
	return nil
}

// take hands over what a partition has that is decided.
func (d *DeadLetters) take(ctx context.Context, a fetched, each func(m *sink.Message, offset int64)) error {
	for _, b := range a.batches {
		of := undecided{b.ProducerID, a.partition}
		switch {
		case b.Control && markerOf(b) == markerCommit:
			if err := d.decided(ctx, of, each); err != nil {
				return err
			}
		case b.Control && markerOf(b) == markerAbort:
			delete(d.pending, of)
		case b.Control:
		case b.IsTransactional:
			for _, r := range b.Records {
				if offset := b.FirstOffset + r.OffsetDelta; offset >= d.next[a.partition] {
					d.pending[of] = append(d.pending[of], offset)
				}
			}
		default:
			for _, r := range b.Records {
				if offset := b.FirstOffset + r.OffsetDelta; offset >= d.next[a.partition] {
					each(d.message(a.partition, b, r), offset)
				}
			}
		}
		d.next[a.partition] = b.LastOffset() + 1
	}
	return nil
}

// decided reads the records of a transaction that was committed again, and hands them over. After an error it goes on where it was.
func (d *DeadLetters) decided(ctx context.Context, of undecided, each func(m *sink.Message, offset int64)) error {
	for len(d.pending[of]) > 0 {
		offset := d.pending[of][0]
		m, err := d.Get(ctx, of.partition, offset)
		if err != nil {
			return err
		}
		if m != nil { // else it was deleted meanwhile
			each(m, offset)
		}
		d.pending[of] = d.pending[of][1:]
	}
	delete(d.pending, of)
	return nil
}

// partitions are those that there are now.
func (d *DeadLetters) partitions(ctx context.Context) (all []int32, err error) {
	err = d.within(ctx, func() error {
		n, err := d.topics.count(d.topic)
		for p := range n {
			all = append(all, p)
		}
		return err
	})
	return all, err
}

// Get reads one record again; nil if it was deleted.
func (d *DeadLetters) Get(ctx context.Context, partition int32, offset int64) (*sink.Message, error) {
	if m, covered := d.got.find(d, partition, offset); covered {
		return m, nil
	}
	at := d.next[partition]
	d.next[partition] = offset
	var answers []fetched
	err := d.within(ctx, func() (err error) { answers, err = d.fetch([]int32{partition}, 0); return err })
	d.next[partition] = at
	if err != nil {
		return nil, fmt.Errorf("read offset %d of partition %d of topic %q: %w", offset, partition, d.topic, err)
	}
	if len(answers) == 0 {
		return nil, nil
	}
	d.got = answers[0]
	m, _ := d.got.find(d, partition, offset)
	return m, nil
}

// find returns a record that was read; nil if there is none at that offset. covered: it would be among them.
func (a *fetched) find(d *DeadLetters, partition int32, offset int64) (m *sink.Message, covered bool) {
	n := len(a.batches)
	if n == 0 || a.partition != partition || offset < a.batches[0].FirstOffset || offset > a.batches[n-1].LastOffset() {
		return nil, false
	}
	i, _ := slices.BinarySearchFunc(a.batches, offset, func(b *sarama.RecordBatch, offset int64) int { return cmp.Compare(b.LastOffset(), offset) })
	b := a.batches[i]
	for _, r := range b.Records {
		if !b.Control && b.FirstOffset+r.OffsetDelta == offset {
			return d.message(partition, b, r), true
		}
	}
	return nil, true
}

// fetch asks the leaders of the partitions, one after the other, for what stands at next. A partition whose beginning was deleted is read from where it begins now.
func (d *DeadLetters) fetch(partitions []int32, wait time.Duration) ([]fetched, error) {
	leaders, of, err := d.leaders(partitions)
	if err != nil {
		return nil, err
	}
	if len(leaders) > 1 {
		wait = min(wait, fetchWait) // or news at the second leader would wait for the first one
	}
	var answers []fetched
	for _, leader := range leaders {
		// See Progress.fetch for the version.
		request := &sarama.FetchRequest{
			Version: 11, MinBytes: 1, MaxBytes: fetchBytes, MaxWaitTime: int32(max(wait.Milliseconds(), 1)), Isolation: sarama.ReadUncommitted, SessionEpoch: -1,
		}
		for _, p := range of[leader] {
			request.AddBlock(d.topic, p, d.next[p], fetchBytes, -1)
		}
		response, err := leader.Fetch(request)
		if err == nil && response.ErrorCode != 0 {
			err = sarama.KError(response.ErrorCode)
		}
		if err != nil {
			return nil, d.stale(leader, err)
		}
		for _, p := range of[leader] {
			block := response.GetBlock(d.topic, p)
			switch {
			case block == nil:
				return nil, translate(sarama.ErrIncompleteResponse)
			case errors.Is(block.Err, sarama.ErrOffsetOutOfRange):
				oldest, err := d.client.GetOffset(d.topic, p, sarama.OffsetOldest)
				if err != nil {
					return nil, translate(err)
				}
				if oldest == d.next[p] {
					return nil, fmt.Errorf("%w: partition %d begins at offset %d, and the broker says that this is out of range", sink.ErrUnreachable, p, oldest)
				}
				d.next[p] = oldest
			case !errors.Is(block.Err, sarama.ErrNoError):
				return nil, d.stale(leader, block.Err)
			default:
				a, err := d.answer(p, block)
				if err != nil {
					return nil, err
				}
				answers = append(answers, a)
			}
		}
	}
	return answers, nil
}

// leaders in an order that stays the same.
func (d *DeadLetters) leaders(partitions []int32) (all []*sarama.Broker, of map[*sarama.Broker][]int32, err error) {
	of = map[*sarama.Broker][]int32{}
	for _, p := range partitions {
		leader, err := d.client.Leader(d.topic, p)
		if err != nil {
			return nil, nil, translate(err)
		}
		if of[leader] == nil {
			all = append(all, leader)
		}
		of[leader] = append(of[leader], p)
	}
	return all, of, nil
}

// stale has the next question begin with a new connection and new metadata.
func (d *DeadLetters) stale(leader *sarama.Broker, err error) error {
	if !errors.As(err, new(sarama.KError)) {
		_ = leader.Close()
	}
	_ = d.client.RefreshMetadata(d.topic)
	return translate(err)
}

// answer takes the batches of a block.
func (d *DeadLetters) answer(partition int32, block *sarama.FetchResponseBlock) (fetched, error) {
	a := fetched{partition: partition, end: block.HighWaterMarkOffset}
	for _, set := range block.RecordsSet {
		if b := set.RecordBatch; b != nil && !b.PartialTrailingRecord && b.LastOffset() >= d.next[partition] {
			a.batches = append(a.batches, b)
		}
	}
	if len(a.batches) == 0 && len(block.RecordsSet) > 0 {
		return a, errors.New("a batch of records in a format from before Kafka 0.11")
	}
	return a, nil
}

func (d *DeadLetters) message(partition int32, b *sarama.RecordBatch, r *sarama.Record) *sink.Message {
	m := &sink.Message{Topic: d.topic, Partition: partition, Key: r.Key, Value: r.Value, Timestamp: b.FirstTimestamp.Add(r.TimestampDelta)}
	for _, h := range r.Headers {
		m.Headers = append(m.Headers, sink.Header{Key: string(h.Key), Value: h.Value})
	}
	return m
}
