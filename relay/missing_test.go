package relay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/sink"
)

func (x *setup) mistyped(key, payload string) {
	x.t.Helper()
	x.exec(`INSERT INTO outbox VALUES (7, 'Typo', $1, $2)`, key, payload)
}

// A row needs a topic that is not there, and is given up by hand while the relay runs: nobody waits for the topic any more.
func TestMissing_NoTopicIsAwaitedWhoseRowTheSlotDoesNotSend(t *testing.T) {
	x := newSetup(t)
	x.cfg.BackoffMin, x.cfg.BackoffMax = 100*time.Millisecond, 200*time.Millisecond
	x.broker.Topics("outbox.event.Order")
	x.row("a", "a1")
	x.mistyped("a", "lost")
	r := x.run()
	require.Eventually(t, func() bool { return x.broker.Sessions() > 3 }, patience, time.Millisecond)
	require.Eventually(t, func() bool {
		_, err := x.conn.Exec(x.ctx, `SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())`, x.slot)
		return err == nil
	}, patience, time.Millisecond)
	x.row("a", "a2")
	require.NoError(t, x.broker.WaitFor(x.ctx, 2))
	r.stop()
	require.NoError(t, r.end())
	require.Equal(t, []string{"a1", "a2"}, x.payloads())
}

// Each session reports which row needs the topic, not only the one that read it, and which policy would let the relay go on.
func TestMissing_EachSessionNamesTheRowAndThePolicy(t *testing.T) {
	x := newSetup(t)
	x.broker.Topics("outbox.event.Order")
	var named, all atomic.Int64
	x.parts.Explain = func(err error, _ relay.State) (string, string, string) {
		all.Add(1)
		halt, message := new(relay.HaltError), new(sink.MessageError)
		if asAll(err, &halt, &message) && halt.Cause == deadletter.UnknownTopic && message.Origin.Relation == "public.outbox" &&
			message.Origin.EventID == "7" && message.Origin.LSN != 0 && message.Topic == "outbox.event.Typo" {
			named.Add(1)
		}
		return err.Error(), "", ""
	}
	x.mistyped("a", "typo")
	r := x.run()
	require.Eventually(t, func() bool { return x.broker.Sessions() > 5 }, patience, time.Millisecond)
	r.stop()
	require.NoError(t, r.end())
	require.Equal(t, all.Load(), named.Load())
	require.Zero(t, x.broker.Published())
}

func TestMissing_FollowsThePolicyOnceTheTopicIsMissingForLongEnough(t *testing.T) {
	t.Parallel()
	for policy, want := range map[deadletter.Policy][]string{
		deadletter.DeadLetter:    {"a1", "unknown_topic", "b2", "a3"},
		deadletter.DeadLetterKey: {"a1", "unknown_topic", "parked b2", "a3"},
		deadletter.Skip:          {"a1", "b2", "a3"},
	} {
		for _, exactly := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/exactly_once=%t", policy, exactly), func(t *testing.T) {
				x := newSetup(t)
				x.policies(policy)
				const after = time.Second
				x.parts.DeadLetters.Policies.UnknownTopic, x.parts.DeadLetters.Policies.UnknownTopicAfter = policy, after
				x.broker.Topics("outbox.event.Order", x.parts.DeadLetters.Policies.Topic)
				if exactly {
					x.exactlyOnce(&ledger{})
				}
				x.row("a", "a1")
				x.mistyped("b", "typo")
				x.row("b", "b2")
				x.mistyped("c", "typo") // which does not wait for itself
				x.row("a", "a3")
				began := time.Now()
				r := x.run()
				require.Eventually(t, func() bool { return slices.Contains(x.payloads(), "a3") }, patience, time.Millisecond)
				require.Greater(t, time.Since(began), after)
				r.stop()
				require.NoError(t, r.end())
				got := x.payloads()
				require.Equal(t, want, withoutRepeats(got))
				letters := 0
				for _, payload := range got {
					if payload == string(deadletter.UnknownTopic) {
						letters++
					}
				}
				require.Equal(t, policy == deadletter.Skip, letters == 0)
				require.NotEqual(t, 1, letters, "there are two of them")
				require.GreaterOrEqual(t, x.confirmed(), r.State().AckedLSN)
			})
		}
	}
}

// unsure is a sink of a cluster that reports now and then that a topic is missing, and now and then nothing.
type unsure struct {
	sink.Sink
	asked *atomic.Int64
}

func (u unsure) Topic(ctx context.Context, topic string) error {
	if u.asked.Add(1)%3 == 0 {
		return fmt.Errorf("%w: a leader is elected", sink.ErrUnreachable)
	}
	return u.Sink.Topic(ctx, topic)
}

// A cluster that is away, or whose brokers do not agree, has not reported that a topic is missing.
func TestMissing_NoRowIsGivenUpWhileTheClusterIsNotSure(t *testing.T) {
	t.Parallel()
	x := newSetup(t)
	x.policies(deadletter.DeadLetter)
	x.parts.DeadLetters.Policies.UnknownTopic, x.parts.DeadLetters.Policies.UnknownTopicAfter = deadletter.DeadLetter, time.Second
	x.cfg.BackoffMin, x.cfg.BackoffMax = 20*time.Millisecond, 100*time.Millisecond
	x.broker.Topics("outbox.event.Order", x.parts.DeadLetters.Policies.Topic)
	var asked atomic.Int64
	x.parts.Broker.OpenSink = func(ctx context.Context, done sink.Done) (sink.Sink, error) {
		s, err := x.broker.Open(ctx, done)
		return unsure{s, &asked}, err
	}
	x.mistyped("b", "typo")
	r := x.run()
	require.Eventually(t, func() bool { return asked.Load() > 60 }, patience, time.Millisecond, "three times as long as it would take")
	require.Zero(t, x.broker.Published())
	x.broker.Topics("outbox.event.Order", "outbox.event.Typo", x.parts.DeadLetters.Policies.Topic)
	require.NoError(t, x.broker.WaitFor(x.ctx, 1))
	r.stop()
	require.NoError(t, r.end())
	require.Equal(t, []string{"typo"}, x.payloads())
}

func asAll(err error, halt **relay.HaltError, message **sink.MessageError) bool {
	return errors.As(err, halt) && errors.As(err, message)
}

// What the sink has taken of a transaction without ever getting its boundary is committed by nobody: to wait for that would be in vain.
func TestExactlyOnce_ASessionThatEndsDoesNotWaitForWhatNobodyCommits(t *testing.T) {
	x := newSetup(t)
	x.exactlyOnce(&ledger{})
	x.cfg.DrainTimeout = time.Hour
	x.broker.Topics("outbox.event.Order")
	x.row("a", "a1")
	x.mistyped("b", "typo")
	r := x.run()
	require.Eventually(t, func() bool { return x.broker.Sessions() > 1 }, patience, time.Millisecond)
	r.stop()
	require.NoError(t, r.end())
}
