package demo

import (
	"context"
	"encoding/json"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/postrider/postrider/internal/audit/topics"
	"github.com/postrider/postrider/sink/kafka"
)

// Follow reads what is published from now on to topics that exist, with a client that shares no
// code with the one that publishes. The caller must Close the follower.
func Follow(ctx context.Context, brokers, names []string) (*topics.Follower, error) {
	f, err := topics.Follow(ctx, KafkaConfig(brokers), nil, "", zerolog.Nop())
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		f.Want(name)
	}
	return f, nil
}

// KafkaConfig is the configuration of a client that reads topics at brokers.
func KafkaConfig(brokers []string) kafka.Config {
	cfg := kafka.DefaultConfig()
	cfg.Brokers = brokers
	return cfg
}

// received takes note of a record.
func (d *Demo) received(r *topics.Followed) {
	var p payload
	m := &r.Message
	if json.Unmarshal(m.Value, &p) != nil || p.Number == 0 || string(m.Key) != p.Key {
		p = payload{Key: "not one of ours", Number: 1} // counts as phantom
	}
	if d.tally.Received(p.Key, p.Number) {
		d.meter.received(event{p.Key, p.Number}, time.Now())
	}
	d.meter.count()
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
