package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/postrider/postrider/sink"
)

const (
	// fetchBytes is what one request asks for; a larger batch comes as a whole.
	fetchBytes = 4 << 20
	// fetchWait bounds how long a broker waits for records that are not there, which are never asked for.
	fetchWait = 500 * time.Millisecond
)

// Read gives every record of a topic from an offset per partition up to the ends as they are now; partitions beyond those given are read from their
// beginnings. Records that were deleted meanwhile are left out. Of the messages topic, partition, key, value and headers are set.
func (p *Progress) Read(ctx context.Context, topic string, from []int64, each func(*sink.Message)) error {
	ends, err := p.Ends(ctx, []string{topic})
	if err != nil {
		return err
	}
	for partition, end := range ends[topic] {
		start := int64(0)
		if partition < len(from) {
			start = from[partition]
		}
		n := int32(partition) //nolint:gosec // Kafka counts partitions in 32 bits
		if err := p.readPartition(ctx, topic, n, start, end, each); err != nil {
			return fmt.Errorf("read partition %d of topic %q: %w", partition, topic, err)
		}
	}
	return nil
}

func (p *Progress) readPartition(ctx context.Context, topic string, partition int32, start, end int64, each func(*sink.Message)) error {
	return p.readBatches(ctx, topic, partition, start, end, func(b *sarama.RecordBatch) { deliver(b, topic, partition, start, end, each) })
}

// readBatches gives every batch with an offset from next to end, those of control records too. The first may begin before next.
func (p *Progress) readBatches(ctx context.Context, topic string, partition int32, next, end int64, each func(*sarama.RecordBatch)) error {
	for stuck := newStuck(p.cfg); next < end; {
		var block *sarama.FetchResponseBlock
		err := p.within(ctx, func() (err error) { block, err = p.fetch(topic, partition, next); return err })
		if errors.Is(err, sarama.ErrOffsetOutOfRange) { // what stood there was deleted
			oldest, err := p.client.GetOffset(topic, partition, sarama.OffsetOldest)
			if err != nil || oldest <= next {
				return fmt.Errorf("find its beginning: %w", translate(err))
			}
			next = oldest
			continue
		}
		if err != nil {
			return err
		}
		before := next
		for _, set := range block.RecordsSet {
			if set.RecordBatch == nil || set.RecordBatch.PartialTrailingRecord {
				continue
			}
			if set.RecordBatch.LastOffset() >= next {
				each(set.RecordBatch)
				next = set.RecordBatch.LastOffset() + 1
			}
		}
		if next == before && len(block.RecordsSet) > 0 {
			return errors.New("a batch of records in a format from before Kafka 0.11")
		}
		if err := stuck.look(ctx, next > before); err != nil {
			return err
		}
	}
	return nil
}

// deliver hands over the records of a batch that stand from start up to end.
func deliver(b *sarama.RecordBatch, topic string, partition int32, start, end int64, each func(*sink.Message)) {
	if b.Control {
		return
	}
	for _, r := range b.Records {
		if at := b.FirstOffset + r.OffsetDelta; at < start || at >= end {
			continue
		}
		m := &sink.Message{Topic: topic, Partition: partition, Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			m.Headers = append(m.Headers, sink.Header{Key: string(h.Key), Value: h.Value})
		}
		each(m)
	}
}

func (p *Progress) fetch(topic string, partition int32, offset int64) (*sarama.FetchResponseBlock, error) {
	return fetchBlock(p.client, topic, partition, offset, fetchBytes)
}

// fetchBlock asks the leader of a partition for records from an offset on: a batch at least.
func fetchBlock(client sarama.Client, topic string, partition int32, offset int64, atMost int32) (*sarama.FetchResponseBlock, error) {
	leader, err := client.Leader(topic, partition)
	if err != nil {
		return nil, translate(err)
	}
	// Version 11 is known from Kafka 2.3 to 4; below 10 a broker refuses to send zstd.
	request := &sarama.FetchRequest{Version: 11, MinBytes: 1, MaxBytes: atMost, MaxWaitTime: int32(fetchWait.Milliseconds()), SessionEpoch: -1}
	request.AddBlock(topic, partition, offset, atMost, -1)
	response, err := leader.Fetch(request)
	if err != nil {
		return nil, translate(err)
	}
	block := response.GetBlock(topic, partition)
	switch {
	case response.ErrorCode != 0:
		return nil, translate(sarama.KError(response.ErrorCode))
	case block == nil:
		return nil, translate(sarama.ErrIncompleteResponse)
	case !errors.Is(block.Err, sarama.ErrNoError):
		return nil, translate(block.Err)
	}
	return block, nil
}
