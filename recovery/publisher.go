package recovery

import (
	"context"
	"sync"
	"time"

	"postrider/sink"
)

// closeTimeout is how long a sink may take to close, as in a session.
const closeTimeout = 5 * time.Second

// publisher hands messages to a sink, in chunks, and waits for each chunk.
type publisher struct {
	sink      sink.Sink
	limits    Limits
	failed    context.Context // ends with the first failure
	fail      context.CancelCauseFunc
	chunk     []*sink.Message
	bytes     int64
	published int64

	mu      sync.Mutex
	pending int
	done    chan struct{} // one token: pending became zero
}

func (r *Recovery) openPublisher(ctx context.Context) (*publisher, error) {
	p := &publisher{limits: r.parts.Limits, done: make(chan struct{}, 1)}
	p.failed, p.fail = context.WithCancelCause(context.WithoutCancel(ctx))
	var err error
	if p.sink, err = r.parts.OpenSink(ctx, p.delivered); err != nil {
		p.fail(nil)
		return nil, err
	}
	return p, nil
}

// add publishes what has gathered when it is enough.
func (p *publisher) add(ctx context.Context, m *sink.Message) error {
	p.chunk = append(p.chunk, m)
	p.bytes += int64(m.Size())
	if len(p.chunk) < p.limits.Messages && p.bytes < p.limits.Bytes {
		return nil
	}
	return p.flush(ctx)
}

// flush returns when everything that was added is acknowledged.
func (p *publisher) flush(ctx context.Context) error {
	n := len(p.chunk)
	if n == 0 {
		return nil
	}
	now := time.Now()
	for _, m := range p.chunk {
		m.Origin.HandedOver = now
	}
	p.mu.Lock()
	p.pending = n
	p.mu.Unlock()
	if err := p.sink.Publish(ctx, p.chunk); err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-p.failed.Done():
		return context.Cause(p.failed)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	p.published += int64(n)
	p.chunk, p.bytes = nil, 0 // not reused: the sink may look at it for a moment yet
	return nil
}

// delivered is the sink's Done.
func (p *publisher) delivered(_ *sink.Message, err error) {
	if err != nil {
		p.fail(err)
		return
	}
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
	_ = p.sink.Close(ctx) // what it still holds is looked for in the topics by the next attempt
	p.fail(nil)
}
