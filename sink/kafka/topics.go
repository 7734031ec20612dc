package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/sink"
)

// missingPatience is how long a broker is asked again for a topic that it does not have: another
// client may have created it just now.
const missingPatience = 300 * time.Millisecond

// CheckName refuses what cannot be the name of a topic.
func CheckName(topic string) error {
	if !sink.ValidTopic(topic) {
		return fmt.Errorf("%w: %q: a name is 1 to 249 of a-z A-Z 0-9 . _ -", sink.ErrInvalidTopic, topic)
	}
	return nil
}

// metadataRequest is a request about topics, or about brokers alone.
func metadataRequest(names ...string) *kmsg.MetadataRequest {
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = []kmsg.MetadataRequestTopic{} // nil would be all topics
	for _, name := range names {
		request.Topics = append(request.Topics, kmsg.MetadataRequestTopic{Topic: &name})
	}
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
	if err != nil && ctx.Err() == nil { // else the client may still use the request
		answer, err = request.RequestWith(ctx, c.Client)
	}
	if err != nil {
		return nil, Failed(ctx, err)
	}
	c.cluster.Store(&answer.Brokers)
	return answer, nil
}

// brokers are those of the cluster, as the last answer names them.
func (c *Client) brokers() []kmsg.MetadataResponseBroker { return *c.cluster.Load() }

// Partitions requests the number of a topic's partitions.
func (c *Client) Partitions(ctx context.Context, topic string) (int32, error) {
	return c.partitions(ctx, topic, missingPatience)
}

func (c *Client) partitions(ctx context.Context, topic string,
	patience time.Duration) (int32, error) {
	backoff, deadline := c.Config.Backoff(c.Config.RetryBackoff), time.Now().Add(patience)
	for try := 1; ; try++ {
		answer, err := c.Metadata(ctx, topic)
		if err != nil {
			return 0, fmt.Errorf("look up topic %q: %w", topic, err)
		}
		n, err := partitionsOf(answer, topic)
		if err == nil {
			return n, nil
		}
		pause := min(backoff(try), time.Until(deadline))
		if pause > 0 && kerr.IsRetriable(err) && Pause(ctx, pause) == nil {
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

// partitionsOf is the number of a topic's partitions in an answer. Leaders that are being elected
// are no error: the producer waits for them.
func partitionsOf(answer *kmsg.MetadataResponse, topic string) (int32, error) {
	t, err := TopicOf(answer, topic)
	if err != nil {
		return 0, err
	}
	n := int32(len(t.Partitions)) //nolint:gosec // Kafka counts partitions in 32 bits
	switch err := kerr.ErrorForCode(t.ErrorCode); {
	case err != nil && (n == 0 || !errors.Is(err, kerr.LeaderNotAvailable)):
		return 0, err
	case n == 0:
		return 0, kerr.LeaderNotAvailable
	}
	return n, nil
}

// TopicOf is one topic of an answer.
func TopicOf(answer *kmsg.MetadataResponse, topic string) (*kmsg.MetadataResponseTopic, error) {
	for i, t := range answer.Topics {
		if t.Topic != nil && *t.Topic == topic {
			return &answer.Topics[i], nil
		}
	}
	return nil, fmt.Errorf("%w: the broker does not report whether topic %q exists",
		sink.ErrUnreachable, topic)
}

// AllPartitions is Partitions for many topics in one request. It leaves out topics that are
// missing or being created.
func (c *Client) AllPartitions(ctx context.Context, topics []string) map[string]int32 {
	answer, err := c.Metadata(ctx, topics...)
	if err != nil {
		return nil
	}
	found := map[string]int32{}
	for _, topic := range topics {
		if t, err := TopicOf(answer, topic); err == nil && t.ErrorCode == 0 && len(t.Partitions) > 0 {
			found[topic] = int32(len(t.Partitions)) //nolint:gosec // Kafka counts them in 32 bits
		}
	}
	return found
}

// Confirm requests a topic of every broker after one does not have it, and returns missing if
// none has: a broker that has just started, or has lost its controller, may not have
// what the cluster has.
func (c *Client) Confirm(ctx context.Context, topic string, missing error) error {
	ctx, cancel := context.WithTimeout(ctx, c.Config.ReadTimeout)
	defer cancel()
	for _, broker := range c.brokers() {
		answer, err := metadataRequest(topic).RequestWith(ctx, c.Broker(int(broker.NodeID)))
		if err != nil {
			return fmt.Errorf("%w: look up topic %q at every broker: broker %d (%s): %w",
				sink.ErrUnreachable, topic, broker.NodeID, broker.Host, Failed(ctx, err))
		}
		if _, err := partitionsOf(answer, topic); !errors.Is(err, kerr.UnknownTopicOrPartition) {
			return fmt.Errorf("%w: the brokers do not agree whether topic %q exists", sink.ErrUnreachable,
				topic)
		}
	}
	return missing
}

// Lacks reports whether no broker has a topic. It does not wait for a topic that another client
// creates meanwhile, as Partitions does, and is false when not every broker answers.
func (c *Client) Lacks(ctx context.Context, topic string) bool {
	answer, err := c.Metadata(ctx, topic)
	if err != nil {
		return false
	}
	_, err = partitionsOf(answer, topic)
	return errors.Is(err, kerr.UnknownTopicOrPartition) && c.Confirm(ctx, topic, nil) == nil
}

// Ensure returns the partitions of a topic, which it creates if that is configured.
func (c *Client) Ensure(ctx context.Context, topic string) (int32, error) {
	n, err := c.Partitions(ctx, topic)
	if !errors.Is(err, sink.ErrUnknownTopic) {
		return n, err
	}
	if !c.Config.Topics.Create {
		return 0, notCreated(err, CreateTopicCommand(*c.Config, topic, len(c.brokers())))
	}
	err = c.CreateTopic(ctx, topic, c.Config.Topics.Partitions, nil)
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		if errors.Is(err, kerr.InvalidReplicationFactor) {
			n := len(c.brokers())
			err = Advise(err, "set sink.kafka.topics.replication_factor = %d: of the brokers there are %d",
				replicas(n), n)
		}
		return 0, fmt.Errorf("create topic %q with %d partitions and replication factor %d: %w",
			topic, c.Config.Topics.Partitions, c.Config.Topics.ReplicationFactor, err)
	}
	return c.created(ctx, topic)
}

// created waits for a topic that the controller has created until a broker has it too, and returns
// its partitions.
func (c *Client) created(ctx context.Context, topic string) (int32, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Config.ReadTimeout)
	defer cancel()
	n, err := c.partitions(ctx, topic, c.Config.ReadTimeout)
	if errors.Is(err, sink.ErrUnknownTopic) { // its rows must not be given up
		err = fmt.Errorf("%w: topic %q has been created, and no broker has it yet",
			sink.ErrUnreachable, topic)
	}
	return n, err
}

func notCreated(missing error, command string) error {
	return Advise(missing,
		"%s\nor let the relay create it: sink.kafka.topics.create = true, with partitions and "+
			"replication_factor", command)
}

// CreateTopic creates a topic with the configured replication factor, or the broker's default.
// The error for a topic that exists is kerr.TopicAlreadyExists.
func (c *Client) CreateTopic(ctx context.Context, topic string, partitions int,
	settings map[string]*string) error {
	replicas := cmp.Or(c.Config.Topics.ReplicationFactor, -1)
	//nolint:gosec // validated, and some seconds
	n, factor := int32(partitions), int16(replicas)
	wait := int32(c.Config.ProduceTimeout.Milliseconds())
	admin := kadm.NewClient(c.Client)
	admin.SetTimeoutMillis(wait)
	_, err := admin.CreateTopic(ctx, n, factor, settings, topic)
	return Failed(ctx, err)
}

// ownTopic is a topic that the relay keeps for itself.
type ownTopic struct {
	partitions int
	mayCreate  bool
	settings   map[string]string
	command    func(cfg Config, topic string, brokers int) string // that creates it
	why        string                                             // another cleanup.policy is wrong
}

// ensure creates the topic if it is missing. Otherwise it reads its settings: err is that of
// reading, unread why they could not be read.
func (o ownTopic) ensure(ctx context.Context, c *Client,
	topic string) (created bool, report TopicReport, unread, err error) {
	if err := CheckName(topic); err != nil {
		return false, report, nil, err
	}
	_, err = c.Partitions(ctx, topic)
	if errors.Is(err, sink.ErrUnknownTopic) {
		command := o.command(*c.Config, topic, len(c.brokers()))
		if !o.mayCreate {
			return false, report, nil, notCreated(err, command)
		}
		settings := map[string]*string{}
		for key, value := range o.settings {
			settings[key] = &value
		}
		err := c.CreateTopic(ctx, topic, o.partitions, settings)
		if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			return false, report, nil, Advise(fmt.Errorf("create it: %w", err), "%s", command)
		}
		_, err = c.created(ctx, topic)
		return err == nil, report, nil, err
	}
	if err != nil {
		return false, report, nil, err
	}
	unread = c.settings(ctx, topic, &report)
	is, wanted := report.CleanupPolicy, o.settings["cleanup.policy"]
	if unread == nil && is != wanted {
		err = Advise(fmt.Errorf("cleanup.policy is %s, %s", is, o.why), "%s",
			AlterTopicCommand(*c.Config, topic, "cleanup.policy", wanted))
	}
	return false, report, unread, err
}

// EnsureCompacted makes sure that a topic of the relay's own keeps the newest record of each key
// for ever, and creates it with one partition if it is missing.
func (c *Client) EnsureCompacted(ctx context.Context, topic string, log zerolog.Logger) error {
	created, _, unread, err := ownTopic{
		1, true, map[string]string{"cleanup.policy": "compact"}, CreateCompactedTopicCommand,
		"and only compact keeps the newest record for as long as the slot lives",
	}.ensure(ctx, c, topic)
	switch {
	case created:
		log.Info().Str("topic", topic).Msg("compacted topic created")
	case unread != nil:
		log.Warn().Err(unread).Str("topic", topic).
			Msg("cleanup.policy of the topic not read: it has to be compact")
	}
	return err
}

// brokerDefault is a broker's message.max.bytes unless it was set, less its own overhead.
const brokerDefault = 1_000_000

// EnsureDeadLetters makes sure that the topic of dead letters exists and keeps all of them, and
// returns the largest size of one. It is created if sink.kafka.topics.create allows that.
func (c *Client) EnsureDeadLetters(ctx context.Context, topic string,
	log zerolog.Logger) (limit int, err error) {
	own := ownTopic{
		c.Config.Topics.Partitions, c.Config.Topics.Create,
		map[string]string{"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"},
		CreateDeadLetterTopicCommand, "which leaves one record of each key, and dead letters of the " +
			"same key belong together",
	}
	created, report, unread, err := own.ensure(ctx, c, topic)
	if created {
		log.Info().Str("topic", topic).Msg("topic for dead letters created")
		if _, err = c.Partitions(ctx, topic); err == nil {
			_, report, unread, err = own.ensure(ctx, c, topic)
		}
	}
	most := c.Config.MaxMessageBytes
	switch {
	case err != nil:
		return 0, err
	case unread != nil:
		log.Debug().Err(unread).Str("topic", topic).Msg("settings of the dead-letter topic not read")
		return min(most, brokerDefault), nil
	}
	return min(most, cmp.Or(max(report.MaxMessageBytes, 0), most)), nil
}

// IsCompacted reports whether compaction deletes records of a topic. It is false for a topic whose
// settings may not be read.
func (c *Client) IsCompacted(ctx context.Context, topic string) bool {
	var report TopicReport
	return c.settings(ctx, topic, &report) == nil && strings.Contains(report.CleanupPolicy, "compact")
}
