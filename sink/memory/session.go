package memory

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/sink"
)

// session is one opened sink.
type session struct {
	broker   *Broker
	done     sink.Done
	finished chan struct{}

	// guarded by broker.mu
	queue  []*sink.Message // taken and not answered
	closed bool
	failed bool // a message was: nothing behind it is delivered
}

// Publish queues the messages for the answering goroutine.
func (s *session) Publish(ctx context.Context, ms []*sink.Message) error {
	b := s.broker
	defer b.wakeWhenDone(ctx)()
	defer b.change()()
	for _, m := range ms {
		for len(s.queue) >= b.capacity && !s.closed && ctx.Err() == nil {
			b.changed.Wait()
		}
		if s.closed {
			return sink.ErrClosed
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := b.checkLocked(m)
		if err == nil && b.untaken != nil {
			err = b.untaken(m)
		}
		if err != nil {
			return &sink.MessageError{Topic: m.Topic, Origin: m.Origin, Untaken: true, Err: err}
		}
		s.queue = append(s.queue, m)
		b.published++
		b.changed.Broadcast()
	}
	return nil
}

// Topic reports whether the topic is there.
func (s *session) Topic(_ context.Context, topic string) error {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	m := &sink.Message{Topic: topic, Partition: sink.ByKey}
	if err := s.broker.checkLocked(m); err != nil {
		return &sink.MessageError{Topic: topic, Err: err}
	}
	return nil
}

func (b *Broker) checkLocked(m *sink.Message) error {
	if b.topics != nil && !b.topics[m.Topic] {
		return fmt.Errorf("%w: %q", sink.ErrUnknownTopic, m.Topic)
	}
	if m.Partition != sink.ByKey && (m.Partition < 0 || m.Partition >= b.partitions) {
		return fmt.Errorf("%w: partition %d of %d", sink.ErrInvalidRecord, m.Partition, b.partitions)
	}
	return nil
}

// answer delivers and reports, one message after the other.
func (s *session) answer() {
	defer close(s.finished)
	for {
		m, err := s.next()
		if m == nil {
			return
		}
		if err != nil {
			err = &sink.MessageError{Topic: m.Topic, Origin: m.Origin, Err: err}
		}
		s.done(m, err) // without the lock: done may call into the broker
	}
}

// next waits for the next message that may be answered and returns it with its failure, if it has
// one. Nil: closed.
func (s *session) next() (*sink.Message, error) {
	b := s.broker
	defer b.change()()
	for !s.closed && (len(s.queue) == 0 || b.held && b.permits == 0 && !s.failed) {
		b.changed.Wait()
	}
	if len(s.queue) == 0 {
		return nil, nil
	}
	m := s.queue[0]
	s.queue = s.queue[1:]
	if s.closed || s.failed {
		return m, sink.ErrClosed
	}
	if b.held {
		b.permits--
	}
	err := pop(&b.failNext)
	if err == nil && b.refuse != nil {
		err = b.refuse(m)
	}
	if s.failed = err != nil; !s.failed {
		b.storeLocked(m)
	}
	return m, err
}

// Close fails what was not answered.
func (s *session) Close(ctx context.Context) error {
	unlock := s.broker.change()
	s.closed = true
	unlock()
	select {
	case <-s.finished:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close memory sink: %w", context.Cause(ctx))
	}
}
