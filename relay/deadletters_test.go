package relay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router/connect"
	"github.com/postrider/postrider/sink"
)

// deadLetterHandler parks by key and writes plain dead letters.
type deadLetterHandler struct {
	topic  string
	parked map[string]bool
	fail   error // of the next DeadLetter
}

func (h *deadLetterHandler) DeadLetter(p deadletter.Poison) (*sink.Message, error) {
	if err := h.fail; err != nil {
		h.fail = nil
		return nil, err
	}
	m := &sink.Message{Topic: h.topic, Partition: sink.ByKey, Value: []byte(p.Cause)}
	switch {
	case p.Message != nil:
		m.Key, m.Origin = p.Message.Key, p.Message.Origin
	default:
		m.Origin = sink.Origin{LSN: p.Event.LSN, Index: p.Event.Index, CommitTime: p.Event.Time}
	}
	if p.Policy == deadletter.DeadLetterKey {
		h.parked[string(m.Key)] = true
	}
	return m, nil
}

func (h *deadLetterHandler) Follow(_ *replication.Event, m *sink.Message) (*sink.Message, error) {
	if !h.parked[string(m.Key)] {
		return nil, nil
	}
	return &sink.Message{Topic: h.topic, Partition: sink.ByKey, Key: m.Key, Value: []byte("parked " + string(m.Value)), Origin: m.Origin}, nil
}

func (h *deadLetterHandler) Wait(context.Context, *sink.Message) error { return nil }

func (h *deadLetterHandler) Close() {}

// policies sets one policy for all causes, and gives each session a dead-letter
// handler that remembers what the one before has parked.
func (x *setup) policies(p deadletter.Policy) {
	c := deadletter.DefaultConfig()
	c.NotRoutable, c.InvalidTopic, c.TooLarge, c.Refused, c.Malformed = p, p, p, p, p
	x.parts.DeadLetters.Policies = c
	d := &deadLetterHandler{topic: c.Topic, parked: map[string]bool{}}
	x.parts.DeadLetters.Open = func(context.Context, sink.Source, pglogrepl.LSN) (deadletter.Handler, error) { return d, nil }
}

// row commits one row, and returns a position as insert does.
func (x *setup) row(key, payload string) (written pglogrepl.LSN) {
	x.t.Helper()
	return x.lsn(`WITH written AS (INSERT INTO outbox VALUES (1, 'Order', $1, $2) RETURNING 1)
		SELECT pg_current_wal_insert_lsn()::text FROM (SELECT count(*) FROM written) AS all_of_them`, key, payload)
}

func about(text string, err error) func(*sink.Message) error {
	return func(m *sink.Message) error {
		if strings.Contains(string(m.Value), text) && !strings.HasPrefix(string(m.Value), "parked") {
			return err
		}
		return nil
	}
}

// poisonings are the ways in which the second of three rows cannot be delivered.
var poisonings = map[string]struct {
	cause string
	err   error
	do    func(x *setup)
	// With three retries. A record that was refused with others in flight may be innocent: that one does not count.
	sessions int
}{
	"not routable":           {"not_routable", nil, func(x *setup) { x.exec(`INSERT INTO outbox VALUES (1, NULL, 'b', 'poison')`) }, 1},
	"not taken by the sink":  {"too_large", sink.ErrTooLarge, func(x *setup) { x.broker.Refuse(about("poison", sink.ErrTooLarge), nil); x.row("b", "poison") }, 1},
	"refused when sent":      {"too_large", sink.ErrTooLarge, func(x *setup) { x.broker.Refuse(nil, about("poison", sink.ErrTooLarge)); x.row("b", "poison") }, 5},
	"invalid when sent":      {"refused", sink.ErrInvalidRecord, func(x *setup) { x.broker.Refuse(nil, about("poison", sink.ErrInvalidRecord)); x.row("b", "poison") }, 5},
	"invalid, and not taken": {"refused", sink.ErrInvalidRecord, func(x *setup) { x.broker.Refuse(about("poison", sink.ErrInvalidRecord), nil); x.row("b", "poison") }, 4},
}

func TestPoison_FollowsThePolicy(t *testing.T) {
	t.Parallel()
	for name, poisoning := range poisonings {
		for policy, want := range map[deadletter.Policy][]string{
			deadletter.DeadLetter:    {"a1", poisoning.cause, "b2", "a3"},
			deadletter.DeadLetterKey: {"a1", poisoning.cause, "parked b2", "a3"},
			deadletter.Skip:          {"a1", "b2", "a3"},
		} {
			if name == "not routable" && policy == deadletter.DeadLetterKey {
				continue // the handler of this test has no key of such a row
			}
			t.Run(name+"/"+string(policy), func(t *testing.T) {
				x := newSetup(t)
				x.policies(policy)
				x.row("a", "a1")
				poisoning.do(x)
				x.row("b", "b2")
				x.row("a", "a3")
				r := x.run()
				require.NoError(t, x.broker.WaitFor(x.ctx, len(want)))
				r.stop()
				require.NoError(t, r.end())
				require.Equal(t, poisoning.sessions, x.broker.Sessions(), "sessions: one for each refusal, and one that disposes of the row")
				got := x.payloads()
				if poisoning.err != nil { // where a session has ended meanwhile, the first rows may come again
					got = withoutRepeats(got)
				}
				require.Equal(t, want, got)
				require.GreaterOrEqual(t, x.confirmed(), r.State().AckedLSN)
			})
		}
	}
}

// What it takes to find the key of a row may be away: that is no reason to halt at the row, nor to go on behind it.
func TestPoison_WaitsWhileTheKeyOfARowCannotBeFound(t *testing.T) {
	x := newSetup(t)
	x.policies(deadletter.DeadLetter)
	h := &deadLetterHandler{topic: x.parts.DeadLetters.Policies.Topic, parked: map[string]bool{}, fail: fmt.Errorf("find its key: %w", connect.ErrRegistry)}
	x.parts.DeadLetters.Open = func(context.Context, sink.Source, pglogrepl.LSN) (deadletter.Handler, error) { return h, nil }
	x.row("a", "a1")
	poisonings["not routable"].do(x)
	x.row("b", "b2")
	r := x.run()
	require.NoError(t, x.broker.WaitFor(x.ctx, 3))
	r.stop()
	require.NoError(t, r.end())
	require.Equal(t, []string{"a1", "not_routable", "b2"}, x.payloads())
	require.Equal(t, 2, x.broker.Sessions())
}

// hasty lets Publish fail because of a refused message before Done is called for it, as a sink may whose goroutines race.
type hasty struct {
	sink.Sink
	refused chan error
	closing chan struct{}
}

func (h *hasty) Publish(ctx context.Context, ms []*sink.Message) error {
	poisoned := slices.ContainsFunc(ms, func(m *sink.Message) bool { return string(m.Value) == "poison" }) // not to be read once delivered
	if err := h.Sink.Publish(ctx, ms); err != nil {
		return err
	}
	if poisoned {
		return <-h.refused
	}
	return nil
}

func (h *hasty) Close(ctx context.Context) error {
	close(h.closing)
	return h.Sink.Close(ctx)
}

func TestPoison_FollowsThePolicyWhoeverSaysFirstThatItWasRefused(t *testing.T) {
	x := newSetup(t)
	x.policies(deadletter.DeadLetter)
	x.broker.Refuse(nil, about("poison", sink.ErrTooLarge))
	open := x.parts.Broker.OpenSink
	x.parts.Broker.OpenSink = func(ctx context.Context, done sink.Done) (sink.Sink, error) {
		h := &hasty{refused: make(chan error, 1), closing: make(chan struct{})}
		var err error
		h.Sink, err = open(ctx, func(m *sink.Message, err error) {
			if errors.Is(err, sink.ErrTooLarge) {
				h.refused <- err
				<-h.closing
			}
			done(m, err)
		})
		return h, err
	}
	x.row("a", "a1")
	x.row("b", "poison")
	x.row("b", "b2")
	r := x.run()
	require.NoError(t, x.broker.WaitFor(x.ctx, 3))
	r.stop()
	require.NoError(t, r.end())
	require.Equal(t, []string{"a1", "too_large", "b2"}, withoutRepeats(x.payloads()))
}

func withoutRepeats(texts []string) (out []string) {
	seen := map[string]bool{}
	for _, text := range texts {
		if !seen[text] {
			out = append(out, text)
		}
		seen[text] = true
	}
	return out
}

func TestPoison_HaltsInFrontOfTheRowByDefault(t *testing.T) {
	for name, poisoning := range poisonings {
		t.Run(name, func(t *testing.T) {
			x := newSetup(t)
			x.parts.DeadLetters.Policies = deadletter.DefaultConfig()
			before := x.row("a", "a1")
			poisoning.do(x)
			x.row("b", "b2")
			r := x.run()
			err := r.end()
			require.Error(t, err)
			if poisoning.err != nil {
				require.ErrorIs(t, err, poisoning.err)
			}
			require.Equal(t, relay.Halted, r.State().Phase)
			require.Equal(t, []string{"a1"}, withoutRepeats(x.payloads()))
			require.Greater(t, x.confirmed(), before, "what is before it is confirmed")
			require.Less(t, x.confirmed(), x.current())
		})
	}
}

func TestPoison_RefusedBatchDoesNotCondemnTheInnocent(t *testing.T) {
	x := newSetup(t)
	x.policies(deadletter.DeadLetter)
	// As a broker does: the limit is for the batch, so all of it are refused.
	batch := true
	x.broker.Refuse(nil, func(m *sink.Message) error {
		if batch && string(m.Value) != "event 1" {
			batch = false
			return fmt.Errorf("batch: %w", sink.ErrTooLarge)
		}
		return about("event 7", sink.ErrTooLarge)(m)
	})
	x.insert(1, 9)
	r := x.run()
	require.Eventually(t, func() bool { return len(withoutRepeats(x.payloads())) == 9 }, patience, 1e6)
	r.stop()
	require.NoError(t, r.end())
	require.Equal(t, []string{"event 1", "event 2", "event 3", "event 4", "event 5", "event 6", "too_large", "event 8", "event 9"}, withoutRepeats(x.payloads()))
}

// The policies are one for each cause: that there is a topic for others makes no dead letter of a row whose policy is to halt.
func TestPoison_HaltsForOneCauseBesideLettersForOthers(t *testing.T) {
	x := newSetup(t)
	x.policies(deadletter.DeadLetter)
	x.parts.DeadLetters.Policies.NotRoutable = deadletter.Halt
	x.broker.Refuse(about("big", sink.ErrTooLarge), nil)
	x.row("a", "a1")
	x.row("a", "big")
	poisonings["not routable"].do(x)
	x.row("b", "b2")
	r := x.run()
	var halt *relay.HaltError
	require.ErrorAs(t, r.end(), &halt)
	require.Equal(t, deadletter.NotRoutable, halt.Cause)
	require.Equal(t, []string{"a1", "too_large"}, x.payloads())
}

// The window has room for one message, so a row is routed before the row of its key is refused and parks it.
func TestPoison_ARowThatWaitsForRoomFollowsItsParkedKey(t *testing.T) {
	x := newSetup(t)
	x.cfg.InFlightMessages = 1
	x.policies(deadletter.DeadLetterKey)
	x.broker.Refuse(about("poison", sink.ErrTooLarge), nil)
	const pairs = 200 // many come in one read
	x.exec(fmt.Sprintf(`INSERT INTO outbox SELECT 1, 'Order', 'b' || n, payload
		FROM generate_series(1, %d) n, (VALUES (1, 'poison'), (2, 'next')) v(i, payload) ORDER BY n, i`, pairs))
	r := x.run()
	require.NoError(t, x.broker.WaitFor(x.ctx, 2*pairs))
	r.stop()
	require.NoError(t, r.end())
	require.Equal(t, slices.Repeat([]string{"too_large", "parked next"}, pairs), x.payloads(), "a row precedes the dead letter of its key")
}

// A key stays parked until it is redriven, also if there is no policy any more that parks one.
func TestPoison_ParkedKeysStayParkedWithoutAPolicy(t *testing.T) {
	x := newSetup(t)
	x.policies(deadletter.DeadLetterKey)
	x.broker.Refuse(about("poison", sink.ErrTooLarge), nil)
	x.row("b", "poison")
	r := x.run()
	require.NoError(t, x.broker.WaitFor(x.ctx, 1))
	r.stop()
	require.NoError(t, r.end())

	x.parts.DeadLetters.Policies = deadletter.DefaultConfig()
	x.row("b", "b2")
	x.row("c", "c1")
	r = x.run()
	require.NoError(t, x.broker.WaitFor(x.ctx, 3))
	r.stop()
	require.NoError(t, r.end())
	require.ElementsMatch(t, []string{"too_large", "parked b2", "c1"}, withoutRepeats(x.payloads()))
}
