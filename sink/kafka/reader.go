package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/postrider/postrider/sink"
)

// Reader reads what topics hold, up to their ends as they were at one moment, without a consumer group: it leaves no trace in the cluster. It
// belongs to one goroutine, and once the context of a call has ended it is of no use.
type Reader struct {
	cfg       Config
	isolation sarama.IsolationLevel
	dialer    *dialer
	client    sarama.Client
	admin     sarama.ClusterAdmin
}

// Span is a part of a partition: the offsets from From up to End, that one not included.
type Span struct {
	Topic     string
	Partition int32
	From, End int64
}

const (
	// readerFetch is what one request asks for; a larger batch comes as a whole. Decoded, records take some times as much.
	readerFetch = 1 << 20
	// readerTries is how often a request is made again: an election is over by then.
	readerTries = 5
)

// OpenReader connects. committed: records of open and aborted transactions are left out. Errors are those of Open.
func OpenReader(ctx context.Context, cfg Config, committed bool) (*Reader, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if _, err := cfg.reach(ctx); err != nil {
		return nil, err
	}
	silence()
	r := &Reader{cfg: cfg, dialer: newDialer(&cfg)}
	if committed {
		r.isolation = sarama.ReadCommitted
	}
	err := r.within(ctx, func() error {
		conf, err := cfg.lookup(r.dialer)
		if err != nil {
			return err
		}
		if r.client, err = sarama.NewClient(cfg.Brokers, conf); err != nil {
			return translate(err)
		}
		if err := r.client.RefreshMetadata(); err != nil && !errors.Is(err, sarama.ErrLeaderNotAvailable) { // the administrator needs it
			return translate(err)
		}
		r.admin, err = sarama.NewClusterAdminFromClient(r.client) // not closed: the client is ours
		return translate(err)
	})
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("read topics at %s: %w", cfg.bootstrap(), err)
	}
	return r, nil
}

// Topics are those of the cluster that match, sorted; internal ones are left out.
func (r *Reader) Topics(ctx context.Context, pattern *regexp.Regexp) (names []string, err error) {
	err = r.within(ctx, func() error {
		all, err := r.client.Topics()
		for _, topic := range all {
			if !strings.HasPrefix(topic, "__") && pattern.MatchString(topic) {
				names = append(names, topic)
			}
		}
		return translate(err)
	})
	slices.Sort(names)
	return names, err
}

// Spans are the partitions of a topic as they are now, from their first records on, or from the first with a time of since or later if that is
// not zero. A topic that does not exist is a sink.ErrUnknownTopic.
func (r *Reader) Spans(ctx context.Context, topic string, since time.Time) ([]Span, error) {
	var spans []Span
	err := r.retry(ctx, topic, func() error {
		spans = nil
		partitions, err := r.client.Partitions(topic)
		if err != nil {
			return translate(err)
		}
		slices.Sort(partitions)
		from := sarama.OffsetOldest
		if !since.IsZero() {
			from = since.UnixMilli()
		}
		ends, err := r.offsets(topic, partitions, sarama.OffsetNewest)
		if err != nil {
			return err
		}
		starts, err := r.offsets(topic, partitions, from)
		if err != nil {
			return err
		}
		for _, p := range partitions {
			s := Span{Topic: topic, Partition: p, From: starts[p], End: ends[p]}
			if s.From < 0 || s.From > s.End { // no record is that young
				s.From = s.End
			}
			spans = append(spans, s)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the offsets of topic %q: %w", topic, err)
	}
	return spans, nil
}

func (r *Reader) offsets(topic string, partitions []int32, at int64) (map[int32]int64, error) {
	ask := map[int32]int64{}
	for _, p := range partitions {
		ask[p] = at
	}
	found, err := r.admin.ListOffsets(map[string]map[int32]int64{topic: ask}, &sarama.ListOffsetsOptions{IsolationLevel: r.isolation})
	if err != nil {
		return nil, translate(err)
	}
	offsets := map[int32]int64{}
	for p, result := range found[topic] {
		if result.Err != nil && !errors.Is(result.Err, sarama.ErrNoError) {
			return nil, fmt.Errorf("partition %d: %w", p, translate(result.Err))
		}
		offsets[p] = result.Offset
	}
	return offsets, nil
}

// Read hands over the records of the spans, one span after the other, each by offset; span is its index. What was deleted meanwhile is
// left out. The message is reused: it is valid until each returns. An error of each is returned, and leaves the reader of no use.
func (r *Reader) Read(ctx context.Context, spans []Span, each func(span int, offset int64, m *sink.Message) error) error {
	ctx, cancel := context.WithCancel(ctx)
	fetched := make(chan fetchedBatches, 1)
	go func() { // ends with the spans or ctx; waited for below
		defer close(fetched)
		for i := range spans {
			if err := r.fetchSpan(ctx, i, spans[i], fetched); err != nil {
				select {
				case fetched <- fetchedBatches{err: err}:
				case <-ctx.Done():
				}
				return
			}
		}
	}()
	defer func() {
		cancel()
		for range fetched { //nolint:revive // until it has ended
		}
	}()
	var m sink.Message
	for f := range fetched {
		if f.err != nil {
			return f.err
		}
		span := &spans[f.span]
		m.Topic, m.Partition = span.Topic, span.Partition
		for _, b := range f.batches {
			if err := eachRecord(b, f.span, span, &m, each); err != nil {
				return err
			}
		}
	}
	return context.Cause(ctx)
}

func eachRecord(b *sarama.RecordBatch, index int, span *Span, m *sink.Message, each func(int, int64, *sink.Message) error) error {
	for _, record := range b.Records {
		at := b.FirstOffset + record.OffsetDelta
		if at < span.From || at >= span.End {
			continue
		}
		m.Key, m.Value, m.Timestamp, m.Headers = record.Key, record.Value, b.FirstTimestamp.Add(record.TimestampDelta), m.Headers[:0]
		for _, h := range record.Headers {
			m.Headers = append(m.Headers, sink.Header{Key: string(h.Key), Value: h.Value})
		}
		if err := each(index, at, m); err != nil {
			return err
		}
	}
	return nil
}

type fetchedBatches struct {
	span    int // index
	batches []*sarama.RecordBatch
	err     error
}

// fetchSpan hands on what stands in a span, batch by batch.
func (r *Reader) fetchSpan(ctx context.Context, index int, span Span, to chan<- fetchedBatches) error {
	stuck := newStuck(r.cfg)
	for next := span.From; next < span.End; {
		block, err := r.fetch(ctx, span, next)
		if errors.Is(err, sarama.ErrOffsetOutOfRange) { // what stood there was deleted
			var starts map[int32]int64
			err = r.within(ctx, func() (err error) {
				starts, err = r.offsets(span.Topic, []int32{span.Partition}, sarama.OffsetOldest)
				return err
			})
			if err == nil && starts[span.Partition] > next {
				next = starts[span.Partition]
				continue
			}
		}
		if err != nil {
			return fmt.Errorf("read partition %d of topic %q at offset %d: %w", span.Partition, span.Topic, next, err)
		}
		f := fetchedBatches{span: index}
		before := next
		f.batches, next = visible(block, r.isolation, next)
		if next == before && len(block.RecordsSet) > 0 {
			return fmt.Errorf("read partition %d of topic %q at offset %d: %w", span.Partition, span.Topic, next,
				errors.New("a batch of records in a format from before Kafka 0.11"))
		}
		if err := stuck.look(ctx, next > before); err != nil {
			return fmt.Errorf("read partition %d of topic %q at offset %d: %w", span.Partition, span.Topic, next, err)
		}
		select {
		case to <- f:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// visible are the batches of a block that hold records, without those of aborted transactions if they are not to be seen, and the offset behind
// the block.
func visible(block *sarama.FetchResponseBlock, isolation sarama.IsolationLevel, next int64) ([]*sarama.RecordBatch, int64) {
	aborted := slices.SortedFunc(slices.Values(block.AbortedTransactions), func(a, b *sarama.AbortedTransaction) int {
		return int(a.FirstOffset - b.FirstOffset)
	})
	open := map[int64]bool{} // producers within an aborted transaction
	var batches []*sarama.RecordBatch
	for _, set := range block.RecordsSet {
		b := set.RecordBatch
		if b == nil || b.PartialTrailingRecord {
			continue
		}
		for len(aborted) > 0 && aborted[0].FirstOffset <= b.LastOffset() {
			open[aborted[0].ProducerID] = true
			aborted = aborted[1:]
		}
		switch {
		case b.Control:
			if markerOf(b) == markerAbort {
				delete(open, b.ProducerID)
			}
		case b.IsTransactional && open[b.ProducerID] && isolation == sarama.ReadCommitted:
		default:
			batches = append(batches, b)
		}
		next = max(next, b.LastOffset()+1)
	}
	return batches, next
}

// markerOf is the type of a marker: its key is a version and the type. -1: it is none that we know.
func markerOf(b *sarama.RecordBatch) int {
	if len(b.Records) == 0 || len(b.Records[0].Key) < 4 {
		return -1
	}
	return int(binary.BigEndian.Uint16(b.Records[0].Key[2:]))
}

func (r *Reader) fetch(ctx context.Context, span Span, offset int64) (block *sarama.FetchResponseBlock, err error) {
	err = r.retry(ctx, span.Topic, func() error {
		leader, err := r.client.Leader(span.Topic, span.Partition)
		if err != nil {
			return translate(err)
		}
		// Version 11 is known from Kafka 2.3 to 4; below 10 a broker refuses to send zstd.
		request := &sarama.FetchRequest{Version: 11, MinBytes: 1, MaxBytes: readerFetch, MaxWaitTime: int32(fetchWait.Milliseconds()),
			SessionEpoch: -1, Isolation: r.isolation}
		request.AddBlock(span.Topic, span.Partition, offset, readerFetch, -1)
		response, err := leader.Fetch(request)
		if err != nil {
			return translate(err)
		}
		block = response.GetBlock(span.Topic, span.Partition)
		switch {
		case response.ErrorCode != 0:
			return translate(sarama.KError(response.ErrorCode))
		case block == nil:
			return translate(sarama.ErrIncompleteResponse)
		case !errors.Is(block.Err, sarama.ErrNoError):
			return translate(block.Err)
		}
		return nil
	})
	return block, err
}

// retry asks again while leaders move, as they do just after a topic was created.
func (r *Reader) retry(ctx context.Context, topic string, call func() error) error {
	for try := 1; ; try++ {
		err := r.within(ctx, call)
		if err == nil || !errors.Is(err, sink.ErrUnreachable) || try == readerTries || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(followBackoff):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := r.within(ctx, func() error { return r.client.RefreshMetadata(topic) }); err != nil {
			return translate(err)
		}
	}
}

// within runs calls that cannot be interrupted but by cutting the connections, which happens when ctx ends, or after delivery_timeout.
func (r *Reader) within(ctx context.Context, call func() error) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.DeliveryTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { r.dialer.cut(context.Cause(ctx)) })
	err := call()
	if !stop() && err != nil { // cut
		return fmt.Errorf("%w: %w", translate(context.Cause(ctx)), err)
	}
	return err
}

// Close ends the connections.
func (r *Reader) Close() {
	if r.client != nil {
		_ = r.client.Close()
	}
	r.dialer.cut(sink.ErrClosed)
}
