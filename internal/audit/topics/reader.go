package topics

import (
	"cmp"
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
	"github.com/postrider/postrider/sink/kafka"
)

// Reader reads the records of topics, up to their present ends. It is for one goroutine. When the
// context of a call has ended, it cannot be used any more.
type Reader struct {
	// AppendTimes gives each record the largest timestamp of its batch: the time of the append, if
	// the broker has set that.
	AppendTimes bool

	*client
	isolation sarama.IsolationLevel
}

// Span is a range of offsets of a partition: from From up to End, without End.
type Span struct {
	Topic     string
	Partition int32
	From, End int64
}

const (
	// fetchBytes bounds a fetch; a larger batch arrives as a whole. Decoded records take several
	// times as much.
	fetchBytes = 1 << 20
	// readerTries bounds the attempts of a request: an election takes less.
	readerTries = 5
)

// OpenReader connects. committed: skip records of open and aborted transactions. Errors are those
// of kafka.Config.Reach.
func OpenReader(ctx context.Context, cfg kafka.Config, committed bool) (*Reader, error) {
	c, err := connect(ctx, cfg, func(*sarama.Config) {}, func(*client) error { return nil })
	if err != nil {
		return nil, err
	}
	r := &Reader{client: c}
	if committed {
		r.isolation = sarama.ReadCommitted
	}
	return r, nil
}

// Topics returns the topics that match and are not internal, sorted.
func (r *Reader) Topics(ctx context.Context, pattern *regexp.Regexp) (names []string, err error) {
	err = r.within(ctx, func() error {
		all, err := r.topics()
		for topic := range all {
			if pattern.MatchString(topic) {
				names = append(names, topic)
			}
		}
		return err
	})
	slices.Sort(names)
	return names, err
}

func isInternal(topic string) bool { return strings.HasPrefix(topic, "__") }

// Spans returns the present span of each partition of a topic. It begins with the first record or,
// if since is not zero, with the first one of that time or later. A topic that does not exist is
// sink.ErrUnknownTopic.
func (r *Reader) Spans(ctx context.Context, topic string, since time.Time) ([]Span, error) {
	var spans []Span
	err := r.retry(ctx, topic, func() error {
		spans = nil
		partitions, err := r.Partitions(topic)
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
			if s.From < 0 || s.From > s.End { // no record is as new as since
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

// Ends returns the present end of each partition of a topic, behind open transactions too. A topic
// that does not exist is sink.ErrUnknownTopic.
func (r *Reader) Ends(ctx context.Context, topic string) (ends map[int32]int64, err error) {
	err = r.retry(ctx, topic, func() error {
		partitions, err := r.Partitions(topic)
		if err == nil {
			ends, err = r.list(topic, partitions, sarama.OffsetNewest, sarama.ReadUncommitted)
		}
		return translate(err)
	})
	if err != nil {
		return nil, fmt.Errorf("read the offsets of topic %q: %w", topic, err)
	}
	return ends, nil
}

func (r *Reader) offsets(topic string, partitions []int32, at int64) (map[int32]int64, error) {
	return r.list(topic, partitions, at, r.isolation)
}

func (r *Reader) list(topic string, partitions []int32, at int64,
	isolation sarama.IsolationLevel) (map[int32]int64, error) {
	requested := map[int32]int64{}
	for _, p := range partitions {
		requested[p] = at
	}
	options := &sarama.ListOffsetsOptions{IsolationLevel: isolation}
	found, err := r.admin.ListOffsets(map[string]map[int32]int64{topic: requested}, options)
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

// WholeFrom reports whether a topic still has every record from the beginnings of spans on. It has
// not if retention deleted the first of them, or if the topic is compacted. A topic whose
// configuration cannot be read counts as not compacted.
func (r *Reader) WholeFrom(ctx context.Context, topic string, spans []Span) (bool, error) {
	all, err := r.Spans(ctx, topic, time.Time{})
	if err != nil {
		return false, err
	}
	for i, s := range all {
		if s.From > 0 && (i >= len(spans) || s.From >= spans[i].From) {
			return false, nil
		}
	}
	whole := true
	err = r.within(ctx, func() error {
		policy := &sarama.ConfigResource{Type: sarama.TopicResource, Name: topic,
			ConfigNames: []string{"cleanup.policy"}}
		described, _ := r.admin.DescribeConfigs([]*sarama.ConfigResource{policy},
			sarama.DescribeConfigsOptions{})
		for _, d := range described {
			for _, e := range d.Configs {
				whole = whole && !strings.Contains(e.Value, "compact")
			}
		}
		return nil
	})
	return whole, err
}

// Read calls each for the records of the spans, in their order, each span by offset; span is its
// index. Records that were deleted meanwhile are skipped. The message is valid until each returns.
// Read returns the first error of each; then the reader cannot be used any more.
func (r *Reader) Read(ctx context.Context, spans []Span,
	each func(span int, offset int64, m *sink.Message) error) error {
	ctx, cancel := context.WithCancel(ctx)
	fetched := make(chan fetchedBatches, 1)
	var failed error // read only after fetched is closed
	go func() {      // ends with the spans or ctx; waited for below
		defer close(fetched)
		for i := 0; failed == nil && i < len(spans); i++ {
			failed = r.fetchSpan(ctx, i, spans[i], fetched)
		}
	}()
	defer func() {
		cancel()
		for range fetched { //nolint:revive // until it has ended
		}
	}()
	var m sink.Message
	for f := range fetched {
		span := &spans[f.span]
		m.Topic, m.Partition = span.Topic, span.Partition
		for _, b := range f.batches {
			if err := eachRecord(b, r.AppendTimes, f.span, span, &m, each); err != nil {
				return err
			}
		}
	}
	return cmp.Or(context.Cause(ctx), failed)
}

type fetchedBatches struct {
	span    int // index
	batches []*sarama.RecordBatch
}

// fetchSpan sends the batches of a span.
func (r *Reader) fetchSpan(ctx context.Context, index int, span Span,
	to chan<- fetchedBatches) (err error) {
	next := span.From
	defer func() {
		if err != nil {
			err = fmt.Errorf("read partition %d of topic %q at offset %d: %w", span.Partition,
				span.Topic, next, err)
		}
	}()
	stall := kafka.NewStall(r.cfg.DeliveryTimeout)
	for next < span.End {
		block, err := r.fetch(ctx, span, next)
		if errors.Is(err, sarama.ErrOffsetOutOfRange) { // the record was deleted
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
			return err
		}
		f, before := fetchedBatches{span: index}, next
		f.batches, next = visible(block, r.isolation, next)
		if next == before && len(block.RecordsSet) > 0 {
			return errors.New("a record batch has a format older than Kafka 0.11")
		}
		if err := stall.Look(ctx, next > before); err != nil {
			return err
		}
		select {
		case to <- f:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (r *Reader) fetch(ctx context.Context, span Span,
	offset int64) (block *sarama.FetchResponseBlock, err error) {
	err = r.retry(ctx, span.Topic, func() error {
		leader, err := r.Leader(span.Topic, span.Partition)
		if err != nil {
			return translate(err)
		}
		// Kafka 2.3 to 4 have version 11. Below 10 a broker does not send zstd.
		request := &sarama.FetchRequest{Version: 11, MinBytes: 1, MaxBytes: fetchBytes,
			MaxWaitTime: int32(fetchWait.Milliseconds()), SessionEpoch: -1, Isolation: r.isolation}
		request.AddBlock(span.Topic, span.Partition, offset, fetchBytes, -1)
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

// retry repeats a call while a partition has no leader, as just after its topic was created.
func (r *Reader) retry(ctx context.Context, topic string, call func() error) error {
	for try := 1; ; try++ {
		err := r.within(ctx, call)
		if err == nil || !errors.Is(err, sink.ErrUnreachable) || try == readerTries || ctx.Err() != nil {
			return err
		}
		if err := kafka.Pause(ctx, leaderPause); err != nil {
			return err
		}
		if err := r.within(ctx, func() error { return r.RefreshMetadata(topic) }); err != nil {
			return translate(err)
		}
	}
}

// Close ends the connections.
func (r *Reader) Close() { r.close() }

// visible returns the batches of a block that the isolation level shows, and the offset after the
// block. read_committed hides aborted transactions.
func visible(block *sarama.FetchResponseBlock, isolation sarama.IsolationLevel,
	next int64) ([]*sarama.RecordBatch, int64) {
	aborted := slices.SortedFunc(slices.Values(block.AbortedTransactions),
		func(a, b *sarama.AbortedTransaction) int {
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
			if isAbort(b) {
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

// isAbort reports whether a control batch is an abort marker: its key is a version and a type.
func isAbort(b *sarama.RecordBatch) bool {
	return len(b.Records) > 0 && len(b.Records[0].Key) >= 4 &&
		binary.BigEndian.Uint16(b.Records[0].Key[2:]) == 0
}

func eachRecord(b *sarama.RecordBatch, appendTimes bool, index int, span *Span, m *sink.Message,
	each func(int, int64, *sink.Message) error) error {
	for _, record := range b.Records {
		at := b.FirstOffset + record.OffsetDelta
		if at < span.From || at >= span.End {
			continue
		}
		m.Key, m.Value, m.Timestamp = record.Key, record.Value,
			b.FirstTimestamp.Add(record.TimestampDelta)
		if b.LogAppendTime || appendTimes {
			m.Timestamp = b.MaxTimestamp
		}
		m.Headers = headers(m.Headers[:0], record.Headers)
		if err := each(index, at, m); err != nil {
			return err
		}
	}
	return nil
}

func headers(to []sink.Header, from []*sarama.RecordHeader) []sink.Header {
	for _, h := range from {
		to = append(to, sink.Header{Key: string(h.Key), Value: h.Value})
	}
	return to
}
