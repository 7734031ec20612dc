package topics

import (
	"encoding/binary"
	"slices"

	"github.com/IBM/sarama"

	"github.com/postrider/postrider/sink"
)

// visible returns the batches of a block with records, and the offset behind the block. Readers of
// committed records do not see those of aborted transactions.
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

// isAbort reports whether a control batch is the marker of an abort: its key is a version and a
// type.
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
