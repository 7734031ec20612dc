package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/internal/demo"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/slot"
)

// partitions of each topic.
const partitions = 4

// topics are those of one run. Each run has a prefix of its own, since the name of a topic that
// was just deleted is taken for a while.
func topics(prefix string) []string {
	var names []string
	for _, a := range aggregates {
		names = append(names, prefix+a)
	}
	return names
}

// connectKafka returns when the cluster has answered.
func (b *bench) connectKafka(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.cfg.Brokers...),
		kgo.RetryTimeout(5*time.Second), kgo.DialTimeout(5*time.Second))
	if err != nil {
		return fmt.Errorf("connect to Kafka at %v: %w", b.cfg.Brokers, err)
	}
	b.admin = kadm.NewClient(client)
	b.atEnd(func(context.Context) error {
		client.Close()
		return nil
	})
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cluster, err := b.admin.BrokerMetadata(ctx)
	if err != nil {
		return fmt.Errorf("connect to Kafka at %v: %w: %w", b.cfg.Brokers, sink.ErrUnreachable,
			err)
	}
	b.pids = brokerPIDs(cluster.Brokers)
	return nil
}

// createTopics makes the topics of a run. One that exists is not the bench's.
func (b *bench) createTopics(ctx context.Context, prefix string) error {
	stamped := "LogAppendTime"
	config := map[string]*string{"message.timestamp.type": &stamped}
	for _, name := range topics(prefix) {
		_, err := b.admin.CreateTopic(ctx, partitions, -1, config, name)
		switch {
		case err == nil:
			b.atEnd(func(ctx context.Context) error { return demo.DeleteTopics(ctx, b.admin, name) })
		case errors.Is(err, kerr.TopicAlreadyExists):
			return exists(fmt.Errorf("topic %q exists already", name), fmt.Sprintf(
				"delete the topics %s*, if they are of a bench that was killed, "+
					"or choose another --name", b.cfg.Name))
		case errors.Is(err, kerr.TopicAuthorizationFailed),
			errors.Is(err, kerr.ClusterAuthorizationFailed):
			return fmt.Errorf("create topic %q: %w: %w", name, sink.ErrPermission, err)
		default:
			return fmt.Errorf("create topic %q: %w", name, err)
		}
	}
	// The controller has them; the brokers take a moment longer.
	for deadline := time.Now().Add(topicPatience); ; {
		_, err := demo.CountRecords(ctx, b.admin, topics(prefix)...)
		if err == nil || time.Now().After(deadline) || !pause(ctx, 20*time.Millisecond) {
			return err
		}
	}
}

// topicPatience is how long new topics may be without leaders.
const topicPatience = 10 * time.Second

// exists is the error for an object of the bench's name that the bench has not made.
func exists(err error, fix string) error {
	return &slot.Error{
		Err: err, WAL: "a slot of a bench that was killed keeps WAL until it is dropped", Fix: fix,
	}
}
