package snapshot

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"postrider/metrics"
	"postrider/sink"
)

// closeTimeout is how long a sink may take to close, as in a session.
const closeTimeout = 5 * time.Second

// publisher hands chunks to a sink and waits for each.
type publisher struct {
	sink    sink.Sink
	store   Store
	record  *Record
	metrics *metrics.Set
	fail    context.CancelCauseFunc // of failed
	failed  context.Context         // ends with the first failure

	mu      sync.Mutex
	pending int
	done    chan struct{} // one token: pending became zero
}

func (c *Copy) openPublisher(ctx context.Context, open sink.Open) (*publisher, error) {
	p := &publisher{store: c.store, record: c.record, metrics: c.parts.Metrics, done: make(chan struct{}, 1)}
	p.failed, p.fail = context.WithCancelCause(context.WithoutCancel(ctx))
	var err error
	p.sink, err = open(ctx, p.delivered)
	if err != nil {
		p.fail(nil)
		return nil, err
	}
	return p, nil
}

// publish returns when every message of the chunk is acknowledged and the record has the ends of their topics.
func (p *publisher) publish(ctx context.Context, ch chunk) error {
	if len(ch.messages) == 0 {
		return nil
	}
	topics := map[string]bool{}
	now := time.Now()
	for _, m := range ch.messages {
		topics[m.Topic] = true
		m.Origin.HandedOver = now
	}
	if err := p.announce(ctx, slices.Sorted(maps.Keys(topics))); err != nil {
		return err
	}
	p.mu.Lock()
	p.pending = len(ch.messages)
	p.mu.Unlock()
	if err := p.sink.Publish(ctx, ch.messages); err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-p.failed.Done():
		return context.Cause(p.failed)
	case <-ctx.Done():
		return context.Cause(ctx)
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

// delivered is the sink's Done.
func (p *publisher) delivered(m *sink.Message, err error) {
	if err != nil {
		p.fail(err)
		return
	}
	p.metrics.PublishSeconds.Observe(time.Since(m.Origin.HandedOver).Seconds())
	topic := p.metrics.Topic(m.Topic)
	topic.Published.Inc()
	topic.Bytes.Add(float64(m.Size()))
	p.mu.Lock()
	p.pending--
	last := p.pending == 0
	p.mu.Unlock()
	if last {
		p.done <- struct{}{} // there is room: the token of the chunk before was taken
	}
}

func (p *publisher) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = p.sink.Close(ctx) // what it still holds is looked for in the topics by the next Copy
	p.fail(nil)
}
