package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/sink/kafka/producer"
	"github.com/postrider/postrider/test/parts"
)

// partitionsByDefault is how many the recordings' broker made.
const partitionsByDefault = 4

// topics is the broker, for one case at a time: all of them publish to topics of the same names.
type topics struct {
	broker *parts.Broker
	client *kgo.Client // reads every topic that was published to
	admin  *kadm.Client

	mu     sync.Mutex
	known  map[string]int32 // topics that are read, with their partitions
	sink   *producer.Sink   // of the case before, for the next one with the same settings
	sinkOf kafka.Config
	done   chan error // what became of the messages that sink took
}

// newTopics makes the topics that the cases write to: making one takes longer than a case. Others are made when they are met.
func newTopics(t *testing.T, cases []*golden) *topics {
	t.Helper()
	broker := parts.Kafka(t)
	client := broker.Client(t, kgo.FetchMaxWait(time.Second))
	ts := &topics{broker: broker, client: client, admin: kadm.NewClient(client), known: map[string]int32{}}
	t.Cleanup(ts.closeSink)

	partitions := map[string]int32{}
	for _, g := range cases {
		for _, r := range g.Records {
			partitions[r.Topic] = partitionsByDefault
		}
	}
	for _, g := range cases {
		maps.Copy(partitions, g.Topics)
	}
	byCount := map[int32][]string{}
	for topic, n := range partitions {
		byCount[n] = append(byCount[n], topic)
	}
	ctx, cancel := context.WithTimeout(t.Context(), parts.Patience)
	defer cancel()
	var made []string
	for n, names := range byCount {
		created, err := ts.admin.CreateTopics(ctx, n, 1, nil, names...)
		require.NoError(t, err)
		for _, topic := range created {
			if topic.Err == nil { // what is wrong with it comes up in its case
				made = append(made, topic.Topic)
			}
		}
	}
	if len(made) > 0 {
		require.NoError(t, ts.readFrom(ctx, made...))
	}
	return ts
}

// publish sends messages through the sink and reads what lies in the topics then. A message that does not get through is the failure of the
// case, and the last one.
func (ts *topics) publish(ctx context.Context, cfg kafka.Config, want map[string]int32, messages []*sink.Message, got *result) error {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if err := ts.prepare(ctx, want); err != nil {
		return err
	}
	if len(messages) == 0 {
		return nil
	}
	if err := ts.open(ctx, cfg); err != nil {
		return err
	}
	if err := ts.follow(ctx, messages); err != nil {
		return err
	}
	delivered, failure := ts.send(ctx, messages)
	if failure != nil {
		got.failure = failure
		ts.closeSink()
	}
	return ts.read(ctx, delivered, got)
}

// prepare makes the topics that a case wants to have before its start. One that another case had otherwise is made anew.
func (ts *topics) prepare(ctx context.Context, want map[string]int32) error {
	for name, partitions := range want {
		have, known := ts.known[name]
		if known && have == partitions {
			continue
		}
		if known {
			ts.closeSink() // which knows the topic as it was
			ts.client.PurgeTopicsFromClient(name)
			delete(ts.known, name)
			if _, err := ts.admin.DeleteTopic(ctx, name); err != nil {
				return fmt.Errorf("delete topic %s: %w", name, err)
			}
		}
		if err := ts.create(ctx, name, partitions); err != nil {
			return err
		}
	}
	return nil
}

// create waits, since a topic that is being deleted is in the way for a moment.
func (ts *topics) create(ctx context.Context, name string, partitions int32) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := ts.admin.CreateTopic(ctx, partitions, 1, nil, name)
		if err == nil {
			return ts.readFrom(ctx, name)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("create topic %s: %w", name, err)
		}
	}
}

func (ts *topics) open(ctx context.Context, cfg kafka.Config) error {
	if ts.sink != nil && reflect.DeepEqual(ts.sinkOf, cfg) {
		return nil
	}
	ts.closeSink()
	done := make(chan error, 1<<16) // of this sink alone: one that is closed may still report
	s, err := producer.Open(ctx, cfg, zerolog.Nop(), func(_ *sink.Message, err error) { done <- err })
	if err != nil {
		return fmt.Errorf("open the sink: %w", err)
	}
	ts.sink, ts.sinkOf, ts.done = s, cfg, done
	return nil
}

func (ts *topics) closeSink() {
	if ts.sink != nil {
		ctx, cancel := context.WithTimeout(context.Background(), parts.Patience)
		defer cancel()
		_ = ts.sink.Close(ctx)
		ts.sink = nil
	}
}

// send publishes up to the first failure. delivered are those that lie in a topic.
func (ts *topics) send(ctx context.Context, messages []*sink.Message) (delivered int, failure error) {
	taken := 0
	for _, m := range messages {
		if failure = ts.sink.Publish(ctx, []*sink.Message{m}); failure != nil {
			break
		}
		taken++
	}
	for range taken {
		select {
		case err := <-ts.done:
			if err == nil {
				delivered++
			} else if failure == nil || errors.Is(failure, sink.ErrClosed) {
				failure = err
			}
		case <-ctx.Done():
			return delivered, errors.New("the sink did not report every message")
		}
	}
	return delivered, failure
}

// follow reads the topics of messages from now on: nothing that is in them is of this case.
func (ts *topics) follow(ctx context.Context, messages []*sink.Message) error {
	for _, m := range messages {
		if _, known := ts.known[m.Topic]; known {
			continue
		}
		if err := ts.sink.Topic(ctx, m.Topic); err != nil {
			return nil //nolint:nilerr // what is wrong with it is Publish's to say, and no message gets past it
		}
		if err := ts.readFrom(ctx, m.Topic); err != nil {
			return err
		}
	}
	return nil
}

// readFrom has the client read topics from their ends.
func (ts *topics) readFrom(ctx context.Context, names ...string) error {
	var ends kadm.ListedOffsets
	for { // a topic that was just made has no leaders yet
		var err error
		if ends, err = ts.admin.ListEndOffsets(ctx, names...); err == nil && ends.Error() == nil {
			break
		}
		if ctx.Err() != nil {
			return fmt.Errorf("find the ends of %d topics: %w", len(names), errors.Join(err, ends.Error()))
		}
	}
	from := map[string]map[int32]kgo.Offset{}
	ends.Each(func(o kadm.ListedOffset) {
		if from[o.Topic] == nil {
			from[o.Topic] = map[int32]kgo.Offset{}
		}
		from[o.Topic][o.Partition] = kgo.NewOffset().At(o.Offset)
		ts.known[o.Topic]++
	})
	ts.client.AddConsumePartitions(from)
	return nil
}

// read waits for n records.
func (ts *topics) read(ctx context.Context, n int, got *result) error {
	got.records = map[string]map[int32][]*kgo.Record{}
	for read := 0; read < n; {
		fetches := ts.client.PollFetches(ctx)
		if ctx.Err() != nil {
			return fmt.Errorf("%d of %d records read: %w", read, n, errors.Join(ctx.Err(), fetches.Err()))
		}
		for _, r := range fetches.Records() {
			if got.records[r.Topic] == nil {
				got.records[r.Topic] = map[int32][]*kgo.Record{}
			}
			got.records[r.Topic][r.Partition] = append(got.records[r.Topic][r.Partition], r)
			read++
		}
	}
	return nil
}
