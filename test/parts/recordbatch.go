package parts

import (
	"hash/crc32"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// RecordBatch is a batch as a broker keeps it: of offsets from first to first+span, of which
// records are left.
func RecordBatch(first int64, span int32, control, transactional bool,
	records ...kgo.Record) []byte {
	b := kmsg.RecordBatch{
		FirstOffset: first, LastOffsetDelta: span, Magic: 2, PartitionLeaderEpoch: -1, ProducerID: -1,
		ProducerEpoch: -1, FirstSequence: -1,
		FirstTimestamp: time.Now().UnixMilli(), NumRecords: int32(len(records)), //nolint:gosec // a few
	}
	if control {
		b.Attributes |= 1 << 5
	}
	if transactional {
		b.Attributes |= 1 << 4
	}
	for _, r := range records {
		of := kmsg.Record{OffsetDelta: int32(r.Offset - first), Key: r.Key,
			Value: r.Value} //nolint:gosec // small
		for _, h := range r.Headers {
			of.Headers = append(of.Headers, kmsg.Header{Key: h.Key, Value: h.Value})
		}
		// behind the length, which is zero
		body := of.AppendTo(nil)[1:]
		b.Records = append(kbin.AppendVarint(b.Records, int32(len(body))),
			body...) //nolint:gosec // small
	}
	raw := b.AppendTo(nil)
	b.Length = int32(len(raw) - 12)                                            //nolint:gosec // small
	b.CRC = int32(crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli))) //nolint:gosec // bits
	return b.AppendTo(nil)
}
