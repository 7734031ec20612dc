package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/sink"
)

// lookupTries is how often a broker may say that it does not have a topic which may be there.
const lookupTries = 4

// CheckName refuses what cannot be the name of a topic.
func CheckName(topic string) error {
	if !sink.ValidTopic(topic) {
		return fmt.Errorf("%w: %q: a name is 1 to 249 of a-z A-Z 0-9 . _ -", sink.ErrInvalidTopic, topic)
	}
	return nil
}

// metadataRequest asks about topics.
func metadataRequest(names ...string) *kmsg.MetadataRequest {
	request := noTopics()
	for _, name := range names {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(name)
		request.Topics = append(request.Topics, topic)
	}
	return request
}

// noTopics is a question for brokers alone.
func noTopics() *kmsg.MetadataRequest {
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = []kmsg.MetadataRequestTopic{} // empty; nil are all
	return request
}

// Metadata requests the metadata of topics, never from a cache.
func (c *Client) Metadata(ctx context.Context, names ...string) (*kmsg.MetadataResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Config.ReadTimeout)
	defer cancel()
	seeds, request := c.SeedBrokers(), metadataRequest(names...)
	answer, err := request.RequestWith(ctx, seeds[int(max(c.first.Load(), 0))%len(seeds)])
	if err != nil {
		c.first.Add(1)
	}
	if err != nil && ctx.Err() == nil {
		answer, err = request.RequestWith(ctx, c.Client)
	}
	if err != nil {
		return nil, Failed(ctx, err)
	}
	c.cluster.Store(&answer.Brokers)
	return answer, nil
}

// brokers are those of the cluster, as the last answer names them.
func (c *Client) brokers() []kmsg.MetadataResponseBroker {
	if known := c.cluster.Load(); known != nil {
		return *known
	}
	return nil
}

// Partitions requests the number of a topic's partitions.
func (c *Client) Partitions(ctx context.Context, topic string) (int32, error) {
	for try := 1; ; try++ {
		answer, err := c.Metadata(ctx, topic)
		if err != nil {
			return 0, fmt.Errorf("look up topic %q: %w", topic, err)
		}
		n, err := partitionsOf(answer, topic)
		if err == nil {
			return n, nil
		}
		// The topic may have been created just now.
		if try < lookupTries && kerr.IsRetriable(err) && Pause(ctx, c.Config.RetryBackoff) == nil {
			continue
		}
		switch err = Translate(err); {
		case errors.Is(err, sink.ErrUnknownTopic):
			return 0, sink.UnknownTopic(topic)
		case errors.Is(err, sink.ErrPermission):
			err = Advise(err, "%s", AllowCommand(*c.Config, "--producer --topic "+topic))
		}
		return 0, fmt.Errorf("look up topic %q: %w", topic, err)
	}
}

// partitionsOf is what an answer says of a topic. Leaders that are being elected are no error: the
// producer waits for them.
func partitionsOf(answer *kmsg.MetadataResponse, topic string) (int32, error) {
	for _, t := range answer.Topics {
		if t.Topic == nil || *t.Topic != topic {
			continue
		}
		n := int32(len(t.Partitions)) //nolint:gosec // Kafka counts partitions in 32 bits
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil &&
			(n == 0 || !errors.Is(err, kerr.LeaderNotAvailable)) {
			return 0, err
		}
		if n == 0 {
			return 0, kerr.LeaderNotAvailable
		}
		return n, nil
	}
	return 0, fmt.Errorf("%w: the broker does not say whether topic %q exists", sink.ErrUnreachable,
		topic)
}

// AllPartitions is Partitions for many topics in one request. What cannot be told, because a topic
// is missing or being created, is left out.
func (c *Client) AllPartitions(ctx context.Context, topics []string) map[string]int32 {
	answer, err := c.Metadata(ctx, topics...)
	if err != nil {
		return nil
	}
	found := map[string]int32{}
	for _, topic := range answer.Topics {
		if topic.Topic != nil && topic.ErrorCode == 0 && len(topic.Partitions) > 0 {
			found[*topic.Topic] = int32(len(topic.Partitions)) //nolint:gosec // Kafka counts partitions in 32 bits
		}
	}
	return found
}

// Confirm asks every broker for a topic that one of them does not have, and returns missing if all
// say the same: one that has just started, or has lost its controller, knows less than the
// cluster.
func (c *Client) Confirm(ctx context.Context, topic string, missing error) error {
	ctx, cancel := context.WithTimeout(ctx, c.Config.ReadTimeout)
	defer cancel()
	for _, broker := range c.brokers() {
		answer, err := metadataRequest(topic).RequestWith(ctx, c.Broker(int(broker.NodeID)))
		if err != nil {
			return fmt.Errorf("%w: look up topic %q at every broker: %w", sink.ErrUnreachable, topic,
				Failed(ctx, err))
		}
		if _, err := partitionsOf(answer, topic); !errors.Is(err, kerr.UnknownTopicOrPartition) {
			return fmt.Errorf("%w: the brokers do not agree whether topic %q exists", sink.ErrUnreachable,
				topic)
		}
	}
	return missing
}

// Ensure returns the partitions of a topic, which it creates if that is configured.
func (c *Client) Ensure(ctx context.Context, topic string) (int32, error) {
	n, err := c.Partitions(ctx, topic)
	if !errors.Is(err, sink.ErrUnknownTopic) {
		return n, err
	}
	if !c.Config.Topics.Create {
		return 0, c.notCreated(err, CreateTopicCommand(*c.Config, topic, len(c.brokers())))
	}
	if err := c.createAsConfigured(ctx, topic, nil); err != nil {
		if errors.Is(err, kerr.InvalidReplicationFactor) {
			n := len(c.brokers())
			err = Advise(err, "set sink.kafka.topics.replication_factor = %d: of the brokers there are %d",
				replicas(n), n)
		}
		return 0, fmt.Errorf("create topic %q with %d partitions and replication factor %d: %w",
			topic, c.Config.Topics.Partitions, c.Config.Topics.ReplicationFactor, err)
	}
	return c.Partitions(ctx, topic)
}

func (c *Client) notCreated(missing error, command string) error {
	return Advise(missing,
		"%s\nor let the relay create it: sink.kafka.topics.create = true, with partitions and "+
			"replication_factor", command)
}

func (c *Client) createAsConfigured(ctx context.Context, topic string,
	settings map[string]string) error {
	return c.create(ctx, topic, c.Config.Topics.Partitions, c.Config.Topics.ReplicationFactor,
		settings)
}

// create is content with a topic that is there already. No replicas: the broker's default.
func (c *Client) create(ctx context.Context, topic string, partitions, replicas int,
	settings map[string]string) error {
	if replicas == 0 {
		replicas = -1
	}
	values := map[string]*string{}
	for key, value := range settings {
		values[key] = &value
	}
	admin := kadm.NewClient(c.Client)
	admin.SetTimeoutMillis(int32(c.Config.ProduceTimeout.Milliseconds())) //nolint:gosec // some seconds
	_, err := admin.CreateTopic(ctx, int32(partitions), int16(replicas), values,
		topic) //nolint:gosec // validated
	if errors.Is(err, kerr.TopicAlreadyExists) {
		return nil
	}
	return Failed(ctx, err)
}

// EnsureCompacted sees that a topic of the relay's own keeps the newest record of each key for
// ever, and creates it with one partition if there is none.
func (c *Client) EnsureCompacted(ctx context.Context, topic string, log zerolog.Logger) error {
	if err := CheckName(topic); err != nil {
		return err
	}
	_, err := c.Partitions(ctx, topic)
	if errors.Is(err, sink.ErrUnknownTopic) {
		if err := c.create(ctx, topic, 1, c.Config.Topics.ReplicationFactor,
			map[string]string{"cleanup.policy": "compact"}); err != nil {
			return Advise(fmt.Errorf("create it: %w", err), "%s",
				CreateCompactedTopicCommand(*c.Config, topic, len(c.brokers())))
		}
		log.Info().Str("topic", topic).Msg("compacted topic created")
		return nil
	}
	if err != nil {
		return err
	}
	var report TopicReport
	if err := c.settings(ctx, topic, &report); err != nil {
		log.Warn().Err(err).Str("topic", topic).
			Msg("cleanup.policy of the topic not read: it has to be compact")
		return nil
	}
	if report.CleanupPolicy != "compact" {
		return Advise(fmt.Errorf("cleanup.policy is %s, and only compact keeps the newest record for "+
			"as long as the slot lives", report.CleanupPolicy),
			"kafka-configs.sh --bootstrap-server %s --alter --topic %s --add-config cleanup.policy=compact",
			c.Config.bootstrap(), topic)
	}
	return nil
}

// brokerDefault is a broker's message.max.bytes unless it was set, less its own overhead.
const brokerDefault = 1_000_000

// EnsureDeadLetters sees that the topic of dead letters is there and keeps all of them, and
// returns how large one may be. It is created if sink.kafka.topics.create allows that.
func (c *Client) EnsureDeadLetters(ctx context.Context, topic string,
	log zerolog.Logger) (limit int, err error) {
	if err := CheckName(topic); err != nil {
		return 0, err
	}
	_, err = c.Partitions(ctx, topic)
	if errors.Is(err, sink.ErrUnknownTopic) {
		command := CreateDeadLetterTopicCommand(*c.Config, topic, len(c.brokers()))
		if !c.Config.Topics.Create {
			return 0, c.notCreated(err, command)
		}
		err = c.createAsConfigured(ctx, topic,
			map[string]string{"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"})
		if err != nil {
			return 0, Advise(fmt.Errorf("create it: %w", err), "%s", command)
		}
		log.Info().Str("topic", topic).Msg("topic for dead letters created")
		_, err = c.Partitions(ctx, topic)
	}
	if err != nil {
		return 0, err
	}
	var report TopicReport
	if err := c.settings(ctx, topic, &report); err != nil {
		log.Debug().Err(err).Str("topic", topic).Msg("settings of the dead-letter topic not read")
		return min(c.Config.MaxMessageBytes, brokerDefault), nil
	}
	if report.CleanupPolicy != "delete" {
		return 0, Advise(fmt.Errorf("cleanup.policy is %s, which leaves one record of each key, and "+
			"dead letters of the same key belong together", report.CleanupPolicy),
			"kafka-configs.sh --bootstrap-server %s --alter --topic %s --add-config cleanup.policy=delete",
			c.Config.bootstrap(), topic)
	}
	if report.MaxMessageBytes > 0 {
		return min(c.Config.MaxMessageBytes, report.MaxMessageBytes), nil
	}
	return c.Config.MaxMessageBytes, nil
}

// IsCompacted reports whether compaction deletes records of a topic. A topic whose settings may
// not be read is taken for one without.
func (c *Client) IsCompacted(ctx context.Context, topic string) bool {
	var report TopicReport
	return c.settings(ctx, topic, &report) == nil && strings.Contains(report.CleanupPolicy, "compact")
}
