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

// errRefused ends a session in which the broker refused a batch, or a record that may yet be
// taken: the next one sends its records one by one.
var errRefused = errors.New("refused by the broker; tried again by itself")

// candidates remembers, from session to session, the records that the broker has refused after
// they were sent. The limit is the broker's for a whole batch, so most of them may be cleared.
type candidates struct {
	retries int
	count   atomic.Int64 // of known, so that a row costs no lock while there are none
	probing atomic.Bool  // nothing but one candidate is in flight

	mu    sync.Mutex
	known map[identity]*candidate
}

// candidate is a record that may be the reason why a batch was refused.
type candidate struct {
	refusals  int   // with nothing else in flight
	err       error // the last one
	confirmed bool  // it is the reason: refusals has reached the limit
}

// identity tells the record of an event from its dead letter, and, by the relation, a message
// outside of a transaction from the first row of a transaction whose commit record begins where
// the message ends.
type identity struct {
	lsn             pglogrepl.LSN
	index           uint32
	topic, relation string
}

func identityOf(m *sink.Message) identity {
	return identity{m.Origin.LSN, m.Origin.Index, m.Topic, m.Origin.Relation}
}

func (c *candidates) any() bool { return c.count.Load() > 0 }

func (c *candidates) find(m *sink.Message) (found candidate, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.known[identityOf(m)]; k != nil {
		return *k, true
	}
	return candidate{}, false
}

func (c *candidates) isConfirmed(m *sink.Message) bool {
	found, _ := c.find(m)
	return found.confirmed
}

// cleared drops one that was delivered.
func (c *candidates) cleared(m *sink.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, identityOf(m))
	c.countLocked()
}

// forget drops those that do not come again, because all before that position is confirmed. Each
// error keeps what was read together with its row in memory.
func (c *candidates) forget(before pglogrepl.LSN) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.known, func(id identity, _ *candidate) bool { return id.lsn < before })
	c.countLocked()
}

func (c *candidates) countLocked() { c.count.Store(int64(len(c.known))) }

// refusesBatch reports whether the broker's answer to a batch leaves open which of its records is
// the reason.
func refusesBatch(err error) bool {
	return errors.Is(err, sink.ErrTooLarge) || errors.Is(err, sink.ErrInvalidRecord)
}

// refused notes what the broker refused after it was sent, and returns the error by which the
// session ends: one that is tried again, until the record was refused by itself often enough.
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

// note counts refusals of one with nothing else in flight, and returns the error by which the session
// ends.
func (c *candidates) note(m *sink.Message, err error, refusals int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.known[identityOf(m)]
	if found == nil {
		found = &candidate{}
		if c.known == nil {
			c.known = map[identity]*candidate{}
		}
		c.known[identityOf(m)] = found
		c.countLocked()
	}
	found.err = err
	found.refusals += refusals
	found.confirmed = found.refusals >= c.retries
	return fmt.Errorf("%w: %w", errRefused, err)
}

// probe publishes a candidate with nothing else in flight, so that a refusal is its own; or
// disposes of it, once it is confirmed.
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
	if err := s.settle(ctx); err != nil {
		// probing stays: the session ends, perhaps before Done is called with the reason
		return err
	}
	s.candidates.probing.Store(false)
	return nil
}
