package topicreader

import (
	"encoding/binary"
	"hash/crc32"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/test/parts"
)

// A partition ends behind its last batch, and not behind its last record: compaction leaves gaps,
// and batches without records.
func TestReader_ReadsEveryKindOfBatch(t *testing.T) {
	records := func(first int64, n int) (rs []kgo.Record) {
		for i := range n {
			rs = append(rs, kgo.Record{Offset: first + int64(i), Value: []byte("v")})
		}
		return rs
	}
	marker := kgo.Record{Offset: 10, Key: []byte{0, 0, 0, 1}} // of a commit
	for name, test := range map[string]struct {
		batch []byte
		next  int64
		seen  int // from 10 up to 20
	}{
		"whole":            {parts.RecordBatch(10, 2, false, false, records(10, 3)...), 13, 3},
		"record missing":   {parts.RecordBatch(10, 3, false, false, records(10, 3)...), 14, 3},
		"empty":            {parts.RecordBatch(10, 3, false, false), 14, 0},
		"batch missing":    {parts.RecordBatch(12, 2, false, false, records(12, 3)...), 15, 3},
		"begins before":    {parts.RecordBatch(9, 2, false, false, records(9, 3)...), 12, 2},
		"goes on behind":   {parts.RecordBatch(19, 2, false, false, records(19, 3)...), 22, 1},
		"control":          {parts.RecordBatch(10, 0, true, true, marker), 11, 1},
		"of a transaction": {parts.RecordBatch(10, 2, false, true, records(10, 3)...), 13, 3},
	} {
		t.Run(name, func(t *testing.T) {
			c := parts.Cluster(t, kfake.SeedTopics(1, "orders"))
			asked := make(chan int64, 10)
			answerFetches(c, func(offset int64) []byte {
				asked <- offset
				if offset >= test.next { // the rest is there, and empty
					return parts.RecordBatch(offset, int32(19-offset), false, false) //nolint:gosec // small
				}
				return test.batch
			})
			r, err := Open(parts.Within(t, parts.Patience), quick(c.ListenAddrs()...), false)
			require.NoError(t, err)
			t.Cleanup(r.Close)
			seen := 0
			require.NoError(t, r.Scan(parts.Within(t, parts.Patience), Span{"orders", 0, 10, 20}, 0,
				func(record *kgo.Record) error {
					require.Equal(t, name == "control", record.Attrs.IsControl())
					require.Equal(t, name == "control" || name == "of a transaction",
						record.Attrs.IsTransactional())
					seen++
					return nil
				}))
			require.Equal(t, test.seen, seen)
			require.Equal(t, int64(10), <-asked)
			if test.next < 20 {
				require.Equal(t, test.next, <-asked)
			}
			require.Empty(t, asked)
		})
	}
}

// answerFetches has brokers answer each fetch request for a partition with a batch.
func answerFetches(c *kfake.Cluster, batch func(offset int64) []byte) {
	c.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		of := r.(*kmsg.FetchRequest).Topics[0]
		answer := r.ResponseKind().(*kmsg.FetchResponse)
		topic, p := kmsg.NewFetchResponseTopic(), kmsg.NewFetchResponseTopicPartition()
		topic.Topic, topic.TopicID = of.Topic, of.TopicID
		p.RecordBatches, p.HighWatermark = batch(of.Partitions[0].FetchOffset), 20
		topic.Partitions = append(topic.Partitions, p)
		answer.Topics = append(answer.Topics, topic)
		return answer, nil, true
	})
}

// snappyBatch is a batch of offset 10 that claims to have so many bytes before compression.
func snappyBatch(t *testing.T, bytes uint64) []byte {
	var b kmsg.RecordBatch
	require.NoError(t, b.ReadFrom(parts.RecordBatch(10, 0, false, false)))
	b.Attributes = int16(kgo.CodecSnappy)
	b.Records = append(binary.AppendUvarint(nil, bytes), "no record"...)
	raw := b.AppendTo(nil)
	b.Length = int32(len(raw) - 12)                                            //nolint:gosec // small
	b.CRC = int32(crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli))) //nolint:gosec // bits
	return b.AppendTo(nil)
}

// A few bytes of another client must not take gigabytes of the relay's memory.
func TestReader_RefusesABatchThatDecompressesToTooMuch(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"))
	cfg := quick(c.ListenAddrs()...)
	r, err := Open(parts.Within(t, parts.Patience), cfg, false)
	require.NoError(t, err)
	t.Cleanup(r.Close)
	large, requests := snappyBatch(t, uint64(cfg.LargestPlainBatch())+1), atomic.Int64{}
	answerFetches(c, func(int64) []byte { requests.Add(1); return large })
	err = r.Scan(parts.Within(t, parts.Patience), Span{"orders", 0, 10, 20}, 0,
		func(*kgo.Record) error { return nil })
	require.EqualError(t, err, `read partition 0 of topic "orders" at offset 10: the batch at `+
		`offset 10 of partition 0 has more than 134217728 bytes before compression; set `+
		`sink.kafka.max_message_bytes to at least the size of the batch before compression, or `+
		`delete the batch, and all records of the partition before it, with `+
		`kafka-delete-records.sh: up to offset 11`)
	require.EqualValues(t, 1, requests.Load(), "another try does not help")
}

// Where retention moves the beginning while a partition is read, the reading goes on there.
func TestReader_GoesOnBehindWhatRetentionTakes(t *testing.T) {
	b := parts.RealKafka(t)
	topic := b.Topic(t, 1)
	writer := b.Client(t)
	for n := range 10 {
		require.NoError(t, writer.ProduceSync(t.Context(), numberedRecord(topic, 0, n)).FirstErr())
	}
	r := openReader(t, b, false)
	_, spans := r.readAll(t, topic, noTime)
	deleteBefore(t, writer, topic, 7)
	var offsets []int64
	within := parts.Within(t, parts.Patience)
	require.NoError(t, r.Scan(within, spans[0], 0, func(record *kgo.Record) error {
		offsets = append(offsets, record.Offset)
		return nil
	}))
	require.Equal(t, []int64{7, 8, 9}, offsets)
	whole, err := r.Whole(parts.Within(t, parts.Patience), topic)
	require.NoError(t, err)
	require.False(t, whole)
}

// A log ends with the marker of a transaction, and a committed reader's in front of one that is
// open.
func TestReader_EndsWhereTransactionsDo(t *testing.T) {
	b := parts.RealKafka(t)
	topic := b.Topic(t, 1)
	writer := b.Client(t, kgo.TransactionalID(parts.Unique("writer")))
	for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		require.NoError(t, writer.BeginTransaction())
		require.NoError(t, writer.ProduceSync(t.Context(), numberedRecord(topic, 0, 1)).FirstErr())
		require.NoError(t, writer.EndTransaction(t.Context(), end))
	}
	require.NoError(t, writer.BeginTransaction())
	require.NoError(t, writer.ProduceSync(t.Context(), numberedRecord(topic, 0, 2)).FirstErr())
	committed, spans := openReader(t, b, true).readAll(t, topic, noTime)
	require.Equal(t, [][]string{{"1"}}, committed)
	require.Equal(t, int64(4), spans[0].End, "in front of the open one")
	all, spans := openReader(t, b, false).readAll(t, topic, noTime)
	require.Equal(t, [][]string{{"1", "1", "2"}}, all)
	require.Equal(t, int64(5), spans[0].End)
	require.NoError(t, writer.EndTransaction(t.Context(), kgo.TryAbort))
}
