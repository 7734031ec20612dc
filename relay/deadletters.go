package relay

import (
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
)

// causeParked is the metric label of a dead letter that follows its parked key.
const causeParked = "parked"

// HaltError is the error of a row with the policy halt. For a missing topic the relay waits.
type HaltError struct {
	Cause deadletter.Cause // the key in [deadletter]
	Err   error
}

func (e *HaltError) Error() string { return e.Err.Error() }

func (e *HaltError) Unwrap() error { return e.Err }

// CauseOf returns the cause whose policy applies to err; false: none does.
func CauseOf(err error) (deadletter.Cause, bool) {
	if row, ok := errors.AsType[*router.RowError](err); ok {
		switch row.Reason {
		case router.ReasonInvalidTopic:
			return deadletter.InvalidTopic, true
		case router.ReasonInvalidMessage, router.ReasonInvalidHeaders:
			return deadletter.Malformed, true
		case router.ReasonUpdate: // router.table.op.invalid.behavior decides
			return "", false
		}
		return deadletter.NotRoutable, true
	}
	if _, ok := errors.AsType[*replication.RowTooLargeError](err); ok {
		return deadletter.TooLarge, true
	}
	for _, known := range [...]struct {
		err   error
		cause deadletter.Cause
	}{
		{sink.ErrTooLarge, deadletter.TooLarge},
		{sink.ErrInvalidTopic, deadletter.InvalidTopic},
		{sink.ErrInvalidRecord, deadletter.Refused},
		{sink.ErrUnknownTopic, deadletter.UnknownTopic},
	} {
		if errors.Is(err, known.err) {
			return known.cause, true
		}
	}
	return "", false
}

// openDeadLetters opens the handler.
func (s *session) openDeadLetters(ctx context.Context, parts DeadLetters) (err error) {
	if parts.Open != nil {
		s.deadLetters, err = parts.Open(ctx, s.source, s.stream.SeedLSN())
	}
	return err
}

func (s *session) closeDeadLetters() {
	if s.deadLetters != nil {
		s.deadLetters.Close()
	}
}

func (s *session) isDeadLetter(topic string) bool {
	return s.deadLetters != nil && topic == s.policies.Topic
}

// oversize returns the error of an event that exceeds the largest row.
func (s *session) oversize(e *replication.Event) error {
	of := "message:" + e.Prefix
	if e.Relation != nil {
		of = e.Relation.String()
	}
	return fmt.Errorf("row %d of %s, in the transaction that commits at %s: %w", e.Index, of,
		e.LSN, &replication.RowTooLargeError{Bytes: e.Oversize, Max: s.stream.MaxRowBytes()})
}

// handlePoison applies the policy to a row. p has Event and Err, and Message if it was routed.
func (s *session) handlePoison(ctx context.Context, p deadletter.Poison) error {
	s.metrics.EventsRefused.Inc()
	if s.parks(p.Err) {
		if err := s.settle(ctx); err != nil {
			return err
		}
	}
	letter, err := s.dispose(p)
	switch {
	case err == nil && letter == nil:
		return nil
	case err == nil:
		return s.admit(ctx, p.Event, letter)
	case p.Message == nil && p.Event.Oversize == 0:
		err = fmt.Errorf("route row %d of the transaction that commits at %s: %w",
			p.Event.Index, p.Event.LSN, err)
	}
	return err
}

// parks reports whether the dead letter of a row parks its key, and can be read before earlier
// rows of the key are written. They must be acknowledged first: else a redrive overtakes them.
// With exactly_once they are in the same transaction.
func (s *session) parks(err error) bool {
	cause, known := CauseOf(err)
	return known && s.deadLetters != nil && s.transactional == nil &&
		s.policies.Policy(cause) == deadletter.DeadLetterKey
}

// dispose returns the dead letter of a row, nil if it is skipped, or the error to halt with.
func (s *session) dispose(p deadletter.Poison) (*sink.Message, error) {
	var known bool
	if p.Cause, known = CauseOf(p.Err); !known {
		return nil, p.Err
	}
	p.Policy = s.policies.Policy(p.Cause)
	if p.Policy == deadletter.Halt {
		return nil, &HaltError{Cause: p.Cause, Err: p.Err}
	}
	if s.deadLetters == nil && p.Policy != deadletter.Skip {
		return nil, p.Err
	}
	_, p.Reason = Classify(p.Err, false)
	event := s.log.Warn().Str("cause", string(p.Cause)).Str("reason", p.Reason).Err(p.Err)
	if p.Event != nil {
		event.Stringer("lsn", p.Event.LSN).Uint32("index", p.Event.Index)
	} else {
		event.Stringer("lsn", p.Message.Origin.LSN).Uint32("index", p.Message.Origin.Index)
	}
	if p.Policy == deadletter.Skip {
		s.metrics.DeadLetterSkipped.WithLabelValues(string(p.Cause)).Inc()
		event.Msg("row was skipped by its policy")
		return nil, nil
	}
	letter, err := s.deadLetters.DeadLetter(p)
	if errors.Is(err, deadletter.ErrKept) {
		s.metrics.EventsRepeated.Inc()
		return nil, nil
	}
	if err != nil {
		if _, ofRow := CauseOf(err); ofRow {
			return nil, fmt.Errorf("make the dead letter of a row (%w): %w", p.Err, err)
		}
		// Without p.Err in the chain, for which the relay would halt.
		return nil, fmt.Errorf("make the dead letter of a row: %w", err)
	}
	s.metrics.DeadLetters.WithLabelValues(string(p.Cause)).Inc()
	event.Str("topic", letter.Topic).Msg("row was made a dead letter")
	return letter, nil
}

// follow returns m, or its dead letter if its key is parked, or nil if that is in the topic
// already. It may wait while the key is redriven.
func (s *session) follow(ctx context.Context, e *replication.Event, m *sink.Message,
) (*sink.Message, error) {
	if s.deadLetters == nil {
		return m, nil
	}
	for {
		letter, err := s.deadLetters.Follow(e, m)
		switch {
		case errors.Is(err, deadletter.ErrHold):
		case errors.Is(err, deadletter.ErrKept):
			s.metrics.EventsRepeated.Inc()
			return nil, nil
		case err != nil:
			return nil, noLetter(m, err)
		case letter != nil:
			s.metrics.DeadLetters.WithLabelValues(causeParked).Inc()
			return letter, nil
		default:
			return m, nil
		}
		if err = s.settle(ctx); err == nil {
			s.inSink.Store(true)
			err = s.deadLetters.Wait(ctx, m)
			s.sinkReturned()
		}
		if err != nil {
			return nil, err
		}
	}
}

// refusedBySink returns the messages to publish instead of ms, whose first one Publish has refused
// with err. An error of its own ends the session.
func (s *session) refusedBySink(ctx context.Context, ms []*sink.Message,
	err error) ([]*sink.Message, error) {
	failed, ok := errors.AsType[*sink.MessageError](err)
	if ok && !failed.Untaken && refusesBatch(err) {
		// Done records the refusal. The session ends in the same way whichever comes first.
		return nil, fmt.Errorf("%w: %w", errRefused, err)
	}
	m := ms[0]
	first := ok && failed.Untaken && sameEvent(m, failed.Origin)
	cause, known := CauseOf(err)
	// A missing topic is not poison at the first answer (missing.go).
	if !first || s.isDeadLetter(m.Topic) || !known || cause == deadletter.UnknownTopic {
		return nil, err
	}
	if cause == deadletter.Refused && !s.candidates.find(m).confirmed {
		return nil, s.candidates.note(m, err, 1)
	}
	if s.parks(err) {
		if err := s.awaitUnacknowledged(ctx, len(ms)); err != nil {
			return nil, err
		}
	}
	letter, halt := s.dispose(deadletter.Poison{Message: m, Err: err})
	if halt != nil && s.boundary.held > 0 {
		// Transactions before it were handed over without their boundary, as was a part of its own.
		// The next session disposes of it before that, in probe.
		return nil, s.candidates.note(m, err, s.candidates.retries)
	}
	if halt != nil {
		return nil, halt
	}
	s.metrics.EventsRefused.Inc()
	if letter == nil {
		release(m)
		s.window.done(m.Origin.Transaction, m.Origin.HeldBytes, m.Origin.Generation)
		return ms[1:], nil
	}
	s.replaceMessage(ms, 0, letter)
	return ms, s.followUp(ms[1:])
}

// noLetter is the error of a message whose key is parked, and whose dead letter cannot be made.
func noLetter(m *sink.Message, err error) error {
	return &sink.MessageError{Topic: m.Topic, Origin: m.Origin,
		Err: fmt.Errorf("its key is parked, and its dead letter cannot be made: %w", err)}
}

// followUp puts dead letters in the place of messages whose key was parked after routing.
func (s *session) followUp(ms []*sink.Message) error {
	for i, follower := range ms {
		if s.isDeadLetter(follower.Topic) {
			continue
		}
		letter, err := s.deadLetters.Follow(nil, follower)
		// waiting is not possible here; the second call returns the dead letter
		if errors.Is(err, deadletter.ErrHold) {
			letter, err = s.deadLetters.Follow(nil, follower)
		}
		if err != nil {
			return noLetter(follower, err)
		}
		if letter != nil {
			s.metrics.DeadLetters.WithLabelValues(causeParked).Inc()
			s.replaceMessage(ms, i, letter)
		}
	}
	return nil
}

// replaceMessage puts a dead letter in the place of a message in the window.
func (s *session) replaceMessage(ms []*sink.Message, i int, letter *sink.Message) {
	before := ms[i].Origin.HeldBytes
	letter.Origin = ms[i].Origin
	if s.dedup != nil {
		s.sign(letter)
	}
	letter.Origin.HeldBytes = max(before, letter.Size())
	s.window.replace(before, letter.Origin.HeldBytes, letter.Origin.Generation)
	ms[i] = letter
}
