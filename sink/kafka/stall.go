package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/sink"
)

const (
	// ReadPause spaces requests that bring nothing, however soon they are answered.
	ReadPause = 50 * time.Millisecond
	// Pauses between two attempts to reach a broker: a tenth of the time since the first, within
	// these limits.
	answerPauseMin = 100 * time.Millisecond
	answerPauseMax = 500 * time.Millisecond
)

// Stall spaces the requests of a read that brings nothing, and ends the read after limit. A broker
// that answers at once without the records that it reports would get requests in a tight loop.
type Stall struct {
	limit time.Duration
	since time.Time // when it last brought something
}

// NewStall makes one for a read that begins now. limit is delivery_timeout.
func NewStall(limit time.Duration) *Stall { return &Stall{limit: limit, since: time.Now()} }

// Look is called after each answer.
func (s *Stall) Look(ctx context.Context, moved bool) error {
	if moved {
		s.since = time.Now()
		return nil
	}
	if silent := time.Since(s.since); silent >= s.limit {
		return fmt.Errorf("%w: it has sent nothing for %s (sink.kafka.delivery_timeout) of what it "+
			"reports for the partition", sink.ErrUnreachable, s.limit)
	}
	return Pause(ctx, ReadPause)
}

// Pause returns after d, or with the cause of the end of ctx.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// AwaitAnswer waits until one of the brokers answers, or ctx ends. The answer may be an error: a
// refused password, or no TLS.
func AwaitAnswer(ctx context.Context, cfg Config) error {
	for began := time.Now(); ; {
		if _, err := cfg.Reach(ctx); !errors.Is(err, sink.ErrNoBroker) {
			return err
		}
		if err := Pause(ctx, min(max(time.Since(began)/10, answerPauseMin),
			answerPauseMax)); err != nil {
			return err
		}
	}
}
