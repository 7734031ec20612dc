package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/internal/audit/topics"
	"github.com/postrider/postrider/sink/kafka"
)

// NewClient makes a client of the cluster at brokers, which connects when it is used. The caller
// closes it.
func NewClient(brokers []string) (*kafka.Client, error) {
	const patience = 5 * time.Second // for a connection, and for a request that is repeated
	cfg := KafkaConfig(brokers)
	cfg.DialTimeout = patience
	client, err := cfg.NewClient(kafka.NewDialer(&cfg), zerolog.Nop(), kgo.RetryTimeout(patience))
	if err != nil {
		return nil, fmt.Errorf("connect to Kafka at %v: %w", brokers, err)
	}
	return client, nil
}

// DeleteTopics deletes topics. One that does not exist is no error.
func DeleteTopics(ctx context.Context, client *kafka.Client, topics ...string) error {
	deleted, err := kadm.NewClient(client.Client).DeleteTopics(ctx, topics...)
	if err != nil {
		return fmt.Errorf("delete the topics %v: %w", topics, err)
	}
	for _, t := range deleted {
		if t.Err != nil && !errors.Is(t.Err, kerr.UnknownTopicOrPartition) {
			return fmt.Errorf("delete topic %q: %w", t.Topic, t.Err)
		}
	}
	return nil
}

// CountRecords returns how many offsets are taken in the topics: by records and by the markers of
// transactions.
func CountRecords(ctx context.Context, client *kafka.Client, topics ...string) (int64, error) {
	ends, err := kadm.NewClient(client.Client).ListEndOffsets(ctx, topics...)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return 0, fmt.Errorf("read the ends of the topics: %w", err)
	}
	total := int64(0)
	ends.Each(func(o kadm.ListedOffset) { total += o.Offset })
	return total, nil
}

// withKafka calls use with a client that ends with it.
func (d *Demo) withKafka(use func(*kafka.Client) error) error {
	client, err := NewClient(d.brokers)
	if err != nil {
		return err
	}
	defer client.Close()
	return use(client)
}

func createTopics(ctx context.Context, client *kafka.Client) error {
	// Records of an earlier demo would count as unexpected.
	if err := DeleteTopics(ctx, client, Topics()...); err != nil {
		return err
	}
	for _, topic := range Topics() {
		for { // the name of a topic that is being deleted is taken for a moment
			err := client.CreateTopic(ctx, topic, partitions, nil)
			if err == nil {
				break
			}
			if !errors.Is(err, kerr.TopicAlreadyExists) ||
				!WaitUntil(ctx, time.Now().Add(100*time.Millisecond)) {
				return fmt.Errorf("create topic %q: %w", topic, err)
			}
		}
	}
	return nil
}

// Follow reads what is published from now on to topics that exist, with a client that shares no
// code with the one that publishes. The caller must Close the follower.
func Follow(ctx context.Context, brokers, names []string) (*topics.Follower, error) {
	f, err := topics.Follow(ctx, KafkaConfig(brokers), nil, "", zerolog.Nop())
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		f.Add(name)
	}
	return f, nil
}

// KafkaConfig is the default configuration with brokers.
func KafkaConfig(brokers []string) kafka.Config {
	cfg := kafka.DefaultConfig()
	cfg.Brokers = brokers
	return cfg
}

// received counts a record.
func (d *Demo) received(r *topics.Followed) {
	var p payload
	m := &r.Message
	if json.Unmarshal(m.Value, &p) != nil || p.Number == 0 || string(m.Key) != p.Key {
		p = payload{Key: "not one of ours", Number: 1} // counts as unexpected
	}
	if d.tally.Received(p.Key, p.Number) {
		d.meter.received(event{p.Key, p.Number}, time.Now())
	}
}

// readToTheEnd waits until the consumer has read every record that is in the topics.
func (d *Demo) readToTheEnd(ctx context.Context) error {
	return d.withKafka(func(client *kafka.Client) error {
		total, err := CountRecords(ctx, client, Topics()...)
		if err != nil {
			return err
		}
		return AwaitProgress(ctx, Often, total, func() (int64, error) { return d.tally.Receipts(), nil })
	})
}
