package producer

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/test/parts"
)

// queueTest fills the partition queues of one topic by hand.
type queueTest struct {
	queues queues
	topic  *topicQueues
	now    time.Time
}

func newQueueTest(limit int) *queueTest {
	t := &queueTest{queues: queues{limit: limit, topics: map[string]*topicQueues{}}, now: time.Now()}
	t.topic = t.queues.topic("orders")
	t.topic.prefetched = true
	return t
}

func (t *queueTest) add(partition int32, sizes ...int) {
	var rs []*record
	for _, size := range sizes {
		r := &record{topic: t.topic, size: size}
		r.kgo.Partition = partition
		rs = append(rs, r)
	}
	t.queues.add(rs)
}

// next returns the sizes of what goes to the client, by partition.
func (t *queueTest) next() (*flush, map[int32][]int) {
	r := &flush{}
	t.queues.next(r, t.now)
	sizes := map[int32][]int{}
	for _, next := range r.records {
		sizes[next.kgo.Partition] = append(sizes[next.kgo.Partition], next.size)
	}
	return r, sizes
}

func (t *queueTest) ack(r *flush) {
	for _, next := range r.records {
		if freed, _ := t.queues.acked(next.queue); freed {
			next.queue.lastAck = t.now
			t.queues.makeReady(next.queue)
		}
	}
}

func TestQueues_GiveTheClientOneBatchOfAPartition(t *testing.T) {
	qt := newQueueTest(kafka.BatchHeader + 1000)
	qt.add(0, 400, 400, 400, 5000, 400)
	qt.add(1, 10)
	first, sizes := qt.next()
	require.Equal(t, map[int32][]int{0: {400, 400}, 1: {10}}, sizes, "a batch stays below the limit")
	qt.add(0, 300)
	qt.add(2, 20)
	second, sizes := qt.next()
	require.Equal(t, map[int32][]int{2: {20}}, sizes,
		"nothing follows a batch that is not acknowledged")
	freed, idle := qt.queues.acked(first.records[0].queue)
	require.False(t, freed || idle, "nor one that is in part")
	_, sizes = qt.next()
	require.Empty(t, sizes)
	first.records = first.records[1:]
	qt.ack(first)
	first, sizes = qt.next()
	require.Equal(t, map[int32][]int{0: {400}}, sizes)
	qt.ack(first)
	first, sizes = qt.next()
	require.Equal(t, map[int32][]int{0: {5000}}, sizes, "what is larger than the limit travels alone")
	qt.ack(first)
	qt.ack(second)
	first, sizes = qt.next()
	require.Equal(t, map[int32][]int{0: {400, 300}}, sizes)
	qt.ack(first)
	require.Zero(t, qt.queues.allMessages+qt.queues.allBytes+qt.queues.messages+qt.queues.bytes+int(qt.queues.inClient.Load()))
}

// A leader that has forgotten the producer takes any sequence number: also that of a second batch
// whose first it has refused. One record cannot become two.
func TestQueues_GiveOneRecordAfterALongPause(t *testing.T) {
	qt := newQueueTest(1000)
	qt.add(0, 10, 10)
	first, sizes := qt.next()
	require.Equal(t, map[int32][]int{0: {10, 10}}, sizes,
		"the client itself takes care of the first ever")
	qt.ack(first)
	qt.now = qt.now.Add(producerExpiry + time.Second)
	qt.add(0, 10, 10, 10)
	first, sizes = qt.next()
	require.Equal(t, map[int32][]int{0: {10}}, sizes)
	qt.ack(first)
	_, sizes = qt.next()
	require.Equal(t, map[int32][]int{0: {10, 10}}, sizes)
}

func TestQueues_DivideFlushesOfManyPartitions(t *testing.T) {
	qt := newQueueTest(1000)
	for partition := range int32(flushPartitions + 3) {
		qt.add(partition, 10)
	}
	first, _ := qt.next()
	require.Len(t, first.records, flushPartitions)
	second, _ := qt.next()
	require.Len(t, second.records, 3)
}

func TestQueues_TellTheClientOfNewTopicsTogether(t *testing.T) {
	qt := newQueueTest(1000)
	addToNewTopic := func(name string) {
		qt.topic = qt.queues.topic(name)
		qt.add(0, 10)
	}
	addToNewTopic("a")
	_, sizes := qt.next()
	require.Empty(t, sizes)
	require.Zero(t, qt.queues.prefetchTopics(qt.now), "the first at once")
	_, sizes = qt.next()
	require.Len(t, sizes, 1)

	addToNewTopic("b")
	require.Zero(t, qt.queues.prefetchTopics(qt.now), "as many again at once")
	_, sizes = qt.next()
	require.Len(t, sizes, 1)
	addToNewTopic("c")
	later := qt.queues.prefetchTopics(qt.now)
	require.Equal(t, qt.now.Add(2*newTopicDelay), later)
	require.Empty(t, qt.queues.ready)
	require.Zero(t, qt.queues.prefetchTopics(later))
	require.Len(t, qt.queues.ready, 1)
	require.Equal(t, later.Add(3*newTopicDelay), qt.queues.newTopicsAt)
}

func TestSink_AllocatesAtMostTwicePerRow(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(12, "orders"), kfake.BlackholeProduce())
	const window, rows = 5_000, 50_000
	var failed atomic.Int64
	room := make(chan struct{}, window)
	s, err := Open(parts.Within(t, patience), quick(c.ListenAddrs()...), zerolog.Nop(),
		func(_ *sink.Message, err error) {
			if err != nil {
				failed.Add(1)
			}
			<-room
		})
	require.NoError(t, err)
	defer func() { _ = s.Close(parts.Within(t, patience)) }()
	ms := numbered("orders", 2*window)
	ctx := parts.Within(t, patience)
	publish := func(n int) {
		for at := 0; at < n; at += 10 {
			for range 10 {
				room <- struct{}{}
			}
			require.NoError(t, s.Publish(ctx, ms[at%len(ms):][:10]))
		}
		for range window {
			room <- struct{}{}
		}
		for range window {
			<-room
		}
	}
	publish(rows) // until everything that is used again is there
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	publish(rows)
	runtime.ReadMemStats(&after)
	require.Zero(t, failed.Load())
	per := float64(after.Mallocs-before.Mallocs) / rows // the broker's, in this process, included
	t.Logf("%.2f allocations per row", per)
	require.LessOrEqual(t, per, 2.0)
}
