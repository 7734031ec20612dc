// Package saramainbox is the inbox for consumers with sarama. Offsets are marked for commit only
// after the transactions of their messages.
package saramainbox

import (
	"context"
	"sync"

	"github.com/IBM/sarama"

	"github.com/postrider/postrider/inbox"
)

// Run consumes topics as a member of a group, and calls handle for each message whose event the
// inbox does not have, in the order of each partition and from one goroutine for each, in the
// transaction in which the event is marked.
//
// handle is called again for a message after an error of the server that asks for that, as
// inbox.Consumer.Process says, and after a crash or a rebalance. What it does beside tx is then
// done twice.
//
// A group without offsets begins at Consumer.Offsets.Initial of sarama's configuration, which by
// default leaves out what the topic has already: set sarama.OffsetOldest.
// Consumer.Offsets.AutoCommit stays on, as by default: it commits what is marked, and nothing
// else.
//
// It blocks until ctx ends, and then returns nil; or until a message cannot be processed or the
// group cannot go on, and then returns that error. Nothing is lost in either case: offsets are
// committed up to the first message that was not processed, and the next Run begins there.
func Run[T any](ctx context.Context, c *inbox.Consumer[T],
	handle func(ctx context.Context, tx T, message *sarama.ConsumerMessage) error,
	group sarama.ConsumerGroup, topics ...string) error {
	for ctx.Err() == nil {
		h := &handler[T]{consumer: c, handle: handle}
		err := group.Consume(ctx, topics, h)
		if h.failed != nil {
			err = h.failed
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

type handler[T any] struct {
	consumer *inbox.Consumer[T]
	handle   func(ctx context.Context, tx T, message *sarama.ConsumerMessage) error

	mu     sync.Mutex
	failed error // the first of the session; read after the session without mu
}

func (h *handler[T]) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (h *handler[T]) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (h *handler[T]) ConsumeClaim(session sarama.ConsumerGroupSession,
	claim sarama.ConsumerGroupClaim) error {
	ctx := session.Context()
	for {
		select {
		case <-ctx.Done():
			return nil
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			if err := h.process(ctx, message); err != nil {
				return h.failure(ctx, err)
			}
			session.MarkMessage(message, "")
		}
	}
}

func (h *handler[T]) process(ctx context.Context, message *sarama.ConsumerMessage) error {
	_, err := h.consumer.ProcessRecord(ctx, inbox.Record{
		Topic: message.Topic, Partition: message.Partition, Offset: message.Offset,
		Time: message.Timestamp,
		Header: func(name string) ([]byte, bool) {
			for _, header := range message.Headers {
				if string(header.Key) == name {
					return header.Value, true
				}
			}
			return nil, false
		},
	}, func(ctx context.Context, tx T) error { return h.handle(ctx, tx, message) })
	return err
}

// failure ends the session with an error, unless it has ended: then the message comes again.
func (h *handler[T]) failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failed == nil {
		h.failed = err
	}
	return err
}
