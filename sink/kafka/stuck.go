package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/sink"
)

// stuck spaces the questions of a read that brings nothing, and ends it: a broker that answers at once, and without what it said that there is,
// must not be asked in a circle.
type stuck struct {
	limit time.Duration
	since time.Time // when it last brought something
}

func newStuck(cfg Config) *stuck { return &stuck{limit: cfg.DeliveryTimeout, since: time.Now()} }

// look is called after each answer.
func (s *stuck) look(ctx context.Context, moved bool) error {
	if moved {
		s.since = time.Now()
		return nil
	}
	if silent := time.Since(s.since); silent >= s.limit {
		return fmt.Errorf("%w: it has sent nothing for %s (sink.kafka.delivery_timeout) of what it says that the partition has", sink.ErrUnreachable, s.limit)
	}
	return pause(ctx, readPause)
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
