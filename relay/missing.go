package relay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/sink"
)

// awaited is a row that ended a session because its topic does not exist. The next one looks for
// the topic first: else it would publish the rows in front of the row again.
type awaited struct {
	topic string
	row   sink.Origin
	place seen // the server whose position the row has
}

// awaitTopic remembers the row that ended a session if its topic is missing, and explains err.
func (r *Relay) awaitTopic(err error) error {
	failed, ok := errors.AsType[*sink.MessageError](err)
	if !ok || !errors.Is(err, sink.ErrUnknownTopic) {
		return err
	}
	o := failed.Origin
	r.awaited = &awaited{
		topic: strings.Clone(failed.Topic), place: r.seen,
		// Without the memory of what was read together with the row.
		row: sink.Origin{LSN: o.LSN, Index: o.Index, CommitTime: o.CommitTime,
			Relation: strings.Clone(o.Relation), EventID: strings.Clone(o.EventID)},
	}
	return r.missing.undecided(failed.Topic, err)
}

// retryAwaited looks for the topic that the last session ended for, unless the stream does not
// bring its row again: the slot was advanced past it, or the server is another one.
func (r *Relay) retryAwaited(ctx context.Context, s *session) error {
	a := r.awaited
	if a == nil {
		return nil
	}
	id := s.stream.Identity()
	if a.row.LSN < s.stream.SeedLSN() || a.place.SystemID != id.SystemID ||
		a.place.Timeline != id.Timeline {
		r.awaited = nil
		r.parts.Log.Info().Str("topic", a.topic).Stringer("lsn", a.row.LSN).
			Stringer("confirmed_flush_lsn", s.stream.SeedLSN()).
			Msg("topic is not waited for any more: the slot does not send the row that belongs " +
				"there")
		return nil
	}
	err := s.sink.Topic(ctx, a.topic)
	if r.missing.judge(a.topic, err, time.Now()) || err == nil {
		r.awaited = nil // if the topic is missing, the policy for the row applies
		return nil
	}
	if failed, ok := errors.AsType[*sink.MessageError](err); ok {
		err = failed.Err
	}
	return r.missing.undecided(a.topic,
		&sink.MessageError{Topic: a.topic, Origin: a.row, Untaken: true, Err: err})
}

// missing is since when topics of rows do not exist. Of the goroutine of Run, or the pump.
type missing struct {
	after  time.Duration // that makes the rows of a missing topic poison; zero: they never are
	gap    time.Duration // between two answers, at most; else the time in between does not count
	topics map[string]*absence
}

// absence is a topic that the cluster does not have, by each answer that it gave.
type absence struct {
	since, last time.Time
	err         error // the last answer
	settled     bool  // for long enough; until the topic is there
}

const (
	// missingTopics bounds how many topics are remembered. The names come from rows.
	missingTopics = 1000
	// missingFresh is how long an answer counts for the rows behind.
	missingFresh = time.Second
)

func newMissing(cfg Config, policies deadletter.Config) missing {
	m := missing{gap: max(time.Minute, 2*cfg.BackoffMax), topics: map[string]*absence{}}
	if policies.UnknownTopic != deadletter.Halt {
		m.after = policies.UnknownTopicAfter
	}
	return m
}

// judge takes an answer about a topic, and reports whether its rows are poison now.
func (m *missing) judge(topic string, answer error, now time.Time) bool {
	a := m.topics[topic]
	if m.after == 0 {
		return false
	}
	if !errors.Is(answer, sink.ErrUnknownTopic) {
		if answer == nil || a != nil && !a.settled {
			delete(m.topics, topic)
		}
		return false
	}
	if a == nil || !a.settled && now.Sub(a.last) > m.gap {
		m.makeRoom()
		a = &absence{since: now}
		m.topics[topic] = a
	}
	a.last, a.err = now, answer
	a.settled = a.settled || now.Sub(a.since) >= m.after
	return a.settled
}

// undecided adds to the error of a row whose topic is missing until when the relay waits.
func (m *missing) undecided(topic string, err error) error {
	switch a := m.topics[topic]; {
	case !errors.Is(err, sink.ErrUnknownTopic):
		return err
	case m.after == 0:
		return &HaltError{Cause: deadletter.UnknownTopic, Err: err}
	case a == nil:
		return fmt.Errorf("deadletter.unknown_topic decides once the topic has been missing for "+
			"%s: %w", m.after, err)
	default:
		return fmt.Errorf("deadletter.unknown_topic decides at %s, if the topic is missing "+
			"until then: %w", a.since.Add(m.after).UTC().Format(time.RFC3339), err)
	}
}

// makeRoom forgets the topic with the oldest answer.
func (m *missing) makeRoom() {
	if len(m.topics) >= missingTopics {
		delete(m.topics, slices.MinFunc(slices.Collect(maps.Keys(m.topics)),
			func(a, b string) int { return m.topics[a].last.Compare(m.topics[b].last) }))
	}
}

// unsettle restarts the time of all topics that are not missing for long enough.
func (m *missing) unsettle() {
	maps.DeleteFunc(m.topics, func(_ string, a *absence) bool { return !a.settled })
}

// missingTopic applies the policy to a row whose topic has been missing for long enough, and still
// is. False: it is published. An error ends the session.
func (s *session) missingTopic(ctx context.Context, e *replication.Event, m *sink.Message,
) (bool, error) {
	a := s.missing.topics[m.Topic]
	if a == nil || !a.settled || s.isDeadLetter(m.Topic) {
		return false, nil
	}
	if time.Since(a.last) > missingFresh {
		s.waits.Store(true)
		err := s.sink.Topic(ctx, m.Topic)
		s.waited()
		if !s.missing.judge(m.Topic, err, time.Now()) {
			return false, err
		}
	}
	reason := &sink.MessageError{Topic: m.Topic, Origin: m.Origin, Untaken: true,
		Err: fmt.Errorf("missing since %s: %w", a.since.UTC().Format(time.RFC3339), a.err)}
	return true, s.poisoned(ctx, deadletter.Poison{Event: e, Message: m, Err: reason})
}
