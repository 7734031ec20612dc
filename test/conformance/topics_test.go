package conformance

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	kafka "postrider/sink/kafka"

	"postrider/sink"
	"postrider/test/parts"
)

// topics is the broker, one case at a time: cases publish to topics of the same names.
type topics struct {
	broker *parts.Broker
	client *kgo.Client // reads every topic that was published to
	admin  *kadm.Client

	mu     sync.Mutex
	known  map[string]bool
	sink   sink.Sink
	sinkOf kafka.Config
	done   chan error
}

func newTopics(t *testing.T, broker *parts.Broker) *topics {
	t.Helper()
	client := broker.Client(t, kgo.FetchMaxWait(patience/60))
	ts := &topics{broker: broker, client: client, admin: kadm.NewClient(client), known: map[string]bool{}, done: make(chan error, 1<<16)}
	t.Cleanup(ts.closeSink)
	return ts
}

// prepare makes the topics that a case wants to have before its start.
func (ts *topics) prepare(t *testing.T, want map[string]int32) {
	t.Helper()
	for name, partitions := range want {
		switch have := ts.broker.Partitions(t, name); have {
		case partitions:
		case 0:
			ts.broker.CreateTopic(t, name, partitions, nil)
		default:
			require.Failf(t, "two cases want different topics of one name", "%s has %d partitions, not %d", name, have, partitions)
		}
	}
}

// publish sends messages through the sink and returns what lies in the topics then, by topic and partition, in order. The error is that of
// the sink, for the first message that did not get through.
func (ts *topics) publish(t *testing.T, cfg kafka.Config, want map[string]int32, messages []*sink.Message) (map[string]map[int32][]*kgo.Record, error) {
	t.Helper()
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ts.prepare(t, want)
	if len(messages) == 0 {
		return nil, nil
	}
	ts.open(ctx, t, cfg)
	ts.follow(ctx, t, messages)
	var failure error
	taken := 0
	for _, m := range messages {
		if failure = ts.sink.Publish(ctx, []*sink.Message{m}); failure != nil {
			break
		}
		taken++
	}
	delivered := 0
	for range taken {
		select {
		case err := <-ts.done:
			if err == nil {
				delivered++
			} else if failure == nil {
				failure = err
			}
		case <-ctx.Done():
			require.Fail(t, "the sink reported nothing")
		}
	}
	if failure != nil {
		ts.closeSink()
	}
	return ts.read(ctx, t, messages, delivered), failure
}

func (ts *topics) open(ctx context.Context, t *testing.T, cfg kafka.Config) {
	t.Helper()
	if ts.sink != nil && fmt.Sprint(ts.sinkOf) == fmt.Sprint(cfg) {
		return
	}
	ts.closeSink()
	s, err := kafka.Open(ctx, cfg, zerolog.Nop(), func(_ *sink.Message, err error) { ts.done <- err })
	require.NoError(t, err)
	ts.sink, ts.sinkOf = s, cfg
}

func (ts *topics) closeSink() {
	if ts.sink != nil {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = ts.sink.Close(ctx)
		ts.sink = nil
	}
}

// follow reads topics from now on, from what they hold: nothing of it is of this case.
func (ts *topics) follow(ctx context.Context, t *testing.T, messages []*sink.Message) {
	t.Helper()
	var names []string
	for _, m := range messages {
		if !ts.known[m.Topic] {
			ts.known[m.Topic] = true
			names = append(names, m.Topic)
		}
	}
	if len(names) == 0 {
		return
	}
	for _, m := range messages {
		_ = ts.sink.Topic(ctx, m.Topic) // made if it can be; what is wrong with it is Publish's to say
	}
	ends, err := ts.admin.ListEndOffsets(ctx, names...)
	require.NoError(t, err)
	from := map[string]map[int32]kgo.Offset{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Err != nil {
			delete(ts.known, o.Topic)
			return
		}
		if from[o.Topic] == nil {
			from[o.Topic] = map[int32]kgo.Offset{}
		}
		from[o.Topic][o.Partition] = kgo.NewOffset().At(o.Offset)
	})
	ts.client.AddConsumePartitions(from)
}

func (ts *topics) read(ctx context.Context, t *testing.T, messages []*sink.Message, n int) map[string]map[int32][]*kgo.Record {
	t.Helper()
	got := map[string]map[int32][]*kgo.Record{}
	for read := 0; read < n; {
		fetches := ts.client.PollFetches(ctx)
		require.NoError(t, ctx.Err(), "%d of %d records read, the first to %s", read, n, messages[0].Topic)
		for _, r := range fetches.Records() {
			if got[r.Topic] == nil {
				got[r.Topic] = map[int32][]*kgo.Record{}
			}
			got[r.Topic][r.Partition] = append(got[r.Topic][r.Partition], r)
			read++
		}
	}
	return got
}
