package producer

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
)

// topics caches which topics exist. Only the goroutine of Publish uses it.
type topics struct {
	client    *kafka.Client    // for lookups
	producer  *kafka.Client    // that produces, with metadata of its own
	acceptCtx context.Context  // cancels lookups
	known     map[string]int32 // number of partitions; may have grown
	// messages of the Publish under way, until prefetch has looked up their topics
	ahead []*sink.Message
}

// withStop returns ctx, which is canceled with ErrClosed also when acceptCtx ends.
func withStop(ctx, acceptCtx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(acceptCtx, func() { cancel(sink.ErrClosed) })
	return ctx, func() { stop(); cancel(nil) }
}

// ensure returns nil if the topic exists, creating it if that is configured. It looks a topic up
// when it is used first.
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
	return t.lookUp(ctx, topic, t.client.Ensure)
}

// checkPartition returns an error if the topic does not have the partition. It looks the topic up
// again if the partition is beyond the known ones, since partitions can be added.
func (t *topics) checkPartition(ctx context.Context, topic string, partition int32) error {
	if partition < t.known[topic] {
		return nil
	}
	err := t.lookUp(ctx, topic, func(ctx context.Context, topic string) (int32, error) {
		n, err := t.client.Partitions(ctx, topic)
		if err == nil && partition < n {
			err = t.awaitPartition(ctx, topic, partition)
		}
		return n, err
	})
	if err != nil {
		return err
	}
	if n := t.known[topic]; partition >= n {
		err := fmt.Errorf("%w: partition %d of topic %q, which has %d partitions", sink.ErrInvalidRecord,
			partition, topic, n)
		return kafka.Advise(err, "correct the value of the column that is published as partition, or "+
			"add partitions: %s",
			kafka.AddPartitionsCommand(*t.client.Config, topic, partition+1))
	}
	return nil
}

// lookUp stores the number of partitions that request returns. It ends with ctx or the sink.
func (t *topics) lookUp(ctx context.Context, topic string,
	request func(context.Context, string) (int32, error)) error {
	ctx, end := withStop(ctx, t.acceptCtx)
	defer end()
	n, err := request(ctx, topic)
	switch {
	case err != nil && t.acceptCtx.Err() != nil: // ctx ends a moment later
		return fmt.Errorf("look up topic %q: %w", topic, sink.ErrClosed)
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("look up topic %q: %w", topic, context.Cause(ctx))
	case err != nil:
		return err
	}
	t.known[topic] = n
	return nil
}

// prefetch looks up all new topics of the messages ahead in one request. ensure looks up again
// those that are missing or being created.
func (t *topics) prefetch(ctx context.Context) {
	names := t.unknown(t.ahead)
	t.ahead = nil
	if len(names) < 2 {
		return
	}
	ctx, end := withStop(ctx, t.acceptCtx)
	defer end()
	for topic, partitions := range t.client.AllPartitions(ctx, names) {
		t.known[topic] = partitions
	}
}

// unknown returns the topics of messages that are not in known, each once.
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

// awaitPartition returns when the producer has metadata of a partition that was added to a topic.
func (t *topics) awaitPartition(ctx context.Context, topic string, partition int32) error {
	const interval = 10 * time.Millisecond
	for deadline := time.Now().Add(t.client.Config.ReadTimeout); ; {
		if first, _, err := t.producer.PartitionLeader(topic, 0); first < 0 && err == nil {
			return nil // it has no metadata of the topic, and will request it
		}
		if leader, _, err := t.producer.PartitionLeader(topic, partition); leader >= 0 || err != nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w: the producer does not find partition %d of topic %q",
				sink.ErrUnreachable, partition, topic)
		}
		t.producer.ForceMetadataRefresh()
		if err := kafka.Pause(ctx, interval); err != nil {
			return err
		}
	}
}
