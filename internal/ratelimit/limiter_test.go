package ratelimit

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/sink"
)

func newLimiter(all Rate, topics ...TopicRate) *Limiter {
	return New(all, topics, metrics.New(prometheus.NewRegistry(), "s"))
}

func message(topic string, size int) *sink.Message {
	return &sink.Message{Topic: topic, Value: bytes.Repeat([]byte("x"), size)}
}

// publish passes n messages through the limiter, and returns how long that took.
func publish(t *testing.T, l *Limiter, n int, topic string, size int) time.Duration {
	t.Helper()
	began := time.Now()
	for range n {
		require.NoError(t, l.Wait(t.Context(), nil, l.Count(message(topic, size)), nil))
	}
	return time.Since(began)
}

func TestLimiter_KeepsEachLimit(t *testing.T) {
	for name, c := range map[string]struct {
		all    Rate
		topics []TopicRate
	}{
		"rows":           {all: Rate{Rows: 1000}},
		"bytes":          {all: Rate{Bytes: 100_000}},
		"the lower":      {all: Rate{Rows: 1_000_000, Bytes: 100_000}},
		"of a topic":     {topics: []TopicRate{{[]string{"other", "a.*"}, Rate{Rows: 1000}}}},
		"of a topic too": {all: Rate{Rows: 5000}, topics: []TopicRate{{[]string{"a.b"}, Rate{Bytes: 100_000}}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(c.all, c.topics...)
			took := publish(t, l, 10_000, "a.b", 100)
			require.GreaterOrEqual(t, took, 9900*time.Millisecond, name)
			require.LessOrEqual(t, took, 10*time.Second, name)
		})
	}
}

func TestLimiter_LeavesOtherTopicsAlone(t *testing.T) {
	l := newLimiter(Rate{}, TopicRate{[]string{"a.*"}, Rate{Rows: 1}})
	for range 1000 {
		require.False(t, l.Count(message("b", 1)).Due())
	}
	require.False(t, (*Limiter)(nil).Count(message("b", 1)).Due())
	require.False(t, newLimiter(Rate{}).Count(message("b", 1)).Due())
}

// The topics of an entry share its limit.
func TestLimiter_AnEntryIsOneLimit(t *testing.T) {
	l := newLimiter(Rate{}, TopicRate{[]string{"a", "b"}, Rate{Rows: 1}})
	require.False(t, l.Count(message("a", 1)).Due())
	require.True(t, l.Count(message("b", 1)).Due())
}

// A row may be larger than what passes in a second: it passes, and what follows pays for it.
func TestLimiter_PassesAMessageOfAnySize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(Rate{Bytes: 1 << 10})
		took := publish(t, l, 1, "a", 64<<20)
		require.InDelta(t, (64 << 10), took.Seconds(), 1)
	})
}

func TestLimiter_WaitsAtLeastForABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(Rate{Rows: 5000})
		waits := 0
		for range 10_000 {
			if d := l.Count(message("a", 1)); d.Due() {
				waits++
				require.NoError(t, l.Wait(t.Context(), nil, d, nil))
			}
		}
		require.LessOrEqual(t, waits, 100, "of 20 ms each, in 2 s")
	})
}

func TestLimiter_EndsAWait(t *testing.T) {
	long := func(l *Limiter) Delay { return l.Count(message("a", 1<<20)) }
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := newLimiter(Rate{Bytes: 1 << 10})
		d := long(l)
		time.AfterFunc(time.Second, func() { l.Set(Rate{Bytes: 1 << 11}, nil) })
		require.NoError(t, l.Wait(t.Context(), nil, d, nil), "by other limits")
		require.Equal(t, time.Second, time.Since(began))

		lifted := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(lifted) })
		require.NoError(t, l.Wait(t.Context(), lifted, long(l), nil), "by a stop")
		require.Equal(t, 2*time.Second, time.Since(began))

		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("the session ends")
		time.AfterFunc(time.Second, func() { cancel(cause) })
		require.ErrorIs(t, l.Wait(ctx, nil, long(l), nil), cause)
		require.Equal(t, 3*time.Second, time.Since(began))
	})
}

func TestLimiter_EqualLimitsAreNoChange(t *testing.T) {
	topics := func() []TopicRate { return []TopicRate{{[]string{"a"}, Rate{Rows: 1}}} }
	l := newLimiter(Rate{Rows: 2}, topics()...)
	was := l.limits.Load()
	l.Set(Rate{Rows: 2}, topics())
	require.Same(t, was, l.limits.Load())
	l.Set(Rate{Rows: 2}, nil)
	require.NotSame(t, was, l.limits.Load())
}

func TestLimiter_SaysThatItLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(Rate{Bytes: 1 << 10})
		beats := 0
		require.NoError(t, l.Wait(t.Context(), nil, l.Count(message("a", 10<<10)), func() { beats++ }))
		require.InDelta(t, 10, beats, 1)
	})
}

func TestPacer_PublishesInPartsAndAtOnceWhenLifted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ms := make([]*sink.Message, 1000)
		for i := range ms {
			ms[i] = message("a", 1)
		}
		var got []*sink.Message
		parts := 0
		take := func(_ context.Context, part []*sink.Message) error { got = append(got, part...); parts++; return nil }
		began := time.Now()
		p := Pacer{Limiter: newLimiter(Rate{Rows: 100})}
		require.NoError(t, p.Publish(t.Context(), ms[:600], take))
		require.NoError(t, p.Publish(t.Context(), ms[600:], take))
		require.Equal(t, ms, got)
		require.InDelta(t, 10, time.Since(began).Seconds(), 0.2)
		require.Greater(t, parts, 100)

		got, parts, began = nil, 0, time.Now()
		lifted := make(chan struct{})
		p.Lifted = lifted
		close(lifted)
		require.NoError(t, p.Publish(t.Context(), ms, take))
		require.Equal(t, ms, got)
		require.Equal(t, 1, parts)
		require.Zero(t, time.Since(began))

		got, parts = nil, 0
		require.NoError(t, (&Pacer{}).Publish(t.Context(), ms, take))
		require.Equal(t, ms, got)
		require.Equal(t, 1, parts)

		fails := errors.New("refused")
		require.ErrorIs(t, p.Publish(t.Context(), ms, func(context.Context, []*sink.Message) error { return fails }), fails)
	})
}

// What is all or nothing is published at once, and what comes next waits for it; nothing waits behind the last.
func TestPacer_PublishesAllAndWaitsBeforeTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := Pacer{Limiter: newLimiter(Rate{Rows: 10})}
		ms := []*sink.Message{message("a", 1), message("a", 1), message("a", 1), message("a", 1)}
		began, calls := time.Now(), []time.Duration{}
		for range 3 {
			require.NoError(t, p.PublishAll(t.Context(), ms, func() error { calls = append(calls, time.Since(began)); return nil }))
		}
		require.Equal(t, []time.Duration{0, 300 * time.Millisecond, 700 * time.Millisecond}, calls)
		require.Equal(t, 700*time.Millisecond, time.Since(began))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, p.PublishAll(ctx, ms, func() error { t.Error("published"); return nil }), context.Canceled)
	})
}

func TestState_NamesTheLimitThatHoldsMessagesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		orders := Rate{Rows: 10}
		l := newLimiter(Rate{Rows: 1000}, TopicRate{[]string{"orders"}, orders})
		require.Equal(t, State{MaxRate: Rate{Rows: 1000}}, l.State())
		publish(t, l, 1000, "a", 1)
		publish(t, l, 100, "orders", 1)
		require.Equal(t, State{MaxRate: Rate{Rows: 1000}, Limiting: "relay.rate[1]", Limit: orders, Messages: 1100, Bytes: 1100}, l.State())
		require.InDelta(t, 10, testutil.ToFloat64(l.metrics.RateWaited.WithLabelValues("relay.rate[1]")), 0.5)
		publish(t, l, 20_000, "a", 1)
		require.Equal(t, "relay.max_rate", l.State().Limiting)
		time.Sleep(time.Minute)
		require.Empty(t, l.State().Limiting, "nothing waits any more")
		for range 1000 { // half of the limit, in bursts
			publish(t, l, 50, "a", 1)
			time.Sleep(100 * time.Millisecond)
		}
		require.Empty(t, l.State().Limiting)

		l.Set(Rate{}, nil)
		require.Zero(t, l.State())
		require.Zero(t, (*Limiter)(nil).State())
	})
}
