package trace

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/sink"
)

// readLetters reads the dead-letter topic, and adds its letters to their events.
func (s *search) readLetters(ctx context.Context) error {
	topic := s.cfg.DeadLetter.Topic
	spans, err := s.topics.reader.Spans(ctx, topic, time.Time{})
	if err != nil {
		if errors.Is(err, sink.ErrUnknownTopic) || !s.cfg.DeadLetter.On() {
			s.index = deadletter.NewIndex() // there is none, or no policy needs it
			return nil
		}
		return s.kafkaFailure(topic, err)
	}
	index, left := deadletter.NewIndex(), s.MaxRead
	err = s.topics.reader.Read(ctx, spans, func(m *sink.Message, offset int64) error {
		if left -= int64(m.Size()); left < 0 {
			return errLimit
		}
		own := *m
		own.Key = bytes.Clone(m.Key) // else it retains the payloads beside it
		index.Take(&own, offset)
		return nil
	})
	switch {
	case errors.Is(err, errLimit):
		s.note("not all of topic " + topic + " was read: a dead letter may be missing here; " +
			"--max-read reads more, postrider deadletter list reads all")
	case err != nil:
		return s.kafkaFailure(topic, err)
	}
	s.index, s.result.Searched.DeadLetters = index, topic
	for _, l := range index.List(deadletter.Filter{All: true}) {
		s.addLetter(l)
	}
	parked := index.Parked()
	for _, e := range s.events {
		e.Parked = e.key != nil &&
			len(parked[deadletter.Address{Topic: e.topic, Key: string(e.key)}]) > 0
	}
	return nil
}

// addLetter adds a dead letter of our slot to its row. One without a row is an event of its own.
func (s *search) addLetter(l *deadletter.Entry) {
	if l.Source != "" && !s.ownPosition(l.Source) {
		return
	}
	letter := Letter{ID: l.ID.String(), Cause: string(l.Cause), Reason: l.Reason, Error: l.Error,
		Topic: l.Topic, Relation: l.Relation, At: l.At, Action: l.Action, ResolvedAt: l.ResolvedAt,
		commitTime: l.CommitTime, position: l.Position, source: l.Source}
	added := false
	for _, e := range s.events {
		switch {
		case e.ID != l.EventID:
		case e.Row != nil && !slices.Contains(e.table.names, l.Relation),
			e.Row == nil && len(e.Letters) > 0 && e.Letters[0].Relation != l.Relation:
		default:
			e.Letters, added = append(e.Letters, letter), true
		}
	}
	wanted := s.Key == nil && l.EventID == s.ID ||
		s.Key != nil && l.Key != nil && string(l.Key) == *s.Key && s.AggregateType == ""
	if added || !wanted || s.Topic != "" && l.Topic != s.Topic {
		return
	}
	e := &event{hash: -1, partition: -1, topic: l.Topic, key: l.Key}
	e.ID, e.Letters = l.EventID, []Letter{letter}
	s.events = append(s.events, e)
}

// last is the newest dead letter of an event; nil: it has none.
func (e *event) last() *Letter {
	if len(e.Letters) == 0 {
		return nil
	}
	return &e.Letters[len(e.Letters)-1]
}
