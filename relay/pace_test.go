package relay_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/ratelimit"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/sink"
)

// slow lets a row pass now and then: a test that waited for the next one would time out.
var slow = ratelimit.Rate{Bytes: 1 << 10}

// limit gives the setup's relays a limiter. The rows of slowly wait for hours under slow.
func (x *setup) limit(all ratelimit.Rate, topics ...ratelimit.TopicRate) *ratelimit.Limiter {
	x.parts.Limiter = ratelimit.New(all, topics, x.parts.Metrics)
	return x.parts.Limiter
}

// slowly commits rows first to last in one transaction. Each takes 1,000 s under slow.
func (x *setup) slowly(first, last int) {
	x.t.Helper()
	x.exec(`INSERT INTO outbox SELECT n, 'Order', 'key', 'event ' || n || repeat(' ', 1 << 20) FROM generate_series($1::int, $2::int) n`, first, last)
}

// trimmed are the payloads of slowly.
func (x *setup) trimmed() (texts []string) {
	for _, p := range x.payloads() {
		texts = append(texts, strings.TrimSpace(p))
	}
	return texts
}

// waiting waits until n messages are published and acknowledged, and the relay waits for its limit.
func (r *running) waiting(n int) {
	r.x.t.Helper()
	require.NoError(r.x.t, r.x.broker.WaitFor(r.x.ctx, n))
	require.Eventually(r.x.t, func() bool {
		st := r.State()
		return st.Rate.Limiting != "" && st.InFlight == 0
	}, patience, time.Millisecond)
	require.Equal(r.x.t, n, r.x.broker.Published())
}

func TestPace_IsNeverFasterThanTheLimit(t *testing.T) {
	x := newSetup(t)
	x.limit(ratelimit.Rate{Rows: 100})
	x.insert(1, 100)
	for n := range 50 {
		x.insert(101+n, 101+n)
	}
	began := time.Now()
	r := x.run()
	require.NoError(t, x.broker.WaitFor(x.ctx, 150))
	require.GreaterOrEqual(t, time.Since(began), 1380*time.Millisecond, "150 rows are 1.5 s, without the burst of 10 rows and the last one")
	require.Equal(t, "relay.max_rate", r.State().Rate.Limiting)
	r.stop()
	require.NoError(t, r.end())
	require.Equal(t, events(1, 150), x.payloads())
}

// The rest of the transaction is read and published: with the limit that would take longer than any drain timeout.
func TestPace_AStopOrAPauseIsNotLimited(t *testing.T) {
	x := newSetup(t)
	x.limit(slow)
	x.slowly(1, 20)
	r := x.run()
	r.waiting(1)
	r.paused()
	require.Equal(t, events(1, 20), x.trimmed())
	require.True(t, r.Resume())
	x.slowly(21, 40)
	r.waiting(21)
	r.stop()
	require.NoError(t, r.end())
	require.Equal(t, events(1, 40), x.trimmed(), "and nothing comes twice")
	again := x.run()
	again.waitPhase(relay.Streaming)
	x.slowly(41, 41)
	require.NoError(t, x.broker.WaitFor(x.ctx, 41))
	again.stop()
	require.NoError(t, again.end())
	require.Equal(t, events(1, 41), x.trimmed())
}

func TestPace_TheEndOfASessionEndsAWait(t *testing.T) {
	x := newSetup(t)
	x.limit(slow)
	x.slowly(1, 3)
	problem := make(chan func(error, time.Time), 1)
	x.parts.Server.Watch = func(ctx context.Context, p func(error, time.Time)) { problem <- p; <-ctx.Done() }
	r := x.run()
	r.waiting(1)
	(<-problem)(errors.New("seen"), time.Now())
	require.Eventually(t, func() bool { return r.State().Sessions == 2 }, patience, time.Millisecond)
	r.waiting(2) // the first row once more: its transaction was not confirmed
	r.kill()
	require.ErrorIs(t, r.end(), relay.ErrSecondSignal)
	require.Equal(t, []string{"event 1", "event 1"}, x.trimmed())
}

func TestPace_ChangesWithoutTheEndOfASession(t *testing.T) {
	x := newSetup(t)
	limiter := x.limit(slow)
	x.slowly(1, 3)
	r := x.run()
	r.waiting(1)
	limiter.Set(ratelimit.Rate{Bytes: 2 << 10}, nil)
	r.waiting(2)
	limiter.Set(ratelimit.Rate{}, nil)
	require.NoError(t, x.broker.WaitFor(x.ctx, 3))
	require.Zero(t, r.State().Rate)
	limiter.Set(slow, nil)
	x.slowly(4, 6)
	r.waiting(4)
	require.Equal(t, 1, r.State().Sessions)
	r.stop()
	require.NoError(t, r.end())
	require.Equal(t, events(1, 6), x.trimmed())
}

// Neither the watchdog nor the condition of a silent broker may take a wait for a hang.
func TestPace_AWaitIsProgressAndNoSilenceOfTheBroker(t *testing.T) {
	t.Parallel()
	x := newSetup(t)
	limiter := x.limit(slow)
	x.exec(`INSERT INTO outbox SELECT n, 'Order', 'key', 'event ' || n || repeat(' ', 60 << 10) FROM generate_series(1, 2) n`) // in one batch
	r := x.run()
	r.waiting(1)
	began := time.Now()
	require.Eventually(t, func() bool { return r.State().LastProgress.Sub(began) > 2*time.Second }, patience, 10*time.Millisecond)
	require.Zero(t, r.State().WaitingSince)
	x.broker.Hold()
	before := time.Now()
	limiter.Set(ratelimit.Rate{}, nil)
	require.NoError(t, x.broker.WaitPublished(x.ctx, 2))
	require.False(t, r.State().WaitingSince.Before(before), "since the row is in flight, not since the one before it")
	x.broker.Release(-1)
	r.stop()
	require.NoError(t, r.end())
}

// A topic that waits holds back all behind it: rows stay in the order of their commits.
func TestPace_OfATopicHoldsBackWhatIsBehindIt(t *testing.T) {
	x := newSetup(t)
	limiter := x.limit(ratelimit.Rate{}, ratelimit.TopicRate{Topics: []string{"outbox.event.Ord*"}, Rate: slow})
	x.exec(`INSERT INTO outbox SELECT n, 'Free', 'key', 'event ' || n || repeat(' ', 1 << 20) FROM generate_series(1, 5) n`)
	x.slowly(6, 6)
	x.exec(`INSERT INTO outbox VALUES (7, 'Free', 'key', 'event 7')`)
	r := x.run()
	r.waiting(6)
	require.Equal(t, "relay.rate[1]", r.State().Rate.Limiting)
	limiter.Set(ratelimit.Rate{}, nil)
	require.NoError(t, x.broker.WaitFor(x.ctx, 7))
	r.stop()
	require.NoError(t, r.end())
	require.Equal(t, events(1, 7), x.trimmed())
}

// A Kafka transaction that waited for the limit would time out, and the next attempt too: a large transaction would never be committed.
func TestPace_ExactlyOnceWaitsBetweenTransactions(t *testing.T) {
	x := newSetup(t)
	l := &ledger{}
	x.exactlyOnce(l)
	limiter := x.limit(slow)
	x.cfg.InFlightMessages = 4 // less than a transaction has
	x.slowly(1, 10)
	x.slowly(11, 20)
	r := x.run()
	r.waiting(10)
	require.Len(t, l.seen(), 1, "the first transaction is committed")
	require.Equal(t, 10, strings.Count(l.seen()[0], "event"))
	require.Equal(t, l.stored.LSN, r.State().AckedLSN)
	limiter.Set(ratelimit.Rate{}, nil)
	require.NoError(t, x.broker.WaitFor(x.ctx, 20))
	require.Eventually(t, func() bool { return len(l.seen()) == 2 }, patience, time.Millisecond)
	r.stop()
	require.NoError(t, r.end())
	require.Equal(t, events(1, 20), x.trimmed())
}

// published is a sink whose topics have the first nine rows already.
type published struct{ sink.Sink }

func (published) Published(_ context.Context, _ sink.Source, m *sink.Message) (bool, error) {
	return len(m.Value) == len("event 1"), nil
}

func TestPace_CountsNoSkippedRow(t *testing.T) {
	x := newSetup(t)
	x.cfg.Dedup = relay.DedupTail
	x.parts.Broker.OpenSink = func(ctx context.Context, done sink.Done) (sink.Sink, error) {
		s, err := x.broker.Open(ctx, done)
		return published{s}, err
	}
	x.limit(ratelimit.Rate{Rows: 1_000_000})
	x.insert(1, 20)
	r := x.run()
	require.NoError(t, x.broker.WaitFor(x.ctx, 11))
	r.stop()
	require.NoError(t, r.end())
	require.Equal(t, events(10, 20), x.payloads())
	require.EqualValues(t, 11, r.State().Rate.Messages)
}
