package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func (d *Demo) admin() (*kadm.Client, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(d.brokers...))
	if err != nil {
		return nil, fmt.Errorf("connect to Kafka at %v: %w", d.brokers, err)
	}
	return kadm.NewClient(client), nil
}

func (d *Demo) createTopics(ctx context.Context) error {
	admin, err := d.admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	// What an earlier demo left would count as phantoms.
	if err := d.deleteTopics(ctx); err != nil {
		return err
	}
	for _, topic := range Topics() {
		for { // a topic that is being deleted is in the way for a moment
			_, err := admin.CreateTopic(ctx, partitions, -1, nil, topic)
			if err == nil {
				break
			}
			if !errors.Is(err, kerr.TopicAlreadyExists) || !pause(ctx, 100*time.Millisecond) {
				return fmt.Errorf("create topic %q: %w", topic, err)
			}
		}
	}
	return nil
}

func (d *Demo) deleteTopics(ctx context.Context) error {
	admin, err := d.admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	deleted, err := admin.DeleteTopics(ctx, Topics()...)
	if err != nil {
		return fmt.Errorf("delete the demo's topics: %w", err)
	}
	for _, t := range deleted {
		if t.Err != nil && !errors.Is(t.Err, kerr.UnknownTopicOrPartition) {
			return fmt.Errorf("delete topic %q: %w", t.Topic, t.Err)
		}
	}
	return nil
}

func (d *Demo) openConsumer() (*kgo.Client, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(d.brokers...), kgo.ConsumeTopics(Topics()...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMinBytes(1), kgo.FetchMaxWait(500*time.Millisecond))
	if err != nil {
		return nil, fmt.Errorf("open a consumer at %v: %w", d.brokers, err)
	}
	return client, nil
}

// consume reports what arrives until ctx ends.
func (d *Demo) consume(ctx context.Context, client *kgo.Client) {
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		now := time.Now()
		fetches.EachRecord(func(r *kgo.Record) {
			var p payload
			if json.Unmarshal(r.Value, &p) != nil || p.Number == 0 || string(r.Key) != p.Key {
				p = payload{Key: "not one of ours", Number: 1} // shows as phantom
			}
			if d.tally.Received(p.Key, p.Number) {
				d.meter.received(p.Key, p.Number, now)
			}
			d.meter.count()
		})
	}
}

// readToTheEnd waits until the consumer has read every record that is in the topics.
func (d *Demo) readToTheEnd(ctx context.Context) error {
	admin, err := d.admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	ends, err := admin.ListEndOffsets(ctx, Topics()...)
	if err != nil {
		return fmt.Errorf("read the topics' ends: %w", err)
	}
	total := int64(0)
	ends.Each(func(o kadm.ListedOffset) { total += o.Offset })
	for d.meter.counted() < total {
		if !pause(ctx, 5*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
