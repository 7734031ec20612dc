package faults

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// stalledMemory is what relay.stalled_bytes, 64 MiB, may add to the resident memory: Go collects garbage when there is a third more.
const stalledMemory = 96.0 * (1 << 20)

func TestFault15_BrokerStallKeepsTheReplicationConnection(t *testing.T) {
	t.Parallel()
	stall := fullFor(t, 20*time.Second, 2*time.Minute) // longer than wal_sender_timeout, which the relay sets to 15 s
	broker := parts.ExclusiveKafka(t, parts.KafkaConfig{})
	r := newRig(t, server(t, parts.AnyVersion), broker)
	p := r.started(t)
	l := r.load(t, 200)
	l.more(t, 2000)
	pid, before, highest := r.walsender(t), p.rss(t), 0.0

	broker.Pause(t)
	p.full(t)
	filled := p.rss(t)
	during(stall, func() {
		p.requireRunning(t)
		highest = max(highest, p.rss(t))
		_, answer := p.get("/readyz")
		require.NotEqual(t, http.StatusServiceUnavailable, answer, "a stalled broker is no reason to be restarted")
	})
	require.Equal(t, pid, r.walsender(t), "walsender")
	broker.Resume(t)
	l.end(t)

	r.drained(t, 2*time.Minute)
	require.Equal(t, pid, r.walsender(t), "walsender")
	require.Equal(t, 1, p.ask().Relay.Sessions)
	after := p.rss(t)
	require.Less(t, highest-filled, stalledMemory, "memory grows while the broker stalls")
	p.stop(t)
	requireExact(t, r.judge(t))
	matrix(t, 15, fmt.Sprintf("broker stalled for %s", stall), fmt.Sprintf("memory %s before, %s with the window full, at most %s, %s after",
		mib(before), mib(filled), mib(highest), mib(after)))
}

// TestFault15_BrokerDownKeepsTheReplicationConnection is about a broker that is gone, and writers that go on: the WAL is the buffer.
func TestFault15_BrokerDownKeepsTheReplicationConnection(t *testing.T) {
	t.Parallel()
	onEach(t, lasting, func(t *testing.T, place string, r *rig, nodes []*parts.Broker) {
		r.settings["sink.kafka.delivery_timeout"] = `"20m"` // or the session ends after 5 minutes, which is another matter
		p := r.started(t)
		l := r.load(t, rate())
		l.more(t, 1000)
		pid := r.walsender(t)

		down := fullFor(t, 5*time.Second, 10*time.Minute)
		for _, n := range nodes {
			n.Kill(t)
		}
		p.full(t)
		filled, highest, before := p.rss(t), 0.0, l.committed.Load()
		during(down, func() {
			p.requireRunning(t)
			highest = max(highest, p.rss(t))
		})
		written := l.committed.Load() - before
		require.Equal(t, pid, r.walsender(t), "walsender")
		retained := float64(currentLSN(t, r.dsn) - r.confirmed(t))
		for _, n := range nodes[1:] {
			n.Launch(t)
		}
		nodes[0].Restart(t)
		back := r.caughtUp(t)
		l.end(t)
		r.drained(t, time.Minute)
		require.Equal(t, pid, r.walsender(t), "walsender")
		p.stop(t)
		v := r.judge(t)
		requireExact(t, v)
		require.Less(t, highest-filled, stalledMemory, "memory grows while the broker is down")
		matrix(t, 15, fmt.Sprintf("%s down for %s", place, down), fmt.Sprintf("%d events written meanwhile (%.0f/s), %s of WAL kept, caught up in %.1f s (%.0f/s); memory %s with the window full, at most %s",
			written, float64(written)/down.Seconds(), mib(retained), back.Seconds(), float64(written)/back.Seconds(), mib(filled), mib(highest)))
	})
}

// lasting is a broker of the test's own. One that comes back after a crash waits for its former self to be declared dead.
func lasting(t testing.TB) *parts.Broker {
	t.Helper()
	return parts.ExclusiveKafka(t, parts.KafkaConfig{Properties: map[string]string{
		"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}})
}

func TestFault14_BrokerRestartLosesNothing(t *testing.T) {
	t.Parallel()
	broker := lasting(t)
	r := newRig(t, server(t, parts.AnyVersion), broker)
	p := r.started(t)
	l := r.load(t, 200)
	crashes := full(t, 3, 30)
	var again times
	for range crashes {
		l.more(t, 500)
		again = append(again, r.afterBroker(t, func() {
			broker.Kill(t)
			l.more(t, 300)
			p.requireRunning(t)
		}))
	}
	l.end(t)
	r.drained(t, 2*time.Minute)
	sessions := p.ask().Relay.Sessions
	p.stop(t)
	v := r.judge(t)
	requireNothingLost(t, v)
	matrix(t, 14, "", fmt.Sprintf("%d crashes, %d sessions; first row after the partitions had leaders: %s", crashes, sessions, again))
	require.LessOrEqual(t, v.Duplicated, int64(sessions-1)*repeats)
	requireSoon(t, again)
}

func TestFault16_ConnectionCutsLoseNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	kafka, postgres := r.throughKafkaProxy(t), r.through(t)
	p := r.started(t)
	l := r.load(t, 200)
	for range full(t, 3, 30) {
		for range 5 {
			l.more(t, 100)
			kafka.Cut()
		}
		l.more(t, 100)
		kafka.Refuse()
		l.more(t, 300)
		kafka.Resume()
		l.more(t, 100)
		postgres.Cut()
		l.more(t, 300)
		postgres.Refuse()
		l.more(t, 300)
		postgres.Resume()
		p.streams(t, 30*time.Second)
	}
	l.end(t)
	r.drained(t, 2*time.Minute)
	sessions := p.ask().Relay.Sessions
	p.stop(t)
	v := r.judge(t)
	requireNothingLost(t, v)
	matrix(t, 16, "", fmt.Sprintf("%d sessions", sessions))
	require.LessOrEqual(t, v.Duplicated, int64(sessions-1)*repeats)
}
