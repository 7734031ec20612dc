package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"postrider/sink"
)

// fetched is what one answer brought of a partition: the committed records by their offset, and the offset behind them.
type fetched struct {
	partition int32
	records   []Followed
	next      int64
	end       int64 // of what is decided, when the broker answered
}

// Read hands over the records from where the last Read ended, until every partition was read to the end that it had when it was first asked. If there
// are none at all it waits for some as long as wait. Records of transactions come once they are committed; those of one partition in order. Behind the
// beginning of an open transaction nothing is known yet, so its end is waited for: what stands there may be what matters.
func (d *DeadLetters) Read(ctx context.Context, wait time.Duration, each func(m *sink.Message, offset int64)) error {
	partitions, err := d.partitions(ctx)
	if err != nil {
		return fmt.Errorf("read topic %q: %w", d.topic, err)
	}
	ends := map[int32]int64{}
	for len(partitions) > 0 {
		var answers []fetched
		err := d.within(ctx, func() (err error) { answers, err = d.fetch(partitions, d.longestWait(wait)); return err })
		if err != nil {
			return fmt.Errorf("read topic %q: %w", d.topic, err)
		}
		wait = fetchWait
		for _, a := range answers {
			if _, known := ends[a.partition]; !known {
				ends[a.partition] = a.end
			}
			for i := range a.records {
				each(&a.records[i].Message, a.records[i].Offset)
			}
			d.next[a.partition] = a.next
		}
		partitions = slices.DeleteFunc(partitions, func(p int32) bool {
			end, known := ends[p]
			return known && d.next[p] >= end
		})
	}
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
	for range 2 {
		if d.got.partition == partition && len(d.got.records) > 0 && d.got.records[0].Offset <= offset && offset < d.got.next {
			i, found := slices.BinarySearchFunc(d.got.records, offset, func(r Followed, offset int64) int { return cmp.Compare(r.Offset, offset) })
			if !found {
				return nil, nil
			}
			return &d.got.records[i].Message, nil
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
	}
	return nil, nil
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
			Version: 11, MinBytes: 1, MaxBytes: fetchBytes, MaxWaitTime: int32(max(wait.Milliseconds(), 1)), Isolation: sarama.ReadCommitted, SessionEpoch: -1,
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
				d.next[p] = oldest
			case !errors.Is(block.Err, sarama.ErrNoError):
				return nil, d.stale(leader, block.Err)
			default:
				a, err := d.committed(p, block)
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

// committed takes the records of a block that no transaction has taken back.
func (d *DeadLetters) committed(partition int32, block *sarama.FetchResponseBlock) (fetched, error) {
	a := fetched{partition: partition, end: block.HighWaterMarkOffset}
	var batches []*sarama.RecordBatch
	batches, a.next = visible(block, sarama.ReadCommitted, d.next[partition])
	if a.next == d.next[partition] && a.next < block.LastStableOffset && len(block.RecordsSet) > 0 {
		return a, errors.New("a batch of records in a format from before Kafka 0.11")
	}
	for _, b := range batches {
		a.records = append(a.records, d.records(partition, b)...)
	}
	return a, nil
}

// records of a batch from the one that was asked for.
func (d *DeadLetters) records(partition int32, b *sarama.RecordBatch) (all []Followed) {
	for _, r := range b.Records {
		offset := b.FirstOffset + r.OffsetDelta
		if offset < d.next[partition] {
			continue
		}
		f := Followed{Offset: offset, Message: sink.Message{
			Topic: d.topic, Partition: partition, Key: r.Key, Value: r.Value, Timestamp: b.FirstTimestamp.Add(r.TimestampDelta),
		}}
		for _, h := range r.Headers {
			f.Message.Headers = append(f.Message.Headers, sink.Header{Key: string(h.Key), Value: h.Value})
		}
		all = append(all, f)
	}
	return all
}
