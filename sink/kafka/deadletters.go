package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/sink"
)

// DeadLetters reads and writes the dead-letter topic, which is a log of letters and of what became of them. Its methods are for one goroutine, but
// for Close. A call that was interrupted by its context leaves it of no use; after any other error it can be used again.
type DeadLetters struct {
	cfg           Config
	topic         string
	transactional string // id of the transactions of Append; empty: none
	dialer        *dialer
	topics        topics
	client        sarama.Client
	plain         sarama.SyncProducer // without transactions; nil until it is needed
	producing     *kgo.Client         // with transactions
	limit         int

	next    map[int32]int64       // offset to read, by partition
	pending map[undecided][]int64 // offsets
	got     fetched               // the last answer to Get
}

// OpenDeadLetters connects, and sees that the topic is there and keeps what is written to it: it is created if sink.kafka.topics.create allows that. With the
// id of transactions, Append publishes to any topic in one transaction, and every other producer with that id is shut out, now. Errors are those of Open.
func OpenDeadLetters(ctx context.Context, cfg Config, topic, transactional string, log zerolog.Logger) (*DeadLetters, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if _, err := cfg.reach(ctx); err != nil {
		return nil, err
	}
	silence()
	d := &DeadLetters{cfg: cfg, topic: topic, transactional: transactional, dialer: newDialer(&cfg), next: map[int32]int64{}, pending: map[undecided][]int64{}}
	err := d.within(ctx, func() error { return d.open(ctx, log) })
	if err != nil {
		d.Close()
		return nil, fmt.Errorf("open deadletter.topic at %s: %w", cfg.bootstrap(), err)
	}
	return d, nil
}

func (d *DeadLetters) open(ctx context.Context, log zerolog.Logger) error {
	lookup, err := d.cfg.lookup(d.dialer)
	if err != nil {
		return err
	}
	if d.client, err = sarama.NewClient(d.cfg.Brokers, lookup); err != nil {
		return translate(err)
	}
	d.topics = topics{cfg: &d.cfg, client: d.client, known: map[string]int32{}}
	if err := checkName(d.topic); err != nil {
		return err
	}
	_, err = d.topics.count(d.topic)
	if errors.Is(err, sink.ErrUnknownTopic) {
		if err = d.create(log); err == nil {
			_, err = d.topics.count(d.topic)
		}
	}
	if err != nil {
		return err
	}
	if err := d.judge(log); err != nil {
		return err
	}
	if d.transactional != "" {
		return d.begin(ctx)
	}
	return nil
}

func (d *DeadLetters) create(log zerolog.Logger) error {
	by := CreateDeadLetterTopicCommand(d.cfg, d.topic, len(d.client.Brokers()))
	if !d.cfg.Topics.Create {
		return advise(sink.UnknownTopic(d.topic), "%s\nor let the relay create it: sink.kafka.topics.create = true, with partitions and replication_factor", by)
	}
	admin, err := sarama.NewClusterAdminFromClient(d.client) // not closed: the client is ours
	if err != nil {
		return translate(err)
	}
	policy, forEver := "delete", "-1"
	err = admin.CreateTopic(d.topic, &sarama.TopicDetail{
		NumPartitions:     int32(d.cfg.Topics.Partitions),        //nolint:gosec // validated
		ReplicationFactor: int16(d.cfg.Topics.ReplicationFactor), //nolint:gosec // validated
		ConfigEntries:     map[string]*string{"cleanup.policy": &policy, "retention.ms": &forEver, "retention.bytes": &forEver},
	}, false)
	if err != nil && !errors.Is(err, sarama.ErrTopicAlreadyExists) {
		return advise(fmt.Errorf("create it: %w", translate(err)), "%s", by)
	}
	log.Info().Str("topic", d.topic).Msg("topic for dead letters created")
	return nil
}

// judge refuses a topic that would forget letters of the same key, and finds out how large a letter may be.
func (d *DeadLetters) judge(log zerolog.Logger) error {
	d.limit = d.cfg.MaxMessageBytes
	var report TopicReport
	if err := d.topics.configuration(d.topic, &report); err != nil {
		log.Debug().Err(err).Str("topic", d.topic).Msg("settings of the dead-letter topic not read")
		d.limit = min(d.limit, brokerDefault)
		return nil
	}
	if report.MaxMessageBytes > 0 {
		d.limit = min(d.limit, report.MaxMessageBytes)
	}
	if report.CleanupPolicy != "delete" {
		return advise(fmt.Errorf("cleanup.policy is %s, which leaves one record of each key, and letters of the same key belong together", report.CleanupPolicy),
			"kafka-configs.sh --bootstrap-server %s --alter --topic %s --add-config cleanup.policy=delete", d.cfg.bootstrap(), d.topic)
	}
	return nil
}

// brokerDefault is a broker's message.max.bytes unless it was set, less its own overhead.
const brokerDefault = 1_000_000

// Limit is the largest record that the topic takes, in bytes.
func (d *DeadLetters) Limit() int { return d.limit }

// Close ends the connections. It may be called from any goroutine, and ends a call that is under way.
func (d *DeadLetters) Close() {
	d.dialer.cut(sink.ErrClosed)
	if d.plain != nil {
		_ = d.plain.Close()
	}
	if d.producing != nil {
		d.producing.Close()
	}
	if d.client != nil {
		_ = d.client.Close()
	}
}

// within is that of Progress.
func (d *DeadLetters) within(ctx context.Context, call func() error) error {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.DeliveryTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { d.dialer.cut(context.Cause(ctx)) })
	err := call()
	if !stop() && err != nil { // cut
		return fmt.Errorf("%w: %w", translate(context.Cause(ctx)), err)
	}
	return err
}

// longestWait leaves a broker time to answer before the connection is given up.
func (d *DeadLetters) longestWait(wait time.Duration) time.Duration {
	return min(wait, d.cfg.ReadTimeout/2)
}
