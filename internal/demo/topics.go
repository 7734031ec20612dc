package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// DeleteTopics deletes topics. One that does not exist is no error.
func DeleteTopics(ctx context.Context, admin *kadm.Client, topics ...string) error {
	deleted, err := admin.DeleteTopics(ctx, topics...)
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
func CountRecords(ctx context.Context, admin *kadm.Client, topics ...string) (int64, error) {
	ends, err := admin.ListEndOffsets(ctx, topics...)
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
func (d *Demo) withKafka(use func(*kadm.Client) error) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(d.brokers...))
	if err != nil {
		return fmt.Errorf("connect to Kafka at %v: %w", d.brokers, err)
	}
	defer client.Close()
	return use(kadm.NewClient(client))
}

func createTopics(ctx context.Context, admin *kadm.Client) error {
	// Records of an earlier demo would count as phantoms.
	if err := DeleteTopics(ctx, admin, Topics()...); err != nil {
		return err
	}
	for _, topic := range Topics() {
		for { // the name of a topic that is being deleted is taken for a moment
			_, err := admin.CreateTopic(ctx, partitions, -1, nil, topic)
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
