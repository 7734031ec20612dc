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
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
)

// causeParked is the label of a row that is a dead letter only because an earlier one of its key is.
const causeParked = "parked"

// Poisoned is what is known of a row that cannot be delivered as it is.
type Poisoned struct {
	Event   *replication.Event
	Message *sink.Message // nil: it could not be routed
	Err     error
}

// HaltError is a row's own error when the relay halts for it because the policy for its cause says so, or waits for its topic.
type HaltError struct {
	Cause deadletter.Cause // the key in [deadletter]
	Err   error
}

func (e *HaltError) Error() string { return e.Err.Error() }

func (e *HaltError) Unwrap() error { return e.Err }

// causeOf tells for which policy an error asks. False: for none, the relay halts or tries again.
func causeOf(err error) (deadletter.Cause, bool) {
	if row := new(router.RowError); errors.As(err, &row) {
		switch row.Reason {
		case router.ReasonInvalidTopic:
			return deadletter.InvalidTopic, true
		case router.ReasonInvalidMessage, router.ReasonInvalidHeaders:
			return deadletter.Malformed, true
		case router.ReasonUpdate: // it was asked to stop by router.table.op.invalid.behavior
			return "", false
		}
		return deadletter.NotRoutable, true
	}
	if large := new(replication.RowTooLargeError); errors.As(err, &large) {
		return deadletter.TooLarge, true
	}
	switch {
	case errors.Is(err, sink.ErrTooLarge):
		return deadletter.TooLarge, true
	case errors.Is(err, sink.ErrInvalidTopic):
		return deadletter.InvalidTopic, true
	case errors.Is(err, sink.ErrInvalidRecord):
		return deadletter.Refused, true
	case errors.Is(err, sink.ErrUnknownTopic):
		return deadletter.UnknownTopic, true
	}
	return "", false
}

// oversize is the error of an event that was too long to keep.
func (s *session) oversize(e *replication.Event) error {
	of := "message:" + e.Prefix
	if e.Relation != nil {
		of = e.Relation.String()
	}
	return fmt.Errorf("row %d of %s, in the transaction that commits at %s: %w", e.Index, of, e.LSN,
		&replication.RowTooLargeError{Bytes: e.Oversize, Max: s.stream.MaxRowBytes()})
}

// poisoned does with a row what the policy for its cause says.
func (s *session) quarantine(ctx context.Context, p Poisoned) error {
	s.metrics.EventsRefused.Inc()
	letter, err := s.dispose(p)
	if err != nil {
		if publishErr := s.publish(ctx); publishErr != nil { // everything before it leaves
			return publishErr
		}
		if p.Message == nil && p.Event.Oversize == 0 {
			err = fmt.Errorf("route row %d of the transaction that commits at %s: %w", p.Event.Index, p.Event.LSN, err)
		}
		return err
	}
	if letter == nil {
		return nil
	}
	return s.take(ctx, p.Event, letter)
}

// dispose returns the dead letter of a row, or nothing if it is to be left out. The error is the row's own if the relay has to halt.
func (s *session) dispose(p Poisoned) (*sink.Message, error) {
	cause, known := causeOf(p.Err)
	if !known {
		return nil, p.Err
	}
	policy := s.policies.Policy(cause)
	if policy == deadletter.Halt {
		return nil, &HaltError{Cause: cause, Err: p.Err}
	}
	if s.deadLetters == nil && policy != deadletter.Skip {
		return nil, p.Err
	}
	_, reason := Classify(p.Err, false)
	event := s.log.Warn().Str("cause", string(cause)).Str("reason", reason).Err(p.Err)
	switch {
	case p.Event != nil:
		event.Stringer("lsn", p.Event.LSN).Uint32("index", p.Event.Index)
	case p.Message != nil:
		event.Stringer("lsn", p.Message.Origin.LSN).Uint32("index", p.Message.Origin.Index)
	}
	if policy == deadletter.Skip {
		s.metrics.DeadLetterSkipped.WithLabelValues(string(cause)).Inc()
		event.Msg("row was left out, by the policy skip")
		return nil, nil
	}
	letter, err := s.deadLetters.DeadLetter(deadletter.Poison{Event: p.Event, Message: p.Message, Cause: cause, Reason: reason, Err: p.Err, Policy: policy})
	if errors.Is(err, deadletter.ErrKept) {
		s.metrics.EventsRepeated.Inc()
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("make a dead letter, since %w: %w", p.Err, err)
	}
	s.metrics.DeadLetters.WithLabelValues(string(cause)).Inc()
	event.Str("topic", letter.Topic).Msg("row was made a dead letter")
	return letter, nil
}

// follow asks the desk where a message goes. While its key is redriven that may take a moment: what is behind the message waits, too.
func (s *session) follow(ctx context.Context, e *replication.Event, m *sink.Message) (*sink.Message, error) {
	for {
		letter, err := s.deadLetters.Follow(e, m)
		if !errors.Is(err, deadletter.ErrHold) {
			return letter, err
		}
		if err := s.settle(ctx); err != nil {
			return nil, err
		}
		if err := s.deadLetters.Wait(ctx, m); err != nil {
			return nil, err
		}
	}
}

// refusedBySink deals with the first of ms, which Publish has not taken, and returns what to hand over instead. The error ends the session.
func (s *session) refusedBySink(ms []*sink.Message, err error) ([]*sink.Message, error) {
	failed := new(sink.MessageError)
	if errors.As(err, &failed) && !failed.Untaken && refusesBatch(err) {
		// The sink says so to Done as well, which takes note of the message. Whichever comes first, the session ends in the same way.
		return nil, fmt.Errorf("%w: %w", errRefused, err)
	}
	if failed == nil || !failed.Untaken || !sameEvent(ms[0], failed.Origin) || s.isDeadLetter(failed.Topic) {
		return nil, err
	}
	cause, known := causeOf(err)
	if !known || cause == deadletter.UnknownTopic { // which is not known at once: see missing.go
		return nil, err
	}
	m := ms[0]
	if cause == deadletter.Refused && !s.candidates.isConfirmed(m) {
		return nil, s.candidates.refusedAlone(m, err)
	}
	letter, halt := s.dispose(Poisoned{Message: m, Err: err})
	if halt != nil {
		return nil, halt
	}
	s.metrics.EventsRefused.Inc()
	if letter == nil {
		s.window.done(m.Origin.Transaction, m.Origin.HeldBytes)
		return ms[1:], nil
	}
	s.takePlace(ms, 0, letter)
	return ms, s.followUp(ms[1:])
}

// followUp has messages that were routed before a key was parked follow to the dead-letter topic. Letters among them are there already.
func (s *session) followUp(ms []*sink.Message) error {
	for i, follower := range ms {
		if s.isDeadLetter(follower.Topic) {
			continue
		}
		letter, err := s.deadLetters.Follow(nil, follower)
		if errors.Is(err, deadletter.ErrHold) { // it waits for nothing here: asked once more, it follows
			letter, err = s.deadLetters.Follow(nil, follower)
		}
		if err != nil {
			return err
		}
		if letter != nil {
			s.metrics.DeadLetters.WithLabelValues(causeParked).Inc()
			s.takePlace(ms, i, letter)
		}
	}
	return nil
}

// takePlace puts a dead letter where a message was, which is in the window already.
func (s *session) takePlace(ms []*sink.Message, i int, letter *sink.Message) {
	before := ms[i].Origin.HeldBytes
	letter.Origin = ms[i].Origin
	if s.dedup != nil {
		s.sign(letter)
	}
	letter.Origin.HeldBytes = max(before, letter.Size())
	s.window.replace(before, letter.Origin.HeldBytes)
	ms[i] = letter
}

func (s *session) isDeadLetter(topic string) bool {
	return s.deadLetters != nil && topic == s.policies.Topic
}

// tryAlone publishes a suspect with nothing else in flight, so that a refusal is its own; or disposes of it, once it was refused often enough.
func (s *session) probe(ctx context.Context, e *replication.Event, m *sink.Message, found candidate) error {
	if found.confirmed {
		if s.isDeadLetter(m.Topic) {
			return found.err // there is no other place for it
		}
		return s.quarantine(ctx, Poisoned{Event: e, Message: m, Err: found.err})
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	if err := s.add(ctx, m); err != nil {
		return err
	}
	s.candidates.probing.Store(true)
	if err := s.settle(ctx); err != nil {
		return err // and it stays alone: the session ends, perhaps before Done is told why
	}
	s.candidates.probing.Store(false)
	return nil
}

// settle hands over what has gathered and waits until nothing of it is in flight.
func (s *session) settle(ctx context.Context) error {
	if err := s.publish(ctx); err != nil {
		return err
	}
	for s.window.unacknowledged() > 0 {
		if err := s.waitForRoom(ctx); err != nil {
			return err
		}
	}
	return nil
}

// errSuspected ends a session in which the broker refused a batch, or a record that may yet be taken: the next one sends its records one by one.
var errRefused = errors.New("refused by the broker; tried again by itself")

// suspects remembers, from session to session, the records that the broker has refused after they were sent. The limit is the broker's for a
// whole batch, so most of them may be innocent.
type candidates struct {
	retries int
	count   atomic.Int32 // of known, for those who are in a hurry
	probing atomic.Bool  // nothing but one suspect is in flight

	mu    sync.Mutex
	known map[identity]*candidate
}

type candidate struct {
	refusals  int   // refusals with nothing else in flight
	err       error // the last one
	confirmed bool
}

// identity tells the record of an event from its dead letter, and, by the relation, a message outside of a transaction from the first row of a
// transaction whose commit record begins where the message ends.
type identity struct {
	lsn             pglogrepl.LSN
	index           uint32
	topic, relation string
}

func identityOf(m *sink.Message) identity {
	return identity{m.Origin.LSN, m.Origin.Index, m.Topic, m.Origin.Relation}
}

func (s *candidates) any() bool { return s.count.Load() > 0 }

func (s *candidates) find(m *sink.Message) *candidate {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.known[identityOf(m)]; found != nil {
		copied := *found
		return &copied
	}
	return nil
}

func (s *candidates) isConfirmed(m *sink.Message) bool {
	found := s.find(m)
	return found != nil && found.confirmed
}

// clear is for one that was delivered.
func (s *candidates) cleared(m *sink.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, found := s.known[identityOf(m)]; found {
		delete(s.known, identityOf(m))
		s.count.Add(-1)
	}
}

// forget is for those that do not come again, because all before that position is confirmed. Each error keeps what was read together with its row in memory.
func (s *candidates) forget(before pglogrepl.LSN) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.known, func(id identity, _ *candidate) bool { return id.lsn < before })
	s.count.Store(int32(len(s.known))) //nolint:gosec // they were in flight, which is bounded
}

// mayBeInnocent tells whether the broker's answer to a batch leaves open which of its records is meant.
func refusesBatch(err error) bool {
	return errors.Is(err, sink.ErrTooLarge) || errors.Is(err, sink.ErrInvalidRecord)
}

// refused notes what the broker refused after it was sent, and returns the error by which the session ends: one that is tried again, until
// the record was refused by itself often enough.
func (s *candidates) refused(m *sink.Message, err error) error {
	if !refusesBatch(err) {
		return err
	}
	if s.probing.Load() {
		return s.refusedAlone(m, err)
	}
	s.note(m, err, 0)
	return fmt.Errorf("%w: %w", errRefused, err)
}

// refusedAlone is refused for one that nothing else can have been the reason for.
func (s *candidates) refusedAlone(m *sink.Message, err error) error {
	s.note(m, err, 1)
	return fmt.Errorf("%w: %w", errRefused, err)
}

func (s *candidates) note(m *sink.Message, err error, lone int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.known[identityOf(m)]
	if found == nil {
		found = &candidate{}
		if s.known == nil {
			s.known = map[identity]*candidate{}
		}
		s.known[identityOf(m)] = found
		s.count.Add(1)
	}
	found.err = err
	found.refusals += lone
	found.confirmed = found.refusals >= s.retries
}
