package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func (d *Demo) openConsumer() (*kgo.Client, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(d.brokers...), kgo.ConsumeTopics(Topics()...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMinBytes(1), kgo.FetchMaxWait(500*time.Millisecond))
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
				p = payload{Key: "not one of ours", Number: 1} // counts as phantom
			}
			if d.tally.Received(p.Key, p.Number) {
				d.meter.received(event{p.Key, p.Number}, now)
			}
			d.meter.count()
		})
	}
}

// readToTheEnd waits until the consumer has read every record that is in the topics.
func (d *Demo) readToTheEnd(ctx context.Context) error {
	return d.withKafka(func(admin *kadm.Client) error {
		total, err := CountRecords(ctx, admin, Topics()...)
		if err != nil {
			return err
		}
		return AwaitProgress(ctx, 5*time.Millisecond, total, d.meter.counted)
	})
}
