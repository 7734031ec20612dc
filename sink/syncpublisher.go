package sink

import (
	"context"
	"time"
)

// closeTimeout is how long the sink of a SyncPublisher may take to close, as in a session of the
// relay.
const closeTimeout = 5 * time.Second

// SyncPublisher publishes chunks, and waits until the broker has acknowledged the whole of each.
// It is for one goroutine.
type SyncPublisher struct {
	sink      Sink
	delivered func(*Message)
	results   chan error // of the messages of a chunk; it has room for all of them
	failed    error      // nothing is published behind it
}

// OpenSyncPublisher opens a sink for it. delivered is called for each message that was
// acknowledged, from the sink's goroutines; it may be nil. The caller closes what is returned.
func OpenSyncPublisher(ctx context.Context, open Open, delivered func(*Message)) (*SyncPublisher,
	error) {
	p := &SyncPublisher{delivered: delivered}
	var err error
	p.sink, err = open(ctx, p.report)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Publish returns when all of ms is acknowledged, or with the reason of the first failure; then it
// is not known which of them the broker has, and Close is all that is left.
func (p *SyncPublisher) Publish(ctx context.Context, ms []*Message) error {
	if p.failed == nil && len(ms) > 0 {
		p.failed = p.publish(ctx, ms)
	}
	return p.failed
}

func (p *SyncPublisher) publish(ctx context.Context, ms []*Message) error {
	now := time.Now()
	for _, m := range ms {
		m.Origin.HandedOver = now
	}
	p.results = make(chan error, len(ms))
	if err := p.sink.Publish(ctx, ms); err != nil {
		return err
	}
	for range ms {
		select {
		case err := <-p.results:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// report is the sink's Done.
func (p *SyncPublisher) report(m *Message, err error) {
	if err == nil && p.delivered != nil {
		p.delivered(m)
	}
	p.results <- err
}

// Close ends the sink. The broker may have messages that were not acknowledged: the next session
// looks for them in the topics.
func (p *SyncPublisher) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = p.sink.Close(ctx)
}
