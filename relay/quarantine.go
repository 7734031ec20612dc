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
var errRefused = errors.New("refused by the broker; each record is tried again alone")

// candidates has the records that the broker has refused, over all sessions. It refuses whole
// batches, so most candidates are delivered when they are published alone.
type candidates struct {
	retries int
	count   atomic.Int64 // of known, so that a row costs no lock while there are none
	probing atomic.Bool  // nothing but one candidate is in flight

	mu    sync.Mutex // guards known
	known map[recordID]candidate
}

// candidate is a record that may be the cause of a refused batch.
type candidate struct {
	refusals  int   // with nothing else in flight
	err       error // of the last refusal
	confirmed bool  // it is the cause: refusals has reached the limit
}

// recordID identifies a record. The topic differs from that of its dead letter, the relation from
// that of a message outside of a transaction at the same position.
type recordID struct {
	lsn             pglogrepl.LSN
	index           uint32
	topic, relation string
}

func recordIDOf(m *sink.Message) recordID {
	return recordID{m.Origin.LSN, m.Origin.Index, m.Topic, m.Origin.Relation}
}

func (c *candidates) any() bool { return c.count.Load() > 0 }

// find returns the candidate of m, or a zero one if m was not refused.
func (c *candidates) find(m *sink.Message) candidate {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known[recordIDOf(m)]
}

// cleared removes a candidate that was delivered.
func (c *candidates) cleared(m *sink.Message) { c.drop(recordIDOf(m)) }

// drop removes a candidate that is disposed of: while there is one, each row takes the lock.
func (c *candidates) drop(id recordID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, id)
	c.countLocked()
}

// forget removes candidates before the slot's position: each error retains a read buffer.
func (c *candidates) forget(before pglogrepl.LSN) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.known, func(id recordID, _ candidate) bool { return id.lsn < before })
	c.countLocked()
}

func (c *candidates) countLocked() { c.count.Store(int64(len(c.known))) }

// refusesBatch reports whether the broker refused a batch for one of its records.
func refusesBatch(err error) bool {
	return errors.Is(err, sink.ErrTooLarge) || errors.Is(err, sink.ErrInvalidRecord)
}

// refused adds a candidate if err refuses a batch, and returns an error that is retried.
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

// note adds refusals to the candidate of m, and returns an error that is retried.
func (c *candidates) note(m *sink.Message, err error, refusals int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[recordID]candidate{}
	}
	refusals += c.known[recordIDOf(m)].refusals
	c.known[recordIDOf(m)] = candidate{refusals, err, refusals >= c.retries}
	c.countLocked()
	return fmt.Errorf("%w: %w", errRefused, err)
}

// probe publishes a candidate with nothing else in flight, or disposes of a confirmed one.
func (s *session) probe(ctx context.Context, e *replication.Event, m *sink.Message,
	c candidate) error {
	if c.confirmed {
		if s.isDeadLetter(m.Topic) {
			return c.err // a dead letter has no dead letter
		}
		id := recordIDOf(m)
		err := s.handlePoison(ctx, deadletter.Poison{Event: e, Message: m, Err: c.err})
		if err == nil {
			s.candidates.drop(id)
		}
		return err
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	s.candidates.probing.Store(true) // before add, which publishes it if the rate is limited
	if err := s.add(ctx, m); err != nil {
		return err
	}
	err := s.settle(ctx)
	if err == nil { // else Done may still be called with the refusal
		s.candidates.probing.Store(false)
	}
	return err
}
