package producer

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
)

// topics has the topics that exist. It belongs to the publisher.
type topics struct {
	client   *kafka.Client    // which is asked
	producer *kafka.Client    // which has a view of its own
	taking   context.Context  // ended: no answer is waited for any more
	known    map[string]int32 // partitions; asked for again when a message wants one beyond
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
	return t.ask(ctx, topic, t.client.Ensure)
}

// has reports whether the topic has the partition, asking again if it is beyond what is known:
// partitions can be added.
func (t *topics) has(ctx context.Context, topic string, partition int32) error {
	if partition < t.known[topic] {
		return nil
	}
	err := t.ask(ctx, topic, func(ctx context.Context, topic string) (int32, error) {
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
	question func(context.Context, string) (int32, error)) error {
	ctx, end := until(ctx, t.taking)
	defer end()
	n, err := question(ctx, topic)
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("look up topic %q: %w", topic, context.Cause(ctx))
	case err != nil:
		return err
	}
	t.known[topic] = n
	return nil
}

// prefetch asks about all new topics of the messages ahead in one request, and not in one for
// each. ensure asks again about topics that are missing or being created.
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
	listed := map[string]bool{}
	last := ""
	for _, m := range ms {
		if m.Topic == last {
			continue
		}
		last = m.Topic
		if _, known := t.known[last]; !known && !listed[last] && kafka.CheckName(last) == nil {
			listed[last] = true
			names = append(names, last)
		}
	}
	return names
}

// learn returns when the producer has a partition that was added to a topic which it may have.
func (t *topics) learn(ctx context.Context, topic string, partition int32) error {
	const again = 10 * time.Millisecond
	for deadline := time.Now().Add(t.client.Config.ReadTimeout); ; {
		if first, _, err := t.producer.PartitionLeader(topic, 0); first < 0 && err == nil {
			return nil // it has never asked, and will ask when it needs the topic
		}
		if leader, _, err := t.producer.PartitionLeader(topic, partition); leader >= 0 || err != nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w: the producer does not find partition %d of topic %q",
				sink.ErrUnreachable, partition, topic)
		}
		t.producer.ForceMetadataRefresh()
		if err := kafka.Pause(ctx, again); err != nil {
			return err
		}
	}
}
