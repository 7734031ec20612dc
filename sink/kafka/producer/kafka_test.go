package producer

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/test/parts"
)

func TestMain(m *testing.M) {
	parts.Main(m)
}

const patience = parts.Patience

// quick is a configuration whose retries and time-outs suit a test.
func quick(brokers ...string) kafka.Config {
	cfg := kafka.DefaultConfig()
	cfg.Brokers = brokers
	cfg.DialTimeout = 2 * time.Second
	cfg.ProduceTimeout = time.Second
	cfg.ReadTimeout = 2 * time.Second
	cfg.WriteTimeout = 2 * time.Second
	cfg.DeliveryTimeout = 30 * time.Second
	cfg.RetryBackoff = 5 * time.Millisecond
	return cfg
}

// unhurried is quick, but nothing times out because the machine is busy: for tests in which the
// broker answers, or the test ends the wait. In a transaction one request that is late ends the
// session.
func unhurried(brokers ...string) kafka.Config {
	cfg := quick(brokers...)
	cfg.DialTimeout = 10 * time.Second
	cfg.ProduceTimeout = 10 * time.Second
	cfg.ReadTimeout = 20 * time.Second
	cfg.WriteTimeout = 20 * time.Second
	return cfg
}

// outcomes collects what the sink reports.
type outcomes struct {
	mu      sync.Mutex
	changed chan struct{}
	list    []outcome
}

type outcome struct {
	message *sink.Message
	err     error
}

func newOutcomes() *outcomes { return &outcomes{changed: make(chan struct{}, 1)} }

func (o *outcomes) done(m *sink.Message, err error) {
	o.mu.Lock()
	o.list = append(o.list, outcome{m, err})
	o.mu.Unlock()
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

// wait returns the outcomes once there are n.
func (o *outcomes) wait(t testing.TB, n int) []outcome {
	t.Helper()
	ctx := parts.Within(t, patience)
	for {
		o.mu.Lock()
		list := append([]outcome(nil), o.list...)
		o.mu.Unlock()
		if len(list) >= n {
			return list
		}
		select {
		case <-o.changed:
		case <-ctx.Done():
			require.FailNowf(t, "too few outcomes", "%d of %d", len(list), n)
		}
	}
}

func openSink(t testing.TB, cfg kafka.Config, done sink.Done) *Sink {
	t.Helper()
	s, err := Open(parts.Within(t, patience), cfg, zerolog.New(zerolog.NewTestWriter(t)), done)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close(parts.Within(t, patience)) })
	return s
}

// read returns the first n records of a topic, in order per partition.
func read(t testing.TB, c *kfake.Cluster, topic string, n int, opts ...kgo.Opt) []*kgo.Record {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}, opts...)...)
	require.NoError(t, err)
	defer client.Close()
	ctx := parts.Within(t, patience)
	var records []*kgo.Record
	for len(records) < n {
		fetches := client.PollFetches(ctx)
		require.NoError(t, fetches.Err())
		records = append(records, fetches.Records()...)
	}
	return records
}

func numbered(topic string, n int) []*sink.Message {
	ms := make([]*sink.Message, n)
	for i := range ms {
		ms[i] = &sink.Message{
			Topic: topic, Key: fmt.Appendf(nil, "key-%d", i%17), Value: fmt.Appendf(nil, "%d", i),
			Partition: sink.ByKey,
			Headers:   []sink.Header{{Key: "id", Value: fmt.Appendf(nil, "%d", i)}},
			Origin:    sink.Origin{Index: uint32(i)},
		}
	}
	return ms
}

func TestSink_DeliversInOrder(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(6, "orders"))
	got := newOutcomes()
	s := openSink(t, quick(c.ListenAddrs()...), got.done)

	ms := numbered("orders", 5000)
	require.NoError(t, s.Publish(parts.Within(t, patience), ms))
	for _, o := range got.wait(t, len(ms)) {
		require.NoError(t, o.err)
	}
	requireInOrder(t, read(t, c, "orders", len(ms)), len(ms))
	require.NoError(t, s.Close(parts.Within(t, patience)))
}

// requireInOrder requires each of the numbered values exactly once, and ascending in each partition.
func requireInOrder(t testing.TB, records []*kgo.Record, n int) {
	t.Helper()
	seen, last := map[int]bool{}, map[int32]int{}
	for _, r := range records {
		var i int
		_, err := fmt.Sscan(string(r.Value), &i)
		require.NoError(t, err)
		require.False(t, seen[i], "%d twice", i)
		seen[i] = true
		if before, ok := last[r.Partition]; ok {
			require.Greater(t, i, before, "partition %d", r.Partition)
		}
		last[r.Partition] = i
	}
	require.Len(t, seen, n)
}
