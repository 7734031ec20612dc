package producer

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
)

// topics has the topics that exist. It belongs to the publisher.
type topics struct {
	client *kafka.Client // asks
	// learn returns when the producer, which has a view of its own, has a partition that is there.
	learn  func(ctx context.Context, topic string, partition int32) error
	taking context.Context  // ended: no answer is waited for any more
	known  map[string]int32 // partitions; asked for again when a message wants one beyond
	// of the Publish that is under way, until their topics have been asked for
	ahead []*sink.Message
}

// until is ctx, ended with ErrClosed when taking ends.
func until(ctx, taking context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(taking, func() { cancel(sink.ErrClosed) })
	return ctx, func() { stop(); cancel(nil) }
}

// ensure returns when the topic exists, creating it if configured. It asks the cluster the first
// time a topic is used.
func (t *topics) ensure(ctx context.Context, topic string) error {
	if _, ok := t.known[topic]; ok {
		return nil
	}
	if err := kafka.CheckName(topic); err != nil {
		return err
	}
	if t.prefetch(ctx); t.known[topic] > 0 {
		return nil
	}
	return t.ask(ctx, topic, func(ctx context.Context) (int32,
		error) {
		return t.client.Ensure(ctx, topic)
	})
}

// has reports whether the topic has the partition, asking again if it is beyond what is known:
// partitions can be added.
func (t *topics) has(ctx context.Context, topic string, partition int32) error {
	if partition < t.known[topic] {
		return nil
	}
	err := t.ask(ctx, topic, func(ctx context.Context) (int32, error) {
		n, err := t.client.Partitions(ctx, topic)
		if err == nil && partition < n {
			err = t.learn(ctx, topic, partition)
		}
		return n, err
	})
	if err != nil {
		return err
	}
	if n := t.known[topic]; partition >= n {
		err := fmt.Errorf("%w: partition %d of topic %q, which has %d partitions", sink.ErrInvalidRecord,
			partition, topic, n)
		return kafka.Advise(err, "correct the column, or add partitions: %s",
			kafka.AddPartitionsCommand(*t.client.Config, topic, partition+1))
	}
	return nil
}

// ask waits for an answer until ctx or the sink ends.
func (t *topics) ask(ctx context.Context, topic string,
	question func(context.Context) (int32, error)) error {
	ctx, end := until(ctx, t.taking)
	defer end()
	n, err := question(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("look up topic %q: %w", topic, context.Cause(ctx))
	case err != nil:
		return err
	}
	t.known[topic] = n
	return nil
}

// prefetch asks about all topics of the messages ahead that are used for the first time, in one
// request: ten thousand topics one by one are ten thousand round trips, during which nothing is
// published. What it does not find out, because a topic is missing or being created, ensure asks
// again and says well.
func (t *topics) prefetch(ctx context.Context) {
	names := t.unknown(t.ahead)
	t.ahead = nil
	if len(names) < 2 {
		return
	}
	ctx, end := until(ctx, t.taking)
	defer end()
	for topic, partitions := range t.client.AllPartitions(ctx, names) {
		t.known[topic] = partitions
	}
}

// unknown is the topics of messages that are not known, each once.
func (t *topics) unknown(ms []*sink.Message) (names []string) {
	var listed map[string]struct{}
	last := ""
	for _, m := range ms {
		if m.Topic == last {
			continue
		}
		last = m.Topic
		if _, known := t.known[last]; known || kafka.CheckName(last) != nil {
			continue
		}
		if _, twice := listed[last]; twice {
			continue
		}
		if listed == nil {
			listed = map[string]struct{}{}
		}
		listed[last] = struct{}{}
		names = append(names, last)
	}
	return names
}
