package deadletter

import (
	"context"
	"errors"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/sink"
)

// Poison is one row or logical message that cannot be delivered as it is.
type Poison struct {
	Event   *replication.Event // nil: only the message is known
	Message *sink.Message      // as it was routed; nil: it could not be
	Cause   Cause
	Reason  string // bounded, as in the log
	Err     error
	Policy  Policy // DeadLetter or DeadLetterKey
}

// Handler makes dead letters for one session. Its methods, but Close, belong to one goroutine.
type Handler interface {
	// DeadLetter makes the message to publish in the place of the row, with its Origin. With
	// DeadLetterKey the key is parked from now on. ErrKept: there is nothing to publish.
	DeadLetter(p Poison) (*sink.Message, error)
	// Follow returns a dead letter if the key of m is parked, else nil. ErrKept: there is nothing
	// to publish, to no topic. ErrHold: publish what was made so far, see that it is durable,
	// Wait, and call it again. ev may be nil.
	Follow(ev *replication.Event, m *sink.Message) (*sink.Message, error)
	// Wait blocks for about a second at most, while the key of m is redriven.
	Wait(ctx context.Context, m *sink.Message) error
	// Close ends what the handler does in the background.
	Close()
}

// ErrKept: the dead letter of a row is in its topic. The row counts as delivered.
var ErrKept = errors.New("the dead letter of this row is in its topic already")

// ErrHold: the key of a row is being redriven. The row may soon be published to its own topic.
var ErrHold = errors.New("the key of this row is being redriven")
