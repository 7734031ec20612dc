package topicreader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/test/parts"
)

func openReader(t *testing.T, b *parts.Broker, committed bool) *Reader {
	t.Helper()
	r, err := Open(parts.Within(t, 3*parts.Patience), real(b), committed)
	require.NoError(t, err)
	t.Cleanup(r.Close)
	return r
}

// readAll returns the values of a topic by partition.
func (r *Reader) readAll(t *testing.T, topic string,
	since time.Time) (values [][]string, spans []Span) {
	t.Helper()
	spans, err := r.Spans(parts.Within(t, 3*parts.Patience), topic, since)
	require.NoError(t, err)
	values = make([][]string, len(spans))
	last, lastOffset := 0, int64(-1)
	require.NoError(t, r.Read(parts.Within(t, 3*parts.Patience), spans,
		func(m *sink.Message, offset int64) error {
			span := slices.IndexFunc(spans, func(s Span) bool { return s.Partition == m.Partition })
			if span != last {
				last, lastOffset = span, -1
			}
			require.Greater(t, offset, lastOffset)
			require.GreaterOrEqual(t, span, last)
			lastOffset = offset
			require.Equal(t, spans[span].Partition, m.Partition)
			require.Equal(t, "key "+string(m.Value), string(m.Key))
			require.Equal(t, []sink.Header{{Key: "id", Value: m.Value}}, m.Headers)
			values[span] = append(values[span], string(m.Value))
			return nil
		}))
	return values, spans
}

func numberedRecord(topic string, partition int32, n int) *kgo.Record {
	value := fmt.Appendf(nil, "%d", n)
	return &kgo.Record{Topic: topic, Partition: partition, Key: fmt.Appendf(nil, "key %d", n),
		Value:   value,
		Headers: []kgo.RecordHeader{{Key: "id", Value: value}}}
}

func TestReader_ReadsEveryRecordOnceAndInOrder(t *testing.T) {
	b := parts.RealKafka(t)
	topic := b.Topic(t, 3)
	for i, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(),
		kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		writer := b.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.ProducerBatchCompression(codec), kgo.ProducerBatchMaxBytes(20_000))
		for n := range 2000 {
			writer.Produce(t.Context(), numberedRecord(topic, int32(n%3), i*2000+n), nil)
		}
		require.NoError(t, writer.Flush(t.Context()))
	}
	r := openReader(t, b, true)
	values, spans := r.readAll(t, topic, time.Time{})
	require.Len(t, spans, 3)
	for p, got := range values {
		var want []string
		for n := range 10_000 {
			if n%2000%3 == p {
				want = append(want, fmt.Sprint(n))
			}
		}
		require.Equal(t, want, got)
	}
	// The ends are those of the question, not of the answer.
	writer := b.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, writer.ProduceSync(t.Context(), numberedRecord(topic, 0, 10_000)).FirstErr())
	seen := 0
	require.NoError(t, r.Read(parts.Within(t, 3*parts.Patience), spans,
		func(*sink.Message, int64) error { seen++; return nil }))
	require.Equal(t, 10_000, seen)

	_, err := r.Spans(parts.Within(t, 3*parts.Patience), topic+"-that-does-not-exist", time.Time{})
	require.ErrorIs(t, err, sink.ErrUnknownTopic)

	enough := errors.New("enough")
	require.ErrorIs(t, r.Read(parts.Within(t, 3*parts.Patience), spans,
		func(*sink.Message, int64) error { return enough }), enough)
}

func TestReader_BeginsAtATime(t *testing.T) {
	b := parts.RealKafka(t)
	topic := b.Topic(t, 2)
	writer := b.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	began := time.Now().Truncate(time.Second).Add(-time.Hour)
	for n := range 10 {
		record := numberedRecord(topic, 0, n)
		record.Timestamp = began.Add(time.Duration(n) * time.Minute)
		require.NoError(t, writer.ProduceSync(t.Context(), record).FirstErr())
	}
	values, spans := openReader(t, b, true).readAll(t, topic, began.Add(7*time.Minute))
	require.Equal(t, [][]string{{"7", "8", "9"}, nil}, values)
	require.Equal(t, []Span{{topic, 0, 7, 10}, {topic, 1, 0, 0}}, spans)
}

func TestReader_SeesWhatTransactionsLeave(t *testing.T) {
	b := parts.RealKafka(t)
	topic := b.Topic(t, 1)
	n := 0
	for range 2 {
		writer := b.Client(t, kgo.TransactionalID(parts.Unique("writer")))
		for _, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit, kgo.TryAbort} {
			require.NoError(t, writer.BeginTransaction())
			for range 2 {
				require.NoError(t, writer.ProduceSync(t.Context(), numberedRecord(topic, 0, n)).FirstErr())
				n++
			}
			require.NoError(t, writer.EndTransaction(t.Context(), end))
		}
	}
	committed, _ := openReader(t, b, true).readAll(t, topic, time.Time{})
	require.Equal(t, [][]string{{"2", "3", "8", "9"}}, committed)
	all, _ := openReader(t, b, false).readAll(t, topic, time.Time{})
	require.Equal(t, [][]string{{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"}}, all)
}

// The leader of a topic that was just created, or that moves, may not be the one that gets the request.
func TestReader_AsksAgainForOffsetsWhileLeadersMove(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(2, "orders"))
	r, err := Open(parts.Within(t, parts.Patience), quick(c.ListenAddrs()...), true)
	require.NoError(t, err)
	t.Cleanup(r.Close)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Err: kerr.NotLeaderForPartition,
		Count: 2})
	spans, err := r.Spans(parts.Within(t, parts.Patience), "orders", time.Time{})
	require.NoError(t, err)
	require.Len(t, spans, 2)
}

// The reader has the id of a topic that was deleted and created again.
func TestReader_LooksUpATopicWhoseIDIsUnknown(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"))
	r, err := Open(parts.Within(t, parts.Patience), quick(c.ListenAddrs()...), true)
	require.NoError(t, err)
	t.Cleanup(r.Close)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.UnknownTopicID, Count: 2})
	fetched, err := r.Fetch(parts.Within(t, parts.Patience), "orders", map[int32]int64{0: 0},
		1<<10, 0)
	require.NoError(t, err)
	require.Len(t, fetched, 1)
}

// A broker that has just started does not have every topic yet. Recovery would publish again what
// is in one that is taken for missing.
func TestReader_AsksAgainForATopicThatABrokerDoesNotHave(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(2, "orders"))
	r, err := Open(parts.Within(t, parts.Patience), quick(c.ListenAddrs()...), true)
	require.NoError(t, err)
	t.Cleanup(r.Close)
	for range 3 {
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "orders",
			Err: kerr.UnknownTopicOrPartition, Count: 2})
		spans, err := r.Spans(parts.Within(t, parts.Patience), "orders", time.Time{})
		require.NoError(t, err)
		require.Len(t, spans, 2)
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "orders",
			Err: kerr.UnknownTopicOrPartition, Count: 2})
		ends, err := r.Ends(parts.Within(t, parts.Patience), "orders", "missing")
		require.NoError(t, err)
		require.Equal(t, map[string][]int64{"orders": {0, 0}, "missing": {}}, ends)
	}
}

// A broker answers a fetch request beyond a quota without any partition.
func TestReader_GoesOnOnceAQuotaAllows(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"))
	r, err := Open(parts.Within(t, parts.Patience), quick(c.ListenAddrs()...), true)
	require.NoError(t, err)
	t.Cleanup(r.Close)
	throttled := 0
	c.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		if throttled > tries {
			return nil, nil, false
		}
		c.KeepControl()
		throttled++
		answer := r.ResponseKind().(*kmsg.FetchResponse)
		answer.ThrottleMillis = 1
		return answer, nil, true
	})
	answers, err := r.Fetch(parts.Within(t, parts.Patience), "orders", map[int32]int64{0: 0}, 1000, 0)
	require.NoError(t, err)
	require.Equal(t, []Fetched{{Records: answers[0].Records}}, answers)
	require.Greater(t, throttled, tries)
}

// A reader knows a leader until a request fails. The client has no more than the brokers that are
// in the cluster.
func TestReader_FindsTheLeaderAfterOneThatHasLeftTheCluster(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"))
	r, err := Open(parts.Within(t, parts.Patience), quick(c.ListenAddrs()...), true)
	require.NoError(t, err)
	t.Cleanup(r.Close)
	for name, request := range map[string]func(ctx context.Context) error{
		"fetch": func(ctx context.Context) error {
			_, err := r.Fetch(ctx, "orders", map[int32]int64{0: 0}, 1000, 0)
			return err
		},
		"start": func(ctx context.Context) error {
			_, err := r.Start(ctx, "orders", 0)
			return err
		},
	} {
		led, err := r.leadersOf(t.Context(), "orders")
		require.NoError(t, err)
		led.of[0] = 7 // a broker that is not in the cluster
		require.NoError(t, request(parts.Within(t, parts.Patience)), name)
	}
}
