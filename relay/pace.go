package relay

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/ratelimit"
	"github.com/postrider/postrider/sink"
)

// pace counts a message of s.out, and waits before the next one if a limit is exceeded.
//
// With relay.exactly_once the wait comes after the Commit: consumers see the rows of a transaction
// at once in any case, and a Kafka transaction that waits for its end would time out.
func (s *session) pace(ctx context.Context, m *sink.Message) error {
	select {
	case <-s.draining:
		return nil
	default:
	}
	s.delay = s.delay.Longer(s.limiter.Count(m))
	if s.transactional != nil || !s.delay.Due() {
		return nil
	}
	return s.waitForRate(ctx)
}

// waitForRate publishes s.out and waits for s.delay. What is in s.out must not wait: it is paid
// for, and a Kafka transaction stays open until its boundary. A wait counts as progress.
func (s *session) waitForRate(ctx context.Context) error {
	if err := s.publish(ctx); err != nil {
		return err
	}
	delay := s.delay
	s.delay = ratelimit.Delay{}
	err := s.limiter.Wait(ctx, s.draining, delay, func() {
		s.progress.set(time.Now())
	})
	if messages, _, _ := s.window.inFlight(); messages == 0 {
		s.lastAck.set(time.Now()) // the next message is not late
	}
	return err
}
