package relay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/sink"
)

// errRefused ends a session: the next one publishes the refused records one by one.
var errRefused = errors.New("refused by the broker; tried again by itself")

// candidates remembers, from session to session, the records that the broker has refused. It
// refuses whole batches, so most of them may be cleared.
type candidates struct {
	retries int
	count   atomic.Int64 // of known, so that a row costs no lock while there are none
	probing atomic.Bool  // nothing but one candidate is in flight

	mu    sync.Mutex // guards known
	known map[identity]candidate
}

// candidate is a record that may be the reason why a batch was refused.
type candidate struct {
	refusals  int   // with nothing else in flight
	err       error // the last one
	confirmed bool  // it is the reason: refusals has reached the limit
}

// identity tells a record from the dead letter of its event, and by the relation from a message
// outside of a transaction with the same position.
type identity struct {
	lsn             pglogrepl.LSN
	index           uint32
	topic, relation string
}

func identityOf(m *sink.Message) identity {
	return identity{m.Origin.LSN, m.Origin.Index, m.Topic, m.Origin.Relation}
}

func (c *candidates) any() bool { return c.count.Load() > 0 }

// find returns a zero candidate for a message that was not refused.
func (c *candidates) find(m *sink.Message) candidate {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known[identityOf(m)]
}

// cleared drops one that was delivered.
func (c *candidates) cleared(m *sink.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, identityOf(m))
	c.countLocked()
}

// forget drops those that are confirmed. Each error keeps what was read with its row in memory.
func (c *candidates) forget(before pglogrepl.LSN) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.known, func(id identity, _ candidate) bool { return id.lsn < before })
	c.countLocked()
}

func (c *candidates) countLocked() { c.count.Store(int64(len(c.known))) }

// refusesBatch reports whether the broker refused a batch for one of its records.
func refusesBatch(err error) bool {
	return errors.Is(err, sink.ErrTooLarge) || errors.Is(err, sink.ErrInvalidRecord)
}

// refused notes what the broker refused when it was sent, and returns an error that is retried.
func (c *candidates) refused(m *sink.Message, err error) error {
	if !refusesBatch(err) {
		return err
	}
	refusals := 0
	if c.probing.Load() {
		refusals = 1
	}
	return c.note(m, err, refusals)
}

// note counts refusals with nothing else in flight, and returns an error that is retried.
func (c *candidates) note(m *sink.Message, err error, refusals int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[identity]candidate{}
	}
	refusals += c.known[identityOf(m)].refusals
	c.known[identityOf(m)] = candidate{refusals, err, refusals >= c.retries}
	c.countLocked()
	return fmt.Errorf("%w: %w", errRefused, err)
}

// probe publishes a candidate with nothing else in flight, or disposes of a confirmed one.
func (s *session) probe(ctx context.Context, e *replication.Event, m *sink.Message,
	c candidate) error {
	if c.confirmed {
		if s.isDeadLetter(m.Topic) {
			return c.err // there is no other place for it
		}
		return s.poisoned(ctx, deadletter.Poison{Event: e, Message: m, Err: c.err})
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	if err := s.add(ctx, m); err != nil {
		return err
	}
	s.candidates.probing.Store(true)
	err := s.settle(ctx)
	if err == nil { // else the session ends, perhaps before Done is called with the reason
		s.candidates.probing.Store(false)
	}
	return err
}
