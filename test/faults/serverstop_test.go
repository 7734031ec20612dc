package faults

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts"
)

// hung is how long a fast stop may take before the test calls it waiting for us. How fast it is, benchmarks measure; here it is logged.
const hung = 45 * time.Second

// backlogRows take the relay several seconds with the race detector.
const backlogRows = 40_000

// fastStop is pg_ctl stop -m fast.
func fastStop(t testing.TB, pg *embedded.Postgres, situation string) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hung)
	defer cancel()
	before := time.Now()
	require.NoError(t, pg.StopMode(ctx, embedded.Fast), "PostgreSQL waits for the relay: %s", situation)
	took := time.Since(before)
	t.Logf("fast stop, %s: %.2f s", situation, took.Seconds())
	return took
}

func TestFault05_ServerFastStopDoesNotWaitForUs(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"14", "17", "18"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			broker := parts.RealKafka(t)
			parts.Binary(t)
			pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: version})
			r := newRig(t, pg.DSN(), broker)
			delete(r.settings, "relay.backoff_max") // it is not what brings the relay back
			network := r.throughKafkaProxy(t)
			var stops times

			p := r.started(t)
			r.drained(t, 30*time.Second)
			stops = append(stops, fastStop(t, pg, "relay idle"))
			p.phase(t, "backing_off", 10*time.Second)
			require.False(t, p.ready(), "ready without a server")
			p.stop(t)

			require.NoError(t, pg.Start(t.Context()))
			p = r.started(t)
			l := r.load(t, 200)
			l.more(t, 500)
			stops = append(stops, fastStop(t, pg, "under load"))
			p.stop(t)

			require.NoError(t, pg.Start(t.Context()))
			p = r.started(t)
			l.more(t, 200)
			p.stall(t, network)
			p.full(t)
			l.more(t, 500)
			stops = append(stops, fastStop(t, pg, "Kafka down, rows in flight and more WAL pending"))
			p.stop(t)
			network.Resume()

			require.NoError(t, pg.Start(t.Context()))
			l.end(t)
			r.backlog(t, backlogRows)
			network.Delay(100 * time.Millisecond) // or a busy machine looks when all is published
			p = r.started(t)
			behind := currentLSN(t, r.dsn) - r.confirmed(t)
			require.Positive(t, behind, "the backlog is too small for this test")
			t.Logf("%.1f MiB behind", float64(behind)/(1<<20))
			stops = append(stops, fastStop(t, pg, "relay behind on a backlog"))
			network.Delay(0)
			p.stop(t)

			require.NoError(t, pg.Start(t.Context()))
			p = r.started(t)
			r.drained(t, time.Minute)
			p.stall(t, network)
			r.transaction(t, 10*inFlight)
			p.full(t)
			stops = append(stops, fastStop(t, pg, "Kafka down, in the middle of a transaction"))
			network.Resume()

			// This one comes back by itself.
			require.NoError(t, pg.Start(t.Context()))
			p.streams(t, time.Minute)
			r.drained(t, time.Minute)
			var fast, immediate, alone times
			for i := range full(t, 1, 5) {
				away := fullFor(t, 0, time.Duration(i)*3*time.Second)
				fast = append(fast, r.afterServer(t, pg, func() {
					stops = append(stops, fastStop(t, pg, "relay idle"))
					during(away, func() {})
				}))
				r.drained(t, time.Minute)
				if version != "18" && !*long {
					continue
				}
				immediate = append(immediate, r.afterServer(t, pg, func() {
					require.NoError(t, pg.StopMode(t.Context(), embedded.Immediate))
					during(away, func() {})
				}))
				r.drained(t, time.Minute)
				alone = append(alone, r.afterNetwork(t, network, func() {
					network.Refuse()
					fastStop(t, pg, "Kafka gone")
					require.NoError(t, pg.Start(t.Context()))
					eventually(t, time.Minute, "no session begins without a broker", func() bool { return p.ask().Relay.Reason == "broker_unreachable" })
					during(away, func() {})
				}))
				r.drained(t, time.Minute)
			}
			p.stop(t)
			requireNothingLost(t, r.judge(t))
			matrix(t, 5, "", fmt.Sprintf("the server stopped in %s; first row after it took connections: fast stop %s, immediate stop %s; after Kafka did, that was gone meanwhile: %s",
				stops, fast, immediate, alone))
			requireSoon(t, slices.Concat(fast, immediate, alone))
		})
	}
}

func TestFault06_ServerKill9LosesNothing(t *testing.T) {
	t.Parallel()
	broker := parts.RealKafka(t)
	parts.Binary(t)
	pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{})
	r := newRig(t, pg.DSN(), broker)
	p := r.started(t)
	l := r.load(t, rate())
	crashes, when := full(t, 3, 50), random(t, 100)
	var again times
	for range crashes {
		l.more(t, 1+when.Int64N(1000))
		before := p.ask().Relay.Sessions
		require.NoError(t, pg.Kill())
		require.NoError(t, pg.Start(t.Context()))
		began := time.Now()
		eventually(t, time.Minute, "relay streams again", func() bool {
			p.requireRunning(t)
			st := p.ask().Relay
			return st.Phase == "streaming" && st.Sessions > before
		})
		again = append(again, time.Since(began))
	}
	l.end(t)
	r.drained(t, time.Minute)
	p.stop(t)
	v := r.judge(t)
	requireNothingLost(t, v)
	matrix(t, 6, "", fmt.Sprintf("%d crashes, %.0f repeated by one on average, streams again: %s", crashes,
		float64(v.Duplicated)/float64(crashes), again))
}

func TestFault07_WalsenderTerminatedRecovers(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	p := r.started(t)
	l := r.load(t, 200)
	l.more(t, 300)
	goroutines := p.metric(t, "go_goroutines")
	ends := full(t, 3, 300)
	var again times
	for range ends {
		l.more(t, 300)
		before := r.walsender(t)
		require.Positive(t, before)
		require.True(t, query[bool](t, r.dsn, "SELECT pg_terminate_backend($1)", before))
		began := time.Now()
		eventually(t, 30*time.Second, "another walsender", func() bool {
			p.requireRunning(t)
			now := r.walsender(t)
			return now != 0 && now != before
		})
		again = append(again, time.Since(began))
	}
	l.end(t)
	r.drained(t, time.Minute)
	eventually(t, time.Minute, "no goroutine is left over", func() bool { return p.metric(t, "go_goroutines") < goroutines+20 })
	p.stop(t)
	v := r.judge(t)
	requireNothingLost(t, v)
	require.LessOrEqual(t, v.Duplicated, int64(ends)*repeats)
	matrix(t, 7, "", fmt.Sprintf("%d terminated, streams again: %s", ends, again))
}

func TestFault33_ServerIsNotTheSameStopsTheRelay(t *testing.T) {
	t.Parallel()
	broker := parts.RealKafka(t)
	parts.Binary(t)
	pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{OwnIdentity: true})
	r := newRig(t, pg.DSN(), broker)
	other := sameObjects(t, r, server(t, parts.AnyVersion))
	r.url = severalHosts(t, r.dsn, other)

	p := r.started(t)
	l := r.load(t, 100)
	l.more(t, 200)
	l.end(t)
	r.drained(t, time.Minute)
	require.NoError(t, pg.Kill())
	before := query[string](t, other, "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", r.slot)
	require.Equal(t, 70, p.Wait(t), "exit code")
	require.Contains(t, p.Log.String(), "system identifier is")
	require.Equal(t, before, query[string](t, other, "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", r.slot),
		"the slot of the other server has moved")
	require.NoError(t, pg.Start(t.Context()))
	requireNothingLost(t, r.judge(t))
}

// A server that was killed sends again all since the slot was last saved. With dedup "tail" the relay finds it in the topic.
func TestFault06_ServerKill9RepeatsNothingWithDedup(t *testing.T) {
	t.Parallel()
	broker := parts.RealKafka(t)
	parts.Binary(t)
	pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{})
	r := newRig(t, pg.DSN(), broker).dedup()
	p := r.started(t)
	l := r.load(t, rate())
	crashes, when := full(t, 2, 20), random(t, 100)
	for range crashes {
		l.more(t, 1+when.Int64N(1000))
		before := p.ask().Relay.Sessions
		require.NoError(t, pg.Kill())
		require.NoError(t, pg.Start(t.Context()))
		eventually(t, time.Minute, "relay streams again", func() bool {
			p.requireRunning(t)
			st := p.ask().Relay
			return st.Phase == "streaming" && st.Sessions > before
		})
	}
	l.end(t)
	r.drained(t, time.Minute)
	p.stop(t)
	requireExact(t, r.judge(t))
	matrix(t, 6, `dedup = "tail"`, fmt.Sprintf("%d crashes", crashes))
}
