package ratelimit

import (
	"context"

	"github.com/postrider/postrider/sink"
)

// Pacer publishes lists of messages within the limits of a Limiter, which may be nil. It waits
// before it publishes, and not after the last message. It is for one goroutine.
type Pacer struct {
	Limiter *Limiter
	Lifted  <-chan struct{} // closed: no limit any more; may be nil
	delay   Delay           // after the last message
}

// Publish calls publish with one part of ms after the other, and waits between them. Errors are
// those of publish and the cause of ctx.
func (p *Pacer) Publish(ctx context.Context, ms []*sink.Message,
	publish func(context.Context, []*sink.Message) error) error {
	for len(ms) > 0 {
		if err := p.wait(ctx); err != nil {
			return err
		}
		n := len(ms)
		if !p.lifted() {
			n = p.count(ms)
		}
		if err := publish(ctx, ms[:n]); err != nil {
			return err
		}
		ms = ms[n:]
	}
	return nil
}

// PublishAll calls publish once, for what is all or nothing.
func (p *Pacer) PublishAll(ctx context.Context, ms []*sink.Message, publish func() error) error {
	if err := p.wait(ctx); err != nil {
		return err
	}
	for rest := ms; len(rest) > 0; {
		rest = rest[p.count(rest):]
	}
	return publish()
}

func (p *Pacer) wait(ctx context.Context) error {
	delay := p.delay
	p.delay = Delay{}
	return p.Limiter.Wait(ctx, p.Lifted, delay, nil)
}

// count counts messages up to the first one with a delay after it, and returns their number.
func (p *Pacer) count(ms []*sink.Message) int {
	for i, m := range ms {
		if d := p.Limiter.Count(m); d.Due() {
			p.delay = p.delay.Longer(d)
			return i + 1
		}
	}
	return len(ms)
}

func (p *Pacer) lifted() bool {
	select {
	case <-p.Lifted:
		return true
	default:
		return false
	}
}
