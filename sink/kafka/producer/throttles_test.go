package producer

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/test/parts"
)

// The broker answers at once, and says how long it wants no request. Replicas have nothing to do with
// it.
func TestStalled_NamesTheQuotaThatThrottles(t *testing.T) {
	t.Parallel()
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"))
	c.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		produce := request.(*kmsg.ProduceRequest)
		response := produce.ResponseKind().(*kmsg.ProduceResponse)
		response.ThrottleMillis = int32(time.Hour.Milliseconds())
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic, topic.TopicID = produce.Topics[0].Topic, produce.Topics[0].TopicID
		topic.Partitions = append(topic.Partitions, kmsg.NewProduceResponseTopicPartition())
		response.Topics = append(response.Topics, topic)
		return response, nil, true
	})
	cfg := quick(c.ListenAddrs()...)
	cfg.DeliveryTimeout = 5 * sink.StalledAfter
	got := newOutcomes()
	s := openSink(t, cfg, got.done)
	require.NoError(t, s.Publish(parts.Within(t, patience), numbered("orders", 1)))
	require.NoError(t, got.wait(t, 1)[0].err)
	require.NoError(t, s.Publish(parts.Within(t, patience), numbered("orders", 1)))
	parts.Await(t, "a stalled partition", func() (bool, error) {
		return s.stopped() || s.Stalled() != sink.Stalled{}, nil
	})
	stalled := s.Stalled()
	require.True(t, stalled.Throttled)
	require.Contains(t, stalled.Next, "kafka-configs.sh")

	err := got.wait(t, 2)[1].err
	require.ErrorIs(t, err, sink.ErrUnreachable)
	require.ErrorContains(t, err, "sink.kafka.delivery_timeout")
	require.ErrorContains(t, err, "the broker throttles the relay: a quota is exceeded")
	require.ErrorContains(t, err, "kafka-configs.sh")
}

func TestStalled_NamesAQuotaOfARealBroker(t *testing.T) {
	t.Parallel()
	b := parts.RealKafka(t)
	topic, cfg := b.Topic(t, 1), real(b)
	cfg.ClientID = parts.Unique("throttled")
	altered, err := kadm.NewClient(b.Client(t)).AlterClientQuotas(parts.Within(t, patience),
		[]kadm.AlterClientQuotaEntry{{
			Entity: kadm.ClientQuotaEntity{{Type: "client-id", Name: &cfg.ClientID}},
			Ops:    []kadm.AlterClientQuotaOp{{Key: "producer_byte_rate", Value: 1000}},
		}})
	require.NoError(t, err)
	require.NoError(t, altered[0].Err)
	got := newOutcomes()
	s := openSink(t, cfg, got.done)
	large := &sink.Message{Topic: topic, Partition: sink.ByKey, Value: make([]byte, 500_000)}
	parts.Await(t, "a stalled partition", func() (bool, error) {
		var err error
		if s.reported.Load() == s.published.Load() { // the first throttles may be short
			err = s.Publish(parts.Within(t, patience), []*sink.Message{large})
		}
		return s.Stalled() != sink.Stalled{}, err
	})
	stalled := s.Stalled()
	require.True(t, stalled.Throttled)
	require.Contains(t, stalled.Next, "kafka-configs.sh")
	ended, end := context.WithCancel(t.Context())
	end()
	_ = s.Close(ended) // waits for nothing
}

func TestThrottles_ExplainAWaitThatIsMostlyTheirs(t *testing.T) {
	now := time.Now()
	at := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	for name, c := range map[string]struct {
		of          throttle
		since       time.Time
		isExplained bool
	}{
		"none":                           {throttle{}, at(-10), false},
		"it lasts":                       {throttle{at(-10), at(20)}, at(-10), true},
		"it began before":                {throttle{at(-30), at(20)}, at(-10), true},
		"it has just ended":              {throttle{at(-10), at(-1)}, at(-10), true},
		"it ended, and the wait goes on": {throttle{at(-10), at(-5)}, at(-10), false},
		"it was over before":             {throttle{at(-30), at(-20)}, at(-10), false},
		"the wait was long before":       {throttle{at(-1), at(20)}, at(-10), false},
	} {
		t.Run(name, func(t *testing.T) {
			ts := throttles{byBroker: map[int32]throttle{7: c.of}}
			require.Equal(t, c.isExplained, ts.explain(7, c.since, now))
			require.Equal(t, c.isExplained, ts.explainAny(c.since, now))
			require.False(t, ts.explain(8, c.since, now), "of another broker")
		})
	}
}

// Two connections to a broker are throttled by themselves, and Kafka before 2.0 delays the answer.
func TestThrottles_KeepTheOneThatEndsLast(t *testing.T) {
	ts := throttles{byBroker: map[int32]throttle{}}
	broker := kgo.BrokerMetadata{NodeID: 7}
	ts.OnBrokerThrottle(broker, time.Hour, false)
	require.Empty(t, ts.byBroker)
	ts.OnBrokerThrottle(broker, time.Hour, true)
	longest := ts.byBroker[7]
	ts.OnBrokerThrottle(broker, time.Minute, true)
	require.Equal(t, longest, ts.byBroker[7])
}
