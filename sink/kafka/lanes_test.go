package kafka

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/postrider/postrider/sink"
)

// laneTest feeds lanes of one topic by hand.
type laneTest struct {
	lanes lanes
	topic *topicLanes
	now   time.Time
}

func newLaneTest(limit int) *laneTest {
	t := &laneTest{lanes: lanes{limit: limit, topics: map[string]*topicLanes{}}, now: time.Now()}
	t.topic = t.lanes.topic("orders")
	t.topic.greeted = true
	return t
}

func (t *laneTest) add(partition int32, sizes ...int) {
	var rs []*record
	for _, size := range sizes {
		r := &record{topic: t.topic, size: size}
		r.producer.Partition = partition
		rs = append(rs, r)
	}
	t.lanes.add(rs)
}

// next returns the sizes of what goes to the client, by partition.
func (t *laneTest) next() (*round, map[int32][]int) {
	r := &round{}
	t.lanes.next(r, t.now)
	sizes := map[int32][]int{}
	for _, next := range r.records {
		sizes[next.producer.Partition] = append(sizes[next.producer.Partition], next.size)
	}
	return r, sizes
}

func (t *laneTest) land(r *round) {
	for _, next := range r.records {
		if freed, _ := t.lanes.landed(next.lane); freed {
			next.lane.acked = t.now
			t.lanes.queue(next.lane)
		}
	}
}

func TestLanes_GiveTheClientOneBatchOfAPartition(t *testing.T) {
	lt := newLaneTest(batchHeader + 1000)
	lt.add(0, 400, 400, 400, 5000, 400)
	lt.add(1, 10)
	first, sizes := lt.next()
	require.Equal(t, map[int32][]int{0: {400, 400}, 1: {10}}, sizes, "a batch stays below the limit")
	lt.add(0, 300)
	lt.add(2, 20)
	second, sizes := lt.next()
	require.Equal(t, map[int32][]int{2: {20}}, sizes, "nothing follows a batch that is not acknowledged")
	freed, idle := lt.lanes.landed(first.records[0].lane)
	require.False(t, freed || idle, "nor one that is in part")
	_, sizes = lt.next()
	require.Empty(t, sizes)
	first.records = first.records[1:]
	lt.land(first)
	first, sizes = lt.next()
	require.Equal(t, map[int32][]int{0: {400}}, sizes)
	lt.land(first)
	first, sizes = lt.next()
	require.Equal(t, map[int32][]int{0: {5000}}, sizes, "what is larger than the limit travels alone")
	lt.land(first)
	lt.land(second)
	first, sizes = lt.next()
	require.Equal(t, map[int32][]int{0: {400, 300}}, sizes)
	lt.land(first)
	require.Zero(t, lt.lanes.waiting+lt.lanes.held+lt.lanes.messages+lt.lanes.bytes+int(lt.lanes.out.Load()))
}

// A leader that has forgotten the producer takes any sequence number: also that of a second batch whose first it has refused. One record cannot become two.
func TestLanes_GiveOneRecordAfterALongPause(t *testing.T) {
	lt := newLaneTest(1000)
	lt.add(0, 10, 10)
	first, sizes := lt.next()
	require.Equal(t, map[int32][]int{0: {10, 10}}, sizes, "the client itself takes care of the first ever")
	lt.land(first)
	lt.now = lt.now.Add(forgetful + time.Second)
	lt.add(0, 10, 10, 10)
	first, sizes = lt.next()
	require.Equal(t, map[int32][]int{0: {10}}, sizes)
	lt.land(first)
	_, sizes = lt.next()
	require.Equal(t, map[int32][]int{0: {10, 10}}, sizes)
}

func TestLanes_DivideRoundsOfManyPartitions(t *testing.T) {
	lt := newLaneTest(1000)
	for partition := range int32(roundPartitions + 3) {
		lt.add(partition, 10)
	}
	first, _ := lt.next()
	require.Len(t, first.records, roundPartitions)
	second, _ := lt.next()
	require.Len(t, second.records, 3)
}

func TestLanes_TellTheClientOfNewTopicsTogether(t *testing.T) {
	lt := newLaneTest(1000)
	fresh := func(name string) {
		lt.topic = lt.lanes.topic(name)
		lt.add(0, 10)
	}
	fresh("a")
	_, sizes := lt.next()
	require.Empty(t, sizes)
	require.Zero(t, lt.lanes.welcome(lt.now), "the first at once")
	_, sizes = lt.next()
	require.Len(t, sizes, 1)

	fresh("b")
	require.Zero(t, lt.lanes.welcome(lt.now), "as many again at once")
	_, sizes = lt.next()
	require.Len(t, sizes, 1)
	fresh("c")
	later := lt.lanes.welcome(lt.now)
	require.Equal(t, lt.now.Add(2*perTopic), later)
	require.Empty(t, lt.lanes.ready)
	require.Zero(t, lt.lanes.welcome(later))
	require.Len(t, lt.lanes.ready, 1)
	require.Equal(t, later.Add(3*perTopic), lt.lanes.greet)
}

func TestSink_AllocatesAtMostTwicePerRow(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(12, "orders"), kfake.BlackholeProduce())
	const window, rows = 5_000, 50_000
	var failed atomic.Int64
	room := make(chan struct{}, window)
	s, err := Open(within(t, patience), quick(c.ListenAddrs()...), zerolog.Nop(), func(_ *sink.Message, err error) {
		if err != nil {
			failed.Add(1)
		}
		<-room
	})
	require.NoError(t, err)
	defer func() { _ = s.Close(within(t, patience)) }()
	ms := numbered("orders", 2*window)
	ctx := within(t, patience)
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
