package recovery

import (
	"context"

	"github.com/postrider/postrider/sink"
)

// publisher gathers messages into chunks for a sink.
type publisher struct {
	*sink.SyncPublisher
	limits    Limits
	chunk     []*sink.Message
	bytes     int64
	published int64
}

func (r *Recovery) openPublisher(ctx context.Context) (*publisher, error) {
	w, err := sink.OpenSyncPublisher(ctx, r.parts.OpenSink, nil)
	return &publisher{SyncPublisher: w, limits: r.parts.Limits}, err
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
	if err := p.Publish(ctx, p.chunk); err != nil {
		return err
	}
	p.published += int64(len(p.chunk))
	clear(p.chunk)
	p.chunk, p.bytes = p.chunk[:0], 0
	return nil
}
