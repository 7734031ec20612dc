package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/IBM/sarama"

	"github.com/postrider/postrider/sink"
)

// topics knows which topics exist. The publisher alone calls ensure and partitions.
type topics struct {
	cfg    *Config
	client sarama.Client // asks, and has its answer soon
	// learn returns when the producer, which has a view of its own, knows a partition that is there.
	learn  func(topic string, partition int32) error
	stop   <-chan struct{}  // closed: nobody waits for answers any more
	known  map[string]int32 // partitions; asked for again when a message wants one beyond
	asking sync.WaitGroup   // questions under way
	ahead  []*sink.Message  // of the Publish that is under way, until their topics have been asked for
}

// ensure returns when the topic exists, creating it if configured. It asks the cluster the first time a topic is used.
func (t *topics) ensure(ctx context.Context, topic string) error {
	if _, ok := t.known[topic]; ok {
		return nil
	}
	if err := checkName(topic); err != nil {
		return err
	}
	if t.meet(ctx); t.known[topic] > 0 {
		return nil
	}
	return t.ask(ctx, topic, func() (int32, error) { return t.lookup(topic) })
}

func checkName(topic string) error {
	if !sink.ValidTopic(topic) {
		return fmt.Errorf("%w: %q: a name is 1 to 249 of a-z A-Z 0-9 . _ -", sink.ErrInvalidTopic, topic)
	}
	return nil
}

// has tells whether the topic has the partition, asking anew if it is beyond what is known: partitions can be added.
func (t *topics) has(ctx context.Context, topic string, partition int32) error {
	if partition < t.known[topic] {
		return nil
	}
	err := t.ask(ctx, topic, func() (int32, error) {
		n, err := t.count(topic)
		if err == nil && partition < n {
			err = t.learn(topic, partition)
		}
		return n, err
	})
	if err != nil {
		return err
	}
	if n := t.known[topic]; partition >= n {
		return advise(fmt.Errorf("%w: partition %d of topic %q, which has %d partitions", sink.ErrInvalidRecord, partition, topic, n),
			"correct the column, or add partitions: kafka-topics.sh --bootstrap-server %s --alter --topic %s --partitions %d",
			t.cfg.bootstrap(), topic, partition+1)
	}
	return nil
}

// ask runs a question that cannot be interrupted, and waits for its answer only until ctx or the sink ends.
func (t *topics) ask(ctx context.Context, topic string, question func() (int32, error)) error {
	type answer struct {
		partitions int32
		err        error
	}
	answers := make(chan answer, 1)
	t.asking.Go(func() {
		n, err := question()
		answers <- answer{n, err}
	})
	select {
	case a := <-answers:
		if a.err != nil {
			return a.err
		}
		t.known[topic] = a.partitions
		return nil
	case <-ctx.Done():
		return fmt.Errorf("look up topic %q: %w", topic, context.Cause(ctx))
	case <-t.stop:
		return fmt.Errorf("look up topic %q: %w", topic, sink.ErrClosed)
	}
}

func (t *topics) lookup(topic string) (int32, error) {
	n, err := t.count(topic)
	if !errors.Is(err, sink.ErrUnknownTopic) {
		return n, err
	}
	if !t.cfg.Topics.Create {
		return 0, advise(err, "%s\nor let the relay create it: sink.kafka.topics.create = true, with partitions and replication_factor",
			CreateTopicCommand(*t.cfg, topic, len(t.client.Brokers())))
	}
	if err := t.create(topic); err != nil {
		return 0, err
	}
	return t.count(topic)
}

// count asks for the topic's partitions.
func (t *topics) count(topic string) (int32, error) {
	err := t.client.RefreshMetadata(topic)
	if err != nil && !errors.Is(err, sarama.ErrLeaderNotAvailable) { // being elected: the producer waits for that
		err = translate(err)
		if errors.Is(err, sink.ErrUnknownTopic) {
			return 0, sink.UnknownTopic(topic)
		}
		if errors.Is(err, sink.ErrPermission) {
			err = advise(err, "%s", AllowCommand(*t.cfg, "--producer --topic "+topic))
		}
		return 0, fmt.Errorf("look up topic %q: %w", topic, err)
	}
	partitions, err := t.client.Partitions(topic)
	if err != nil {
		return 0, fmt.Errorf("look up topic %q: %w", topic, translate(err))
	}
	return int32(len(partitions)), nil //nolint:gosec // Kafka counts partitions in 32 bits
}

// confirm asks every broker for a topic that one of them does not know, and returns missing if all say the same: one that has just started, or has lost
// its controller, knows less than the cluster.
func (t *topics) confirm(ctx context.Context, topic string, missing error) error {
	return t.ask(ctx, topic, func() (int32, error) {
		for _, broker := range t.client.Brokers() {
			_ = broker.Open(t.client.Config()) // if it is not open; if that fails, so does the question, and says it better
			response, err := broker.GetMetadata(sarama.NewMetadataRequest(t.client.Config().Version, []string{topic}))
			if err != nil {
				return 0, fmt.Errorf("look up topic %q at %s: %w", topic, broker.Addr(), translate(err))
			}
			at := slices.IndexFunc(response.Topics, func(found *sarama.TopicMetadata) bool { return found.Name == topic })
			if at < 0 {
				return 0, fmt.Errorf("%w: %s does not say whether topic %q exists", sink.ErrUnreachable, broker.Addr(), topic)
			}
			if !errors.Is(response.Topics[at].Err, sarama.ErrUnknownTopicOrPartition) {
				return 0, fmt.Errorf("%w: the brokers do not agree whether topic %q exists: it does at %s", sink.ErrUnreachable, topic, broker.Addr())
			}
		}
		return 0, missing
	})
}

func (t *topics) create(topic string) error {
	admin, err := sarama.NewClusterAdminFromClient(t.client) // not closed: the client is ours
	if err == nil {
		err = admin.CreateTopic(topic, &sarama.TopicDetail{
			NumPartitions:     int32(t.cfg.Topics.Partitions),        //nolint:gosec // validated
			ReplicationFactor: int16(t.cfg.Topics.ReplicationFactor), //nolint:gosec // validated
		}, false)
	}
	if err == nil || errors.Is(err, sarama.ErrTopicAlreadyExists) {
		return nil
	}
	if errors.Is(err, sarama.ErrInvalidReplicationFactor) {
		n := len(t.client.Brokers())
		err = advise(err, "set sink.kafka.topics.replication_factor = %d: of the brokers there are %d", replicas(n), n)
	}
	return fmt.Errorf("create topic %q with %d partitions and replication factor %d: %w",
		topic, t.cfg.Topics.Partitions, t.cfg.Topics.ReplicationFactor, translate(err))
}
