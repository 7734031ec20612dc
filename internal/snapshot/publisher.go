package snapshot

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/postrider/postrider/sink"
)

// publisher hands chunks to a sink, and keeps account of them in the record.
type publisher struct {
	sink   *sink.SyncPublisher
	store  Store
	record *Record
}

func (c *Copy) openPublisher(ctx context.Context, open sink.Open) (*publisher, error) {
	w, err := sink.OpenSyncPublisher(ctx, open, c.delivered)
	return &publisher{sink: w, store: c.store, record: c.record}, err
}

// publish returns when every message of the chunk is acknowledged and the record has the ends of their topics.
func (p *publisher) publish(ctx context.Context, ch chunk) error {
	if len(ch.messages) == 0 {
		return nil
	}
	topics := map[string]bool{}
	for _, m := range ch.messages {
		topics[m.Topic] = true
	}
	if err := p.announce(ctx, slices.Sorted(maps.Keys(topics))); err != nil {
		return err
	}
	if err := p.sink.Publish(ctx, ch.messages); err != nil {
		return err
	}
	ends, err := p.store.Ends(ctx, slices.Sorted(maps.Keys(topics)))
	if err != nil {
		return err
	}
	for topic, offsets := range ends {
		p.record.Topics[topic] = Offsets{First: p.record.Topics[topic].First, Last: offsets}
	}
	return nil
}

// announce saves the ends of topics before the first message is published to them.
func (p *publisher) announce(ctx context.Context, topics []string) error {
	topics = slices.DeleteFunc(topics, func(topic string) bool { _, known := p.record.Topics[topic]; return known })
	if len(topics) == 0 {
		return nil
	}
	ends, err := p.store.Ends(ctx, topics)
	if err != nil {
		return err
	}
	for topic, offsets := range ends {
		p.record.Topics[topic] = Offsets{First: offsets, Last: offsets}
	}
	return p.record.save(ctx, p.store)
}

func (c *Copy) delivered(m *sink.Message) {
	c.parts.Metrics.PublishSeconds.Observe(time.Since(m.Origin.HandedOver).Seconds())
	topic := c.parts.Metrics.Topic(m.Topic)
	topic.Published.Inc()
	topic.Bytes.Add(float64(m.Size()))
}
