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

// awaited is a row that ended a session because its topic does not exist. The next session looks
// for the topic first: else it would publish the rows before this one again.
type awaited struct {
	topic string
	row   sink.Origin
	place serverPosition // the server whose position the row has
}

// awaitTopic sets r.awaited if a missing topic ended the session, and explains err.
func (r *Relay) awaitTopic(err error) error {
	failed, ok := errors.AsType[*sink.MessageError](err)
	if !ok || !errors.Is(err, sink.ErrUnknownTopic) {
		return err
	}
	o := failed.Origin
	r.awaited = &awaited{
		topic: strings.Clone(failed.Topic), place: r.lastServer,
		// Cloned, so that the read buffer of the row is not retained.
		row: sink.Origin{LSN: o.LSN, Index: o.Index, CommitTime: o.CommitTime,
			Relation: strings.Clone(o.Relation), EventID: strings.Clone(o.EventID)},
	}
	return r.missing.explain(failed.Topic, err)
}

// checkAwaited looks for the topic whose absence ended the last session. It forgets the topic if
// the stream does not send its row again: the slot was advanced, or the server is another one.
func (r *Relay) checkAwaited(ctx context.Context, s *session) error {
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
			Msg("stopped waiting for topic: the slot does not send the row for it any more")
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
	return r.missing.explain(a.topic,
		&sink.MessageError{Topic: a.topic, Origin: a.row, Untaken: true, Err: err})
}

// missing has the topics that do not exist, and since when.
type missing struct {
	after  time.Duration // until the rows of a missing topic are poison; zero: never
	gap    time.Duration // at most between two answers; else absence.since begins again
	topics map[string]*absence
}

// absence is a topic that does not exist by each answer of the cluster from since to last.
type absence struct {
	since, last time.Time
	err         error // the last answer
	settled     bool  // missing for long enough; stays so until the topic exists
}

const (
	// missingTopics limits the number of missing topics. Their names come from rows.
	missingTopics = 1000
	// missingFresh is how long an answer applies to later rows.
	missingFresh = time.Second
)

func newMissing(cfg Config, policies deadletter.Config) missing {
	m := missing{gap: max(time.Minute, 2*cfg.BackoffMax), topics: map[string]*absence{}}
	if policies.UnknownTopic != deadletter.Halt {
		m.after = policies.UnknownTopicAfter
	}
	return m
}

// judge records an answer about a topic, and reports whether its rows are poison now.
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

// explain adds to the error of a row how long the relay waits for its missing topic.
func (m *missing) explain(topic string, err error) error {
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

// makeRoom removes the topic with the oldest answer if there are too many.
func (m *missing) makeRoom() {
	if len(m.topics) >= missingTopics {
		delete(m.topics, slices.MinFunc(slices.Collect(maps.Keys(m.topics)),
			func(a, b string) int { return m.topics[a].last.Compare(m.topics[b].last) }))
	}
}

// forgetUnsettled removes the topics that are not settled: their time begins again.
func (m *missing) forgetUnsettled() {
	maps.DeleteFunc(m.topics, func(_ string, a *absence) bool { return !a.settled })
}

// missingTopic applies the policy to a row whose topic is settled and still missing. It returns
// false if the row is to be published.
func (s *session) missingTopic(ctx context.Context, e *replication.Event, m *sink.Message,
) (bool, error) {
	a := s.missing.topics[m.Topic]
	if a == nil || !a.settled || s.isDeadLetter(m.Topic) {
		return false, nil
	}
	if time.Since(a.last) > missingFresh {
		s.inSink.Store(true)
		err := s.sink.Topic(ctx, m.Topic)
		s.sinkReturned()
		if !s.missing.judge(m.Topic, err, time.Now()) {
			return false, err
		}
	}
	reason := &sink.MessageError{Topic: m.Topic, Origin: m.Origin, Untaken: true,
		Err: fmt.Errorf("missing since %s: %w", a.since.UTC().Format(time.RFC3339), a.err)}
	return true, s.handlePoison(ctx, deadletter.Poison{Event: e, Message: m, Err: reason})
}
