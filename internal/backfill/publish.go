package backfill

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/ratelimit"
	"github.com/postrider/postrider/sink"
)

// Limits limit a chunk: the messages that are read and not acknowledged.
type Limits struct {
	Messages int
	Bytes    int64
}

// chunk is a list of messages that are published together.
type chunk struct {
	messages []*sink.Message
	bytes    int64
}

func (c *chunk) add(m *sink.Message) {
	c.messages = append(c.messages, m)
	c.bytes += int64(m.Size())
}

func (c *chunk) full(l Limits) bool { return len(c.messages) >= l.Messages || c.bytes >= l.Bytes }

// publish publishes a chunk. It returns when every message is acknowledged and the record has the
// end offsets of their topics.
func (c *Copy) publish(ctx context.Context, to *sink.SyncPublisher, ch chunk) error {
	if len(ch.messages) == 0 {
		return nil
	}
	topics := map[string]bool{}
	for _, m := range ch.messages {
		topics[m.Topic] = true
	}
	if err := c.saveEnds(ctx, slices.Sorted(maps.Keys(topics))); err != nil {
		return err
	}
	if err := c.pacer.Publish(ctx, ch.messages, to.Publish); err != nil {
		return err
	}
	if err := c.lock.Check(ctx); err != nil {
		return err
	}
	ends, err := c.store.Ends(ctx, slices.Sorted(maps.Keys(topics)))
	if err != nil {
		return err
	}
	for topic, offsets := range ends {
		c.record.Topics[topic] = topicOffsets{First: c.record.Topics[topic].First, Last: offsets}
	}
	return nil
}

// saveEnds saves the end offsets of topics that get their first message.
func (c *Copy) saveEnds(ctx context.Context, topics []string) error {
	topics = slices.DeleteFunc(topics,
		func(topic string) bool { _, known := c.record.Topics[topic]; return known })
	if len(topics) == 0 {
		return nil
	}
	ends, err := c.store.Ends(ctx, topics)
	if err != nil {
		return err
	}
	for topic, offsets := range ends {
		c.record.Topics[topic] = topicOffsets{First: offsets, Last: offsets}
	}
	return c.record.save(ctx, c.store)
}

// delivered counts an acknowledged message.
func (c *Copy) delivered(m *sink.Message) {
	c.metrics.PublishSeconds.Observe(time.Since(m.Origin.HandedOver).Seconds())
	topic := c.metrics.Topic(m.Topic)
	topic.Published.Inc()
	topic.Bytes.Add(float64(m.Size()))
}

// publisher publishes messages in chunks.
type publisher struct {
	*sink.SyncPublisher
	limits    Limits
	pacer     ratelimit.Pacer
	check     func(context.Context) error // before each chunk
	chunk     chunk
	published int64
}

// add adds a message to the chunk, and publishes the chunk when it is full.
func (p *publisher) add(ctx context.Context, m *sink.Message) error {
	if p.chunk.add(m); !p.chunk.full(p.limits) {
		return nil
	}
	return p.flush(ctx)
}

// flush publishes the chunk, and returns when all messages are acknowledged.
func (p *publisher) flush(ctx context.Context) error {
	if err := p.check(ctx); err != nil {
		return err
	}
	if err := p.pacer.Publish(ctx, p.chunk.messages, p.Publish); err != nil {
		return err
	}
	p.published += int64(len(p.chunk.messages))
	clear(p.chunk.messages)
	p.chunk = chunk{messages: p.chunk.messages[:0]}
	return nil
}
