package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/IBM/sarama"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/sink"
)

// Progress keeps one record for each key in a compacted topic, and reads back what was published to others. It is how a snapshot
// remembers how far it has come without a disk. It belongs to one goroutine, and once the context of a call has ended it is of no use.
type Progress struct {
	cfg      Config
	topic    string
	dialer   *dialer
	topics   topics
	client   sarama.Client // asks and reads
	admin    sarama.ClusterAdmin
	producer sarama.SyncProducer
}

// progressPartition is the only partition that is used.
const progressPartition = 0

// OpenProgress connects, and creates the topic if there is none. Errors are those of Open.
func OpenProgress(ctx context.Context, cfg Config, topic string, log zerolog.Logger) (*Progress, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if _, err := cfg.reach(ctx); err != nil {
		return nil, err
	}
	silence()
	p := &Progress{cfg: cfg, topic: topic, dialer: newDialer(&cfg)}
	err := p.within(ctx, func() error { return p.open(log) })
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("open snapshot.topic %q at %s: %w", topic, cfg.bootstrap(), err)
	}
	return p, nil
}

func (p *Progress) open(log zerolog.Logger) error {
	if err := p.connect(); err != nil {
		return err
	}
	if err := p.ensure(log); err != nil {
		return err
	}
	produce, err := p.cfg.produce(p.dialer)
	if err != nil {
		return err
	}
	produce.Producer.Partitioner = sarama.NewManualPartitioner
	produce.Producer.Compression = sarama.CompressionGZIP // offsets of many partitions, in text
	if p.producer, err = sarama.NewSyncProducer(p.cfg.Brokers, produce); err != nil {
		return translate(err)
	}
	return nil
}

func (p *Progress) connect() error {
	lookup, err := p.cfg.lookup(p.dialer)
	if err != nil {
		return err
	}
	if p.client, err = sarama.NewClient(p.cfg.Brokers, lookup); err != nil {
		return translate(err)
	}
	p.topics = topics{cfg: &p.cfg, client: p.client, known: map[string]int32{}}
	return nil
}

// administer needs the metadata that the question for a topic brings.
func (p *Progress) administer() (err error) {
	p.admin, err = sarama.NewClusterAdminFromClient(p.client)
	return translate(err)
}

// ensure creates the topic, or checks that an existing one keeps the newest record of each key for ever.
func (p *Progress) ensure(log zerolog.Logger) error {
	if err := checkName(p.topic); err != nil {
		return err
	}
	_, err := p.topics.count(p.topic)
	if adminErr := p.administer(); adminErr != nil {
		return errors.Join(err, adminErr)
	}
	if errors.Is(err, sink.ErrUnknownTopic) {
		return p.create(log)
	}
	if err != nil {
		return err
	}
	var report TopicReport
	if err := p.topics.configuration(p.topic, &report); err != nil {
		log.Warn().Err(err).Str("topic", p.topic).Msg("cleanup.policy of the topic not read: it has to be compact")
		return nil
	}
	if report.CleanupPolicy != "compact" {
		return advise(fmt.Errorf("cleanup.policy is %s, and only compact keeps the newest record for as long as the slot lives", report.CleanupPolicy),
			"kafka-configs.sh --bootstrap-server %s --alter --topic %s --add-config cleanup.policy=compact", p.cfg.bootstrap(), p.topic)
	}
	return nil
}

func (p *Progress) create(log zerolog.Logger) error {
	compact := "compact"
	replicas := int16(-1) // the broker's default.replication.factor
	if n := p.cfg.Topics.ReplicationFactor; n > 0 {
		replicas = int16(n) //nolint:gosec // validated
	}
	err := p.admin.CreateTopic(p.topic, &sarama.TopicDetail{
		NumPartitions: 1, ReplicationFactor: replicas, ConfigEntries: map[string]*string{"cleanup.policy": &compact},
	}, false)
	if err != nil && !errors.Is(err, sarama.ErrTopicAlreadyExists) {
		return advise(fmt.Errorf("create it: %w", translate(err)),
			"%s", CreateCompactedTopicCommand(p.cfg, p.topic, len(p.client.Brokers())))
	}
	log.Info().Str("topic", p.topic).Msg("compacted topic created")
	return nil
}

// Load hands over the values of a key in the order of their offsets, an empty one for a tombstone.
func (p *Progress) Load(ctx context.Context, key string, each func(value []byte)) error {
	err := p.Read(ctx, p.topic, []int64{0}, func(m *sink.Message) {
		if string(m.Key) == key {
			each(m.Value)
		}
	})
	if err != nil {
		return fmt.Errorf("read the progress of the snapshot: %w", err)
	}
	return nil
}

// Save returns when the record is durable.
func (p *Progress) Save(ctx context.Context, key string, value []byte) error {
	err := p.within(ctx, func() error {
		_, _, err := p.producer.SendMessage(&sarama.ProducerMessage{
			Topic: p.topic, Partition: progressPartition, Key: sarama.StringEncoder(key), Value: sarama.ByteEncoder(value),
		})
		return translate(err)
	})
	if err != nil {
		return fmt.Errorf("save the progress of the snapshot to topic %q: %w", p.topic, err)
	}
	return nil
}

// Ends returns the end offset of each partition of each topic. A topic that does not exist has no partitions.
func (p *Progress) Ends(ctx context.Context, topicNames []string) (map[string][]int64, error) {
	ends := map[string][]int64{}
	err := p.within(ctx, func() error {
		ask := map[string]map[int32]int64{}
		for _, topic := range topicNames {
			n, known := p.topics.known[topic] // partitions that are added later are read from their beginnings
			if !known {
				var err error
				if n, err = p.topics.count(topic); err != nil && !errors.Is(err, sink.ErrUnknownTopic) {
					return err
				}
				if err == nil {
					p.topics.known[topic] = n
				}
			}
			ends[topic] = make([]int64, n)
			if n > 0 {
				ask[topic] = map[int32]int64{}
			}
			for partition := range n {
				ask[topic][partition] = sarama.OffsetNewest
			}
		}
		return p.listOffsets(ask, ends)
	})
	if err != nil {
		return nil, fmt.Errorf("read the end offsets of %s: %w", strings.Join(topicNames, ", "), err)
	}
	return ends, nil
}

func (p *Progress) listOffsets(ask map[string]map[int32]int64, into map[string][]int64) error {
	if len(ask) == 0 {
		return nil
	}
	found, err := p.admin.ListOffsets(ask, nil)
	if err != nil {
		return translate(err)
	}
	for topic, partitions := range found {
		for partition, result := range partitions {
			if result.Err != nil && !errors.Is(result.Err, sarama.ErrNoError) {
				return fmt.Errorf("partition %d of topic %q: %w", partition, topic, translate(result.Err))
			}
			into[topic][partition] = result.Offset
		}
	}
	return nil
}

// Close ends the connections.
func (p *Progress) Close() {
	if p.producer != nil {
		_ = p.producer.Close()
	}
	if p.client != nil {
		_ = p.client.Close()
	}
	p.dialer.cut(sink.ErrClosed)
}

// within runs calls that cannot be interrupted but by cutting the connections, which happens when ctx ends, or after delivery_timeout.
func (p *Progress) within(ctx context.Context, call func() error) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.DeliveryTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { p.dialer.cut(context.Cause(ctx)) })
	err := call()
	if !stop() && err != nil { // cut
		return fmt.Errorf("%w: %w", translate(context.Cause(ctx)), err)
	}
	return err
}
