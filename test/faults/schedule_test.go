package faults

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts"
)

var soak = flag.Duration("soak", 0, "how long TestSchedule_RandomFaults goes on, in place of a number of faults")

// scene is what the faults of a schedule strike at.
type scene struct {
	t        *testing.T
	r        *rig
	p        *process
	l        *load
	pg       *embedded.Postgres
	broker   *parts.Broker
	kafka    *parts.Proxy
	database *parts.Proxy
	random   *rand.Rand
}

// pause lets the load go on for up to a second.
func (s *scene) pause() {
	during(time.Duration(s.random.IntN(1000))*time.Millisecond, func() {})
}

// faultsOfASchedule leave everything running, or about to.
var faultsOfASchedule = []struct {
	name   string
	strike func(s *scene)
}{
	{"relay killed", func(s *scene) { s.p.Kill(s.t); s.p = s.r.start(s.t) }},
	{"relay stopped", func(s *scene) {
		s.p.signal(s.t, syscall.SIGTERM)
		code := s.p.Wait(s.t)
		require.Contains(s.t, []int{0, 75}, code, "exit code") // 75 where the broker or the server was not back yet
		s.p = s.r.start(s.t)
	}},
	{"relay frozen", func(s *scene) {
		s.p.signal(s.t, syscall.SIGSTOP)
		s.pause()
		s.p.signal(s.t, syscall.SIGCONT)
	}},
	{"relay frozen for longer than wal_sender_timeout", func(s *scene) {
		s.p.signal(s.t, syscall.SIGSTOP)
		during(16*time.Second, func() {})
		s.p.signal(s.t, syscall.SIGCONT)
	}},
	{"broker killed", func(s *scene) { s.broker.Kill(s.t); s.pause(); s.broker.Restart(s.t) }},
	{"broker frozen", func(s *scene) { s.broker.Pause(s.t); s.pause(); s.pause(); s.broker.Resume(s.t) }},
	{"connections to the broker cut", func(s *scene) { s.kafka.Cut() }},
	{"broker refuses", func(s *scene) { s.kafka.Refuse(); s.pause(); s.kafka.Resume() }},
	{"answers of the broker lost", func(s *scene) { s.kafka.Mute(); s.pause(); s.kafka.Cut(); s.kafka.Resume() }},
	{"a share of the writes lost", func(s *scene) { s.kafka.Lose(0.05, s.random.Uint64()); s.pause(); s.kafka.Lose(0, 0) }},
	{"slow broker", func(s *scene) { s.kafka.Delay(50 * time.Millisecond); s.pause(); s.kafka.Delay(0) }},
	{"server killed", func(s *scene) {
		require.NoError(s.t, s.pg.Kill())
		s.pause()
		require.NoError(s.t, s.pg.Start(s.t.Context()))
	}},
	{"server restarted", func(s *scene) {
		fastStop(s.t, s.pg, "in a schedule")
		s.pause()
		require.NoError(s.t, s.pg.Start(s.t.Context()))
	}},
	{"walsender terminated", func(s *scene) {
		execute(s.t, s.r.dsn, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active_pid IS NOT NULL")
	}},
	{"connections to the server cut", func(s *scene) { s.database.Cut() }},
	{"connections to the server forgotten", func(s *scene) { s.database.Forget() }},
	{"slow server", func(s *scene) { s.database.Delay(50 * time.Millisecond); s.pause(); s.database.Delay(0) }},
	{"checkpoint", func(s *scene) { execute(s.t, s.r.dsn, "CHECKPOINT") }},
}

// TestSchedule_RandomFaults strikes with one fault after the other, chosen at random, while writers go on, and sometimes before the last one has been got
// over. -seed repeats the choices; how fast the machine was is not repeated.
func TestSchedule_RandomFaults(t *testing.T) {
	t.Parallel()
	s := &scene{t: t, random: random(t, 0)}
	s.broker = parts.ExclusiveKafka(t, parts.KafkaConfig{ThroughProxy: true, Properties: map[string]string{
		"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}})
	s.kafka = s.broker.Proxy
	s.pg = parts.ExclusivePostgres(t, embedded.PostgresConfig{})
	s.r = newRig(t, s.pg.DSN(), s.broker)
	s.database = s.r.through(t)
	s.p = s.r.started(t)
	s.l = s.r.load(t, 100)

	t.Logf("go test ./test/faults -run TestSchedule -seed %d", *seed)
	n, began := full(t, 6, 200), time.Now()
	var done []string
	for i := 0; (*soak == 0 && i < n) || time.Since(began) < *soak; i++ {
		s.l.more(t, s.random.Int64N(400))
		if s.random.IntN(4) > 0 {
			s.p.streams(t, 2*time.Minute)
		}
		fault := faultsOfASchedule[s.random.IntN(len(faultsOfASchedule))]
		t.Logf("%7.1f s  %3d  %s", time.Since(began).Seconds(), i+1, fault.name)
		done = append(done, fault.name)
		fault.strike(s)
	}
	s.l.end(t)
	s.r.drained(t, 3*time.Minute)
	s.p.stop(t)
	v := s.r.judge(t)
	require.Zero(t, v.Lost, "lost")
	require.Zero(t, v.OutOfOrder, "out of order")
	require.Zero(t, v.Phantom, "published and never committed")
	require.Zero(t, v.Partial, "repetitions that end too soon")
	t.Logf("seed %d, %d faults: %d events, %d repeated: %s", *seed, len(done), v.Written, v.Duplicated, strings.Join(done, ", "))
	recorder.with(t, func(o *outcome) { o.figures = append(o.figures, fmt.Sprintf("%d faults at random", len(done))) })
}
