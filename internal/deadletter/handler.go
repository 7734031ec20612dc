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
	Reason  string // of relay.Classify, as in the log
	Err     error
	// Unrouted is why it could not be routed either, where Err is something else; nil: nothing.
	Unrouted error
	Policy   Policy // DeadLetter or DeadLetterKey
}

// Handler makes dead letters for one session. All methods but Close are for one goroutine.
type Handler interface {
	// DeadLetter returns the message to publish in the place of the row, with its Origin. With
	// the policy DeadLetterKey it parks the key. ErrKept: there is nothing to publish. Other errors
	// are of the row, or of what it takes to find its key.
	DeadLetter(p Poison) (*sink.Message, error)
	// Follow returns a dead letter for m if its key is parked, else nil: publish m itself.
	// ErrKept: publish neither. ErrHold: publish all messages before m, await their
	// acknowledgement, call Wait, then Follow again. ev may be nil.
	Follow(ev *replication.Event, m *sink.Message) (*sink.Message, error)
	// Wait blocks while the key of m is redriven: until it is parked no longer, or a second has
	// passed since the last Resolution with Hold of the key. Each one extends the wait.
	Wait(ctx context.Context, m *sink.Message) error
	// Close ends the handler's goroutine and waits for it.
	Close()
}

// ErrKept: the dead-letter topic has the dead letter of the row. The row counts as delivered.
var ErrKept = errors.New("the dead letter of this row is in its topic already")

// ErrHold: the key of the row is being redriven and may soon be parked no longer.
var ErrHold = errors.New("the key of this row is being redriven")
