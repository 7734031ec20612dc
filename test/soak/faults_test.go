package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/postrider/postrider/test/parts"
)

// scene is what the actions of a schedule change.
type scene struct {
	*servers
	victim  *relay
	witness *relay
	random  *rand.Rand
	changes int // of the schema
}

func (s *scene) topics() []string { return []string{s.victim.topic, s.witness.topic} }

// pause lets the load go on for up to d.
func (s *scene) pause(d time.Duration) {
	wait(s.t.Context(), time.Duration(s.random.Int64N(int64(d))))
}

// outage is a time without a server or broker: a moment, or minutes if there is time.
func (s *scene) outage(d time.Duration) {
	if long() {
		d = 10*time.Second + time.Duration(s.random.Int64N(int64(2*time.Minute)))
	}
	s.pause(d)
}

func (s *scene) node() *parts.Broker { return s.nodes[s.random.IntN(len(s.nodes))] }

// eachNode disturbs the network to all brokers, and undoes that after a while.
func (s *scene) eachNode(disturb, undo func(p *parts.Proxy)) {
	for _, node := range s.nodes {
		disturb(node.Proxy)
	}
	s.pause(time.Second)
	for _, node := range s.nodes {
		undo(node.Proxy)
	}
}

// networks are those to PostgreSQL: of one relay, or of both.
func (s *scene) networks() []*parts.Proxy {
	both := []*parts.Proxy{s.victim.network, s.witness.network}
	if n := s.random.IntN(3); n < 2 {
		return both[n : n+1]
	}
	return both
}

// eachNetwork is eachNode for the network to PostgreSQL.
func (s *scene) eachNetwork(disturb, undo func(p *parts.Proxy)) {
	networks := s.networks()
	for _, network := range networks {
		disturb(network)
	}
	s.pause(time.Second)
	for _, network := range networks {
		undo(network)
	}
}

func nothing(*parts.Proxy) {}

// action is a fault, or what an operator does. It leaves everything running, or about to.
type action struct {
	name   string
	strike func(s *scene)
}

// several are the actions that are more than one fault.
var several = map[string]int{
	"relay killed, and again":               2,
	"brokers restarted one after the other": 3,
}

var actions = slices.Concat(relayActions, brokerActions, serverActions, schemaActions)

// relayActions concern the victim.
var relayActions = []action{
	{"relay killed", func(s *scene) { s.victim.process().Kill(s.t); s.victim.start() }},
	{"relay killed, and again", func(s *scene) {
		s.victim.process().Kill(s.t)
		s.victim.start()
		s.pause(500 * time.Millisecond)
		s.victim.process().Kill(s.t)
		s.victim.start()
	}},
	{"relay stopped", func(s *scene) {
		s.victim.signal(syscall.SIGTERM)
		code := s.victim.process().Wait(s.t)
		// 75 where the broker or the server was not back yet
		require.Contains(s.t, []int{0, 75}, code, "exit code")
		s.victim.start()
	}},
	{"relay frozen", func(s *scene) {
		s.victim.signal(syscall.SIGSTOP)
		s.pause(time.Second)
		s.victim.signal(syscall.SIGCONT)
	}},
	{"relay paused and resumed", func(s *scene) {
		s.victim.await("streaming")
		s.victim.admin("pause", "--reason", "soak")
		s.pause(time.Second)
		s.victim.admin("resume")
	}},
	{"configuration reloaded", func(s *scene) {
		s.victim.settings["relay.max_rate"] = quote(fmt.Sprintf("%d rows/s", 2000+s.random.IntN(2000)))
		s.victim.configure()
		log := &s.victim.process().Log
		before := log.Count("configuration reloaded")
		s.victim.signal(syscall.SIGHUP)
		parts.Await(s.t, "a reload", func() (bool, error) {
			return log.Count("configuration reloaded") > before, nil
		})
	}},
	{"outbox pruned by hand", func(s *scene) {
		s.victim.await("streaming")
		code, printed := s.victim.command("prune")
		// 75 where the relay itself prunes, or the server or the broker was not back yet
		require.Contains(s.t, []int{0, 75}, code, printed)
	}},
}

// away has a broker be gone for up to so long.
func away(leave, back func(*parts.Broker, testing.TB), longest time.Duration) func(*scene) {
	return func(s *scene) {
		node := s.node()
		leave(node, s.t)
		s.pause(longest)
		back(node, s.t)
		s.settle(s.topics()...)
	}
}

// brokerActions concern one node, or the network to all of them.
var brokerActions = []action{
	{"broker killed", away((*parts.Broker).Kill, (*parts.Broker).Restart, time.Second)},
	{"broker restarted", away((*parts.Broker).Stop, (*parts.Broker).Restart, time.Second)},
	{"broker frozen", away((*parts.Broker).Pause, (*parts.Broker).Resume, 2*time.Second)},
	{"connections to the brokers cut", func(s *scene) { s.eachNode((*parts.Proxy).Cut, nothing) }},
	{"brokers refuse", func(s *scene) {
		s.eachNode((*parts.Proxy).Refuse, (*parts.Proxy).Resume)
	}},
	{"answers of the brokers lost", func(s *scene) {
		s.eachNode((*parts.Proxy).Mute, func(p *parts.Proxy) { p.Cut(); p.Resume() })
	}},
	{"a share of the writes lost", func(s *scene) {
		chosen := s.random.Uint64()
		s.eachNode(func(p *parts.Proxy) { p.Lose(0.05, chosen) },
			func(p *parts.Proxy) { p.Lose(0, 0) })
	}},
	{"slow brokers", func(s *scene) {
		s.eachNode(func(p *parts.Proxy) { p.Delay(50 * time.Millisecond) },
			func(p *parts.Proxy) { p.Delay(0) })
	}},
	{"partitions added", func(s *scene) {
		if s.doubled < 2 {
			s.double(s.topics()...)
		}
	}},
}

// serverActions concern PostgreSQL, or the network to it.
var serverActions = []action{
	{"server killed", func(s *scene) {
		require.NoError(s.t, s.postgres.Kill())
		s.pause(time.Second)
		s.startPostgres()
	}},
	{"server restarted", func(s *scene) {
		s.stopPostgres()
		s.pause(time.Second)
		s.startPostgres()
	}},
	{"walsenders terminated", func(s *scene) {
		s.execute(`SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots
			WHERE active_pid IS NOT NULL`)
	}},
	{"connections to the server cut", func(s *scene) {
		s.eachNetwork((*parts.Proxy).Cut, nothing)
	}},
	{"connections to the server forgotten", func(s *scene) {
		s.eachNetwork((*parts.Proxy).Forget, nothing)
	}},
	{"server out of reach", func(s *scene) {
		s.eachNetwork((*parts.Proxy).Refuse, (*parts.Proxy).Resume)
	}},
	{"slow server", func(s *scene) {
		s.eachNetwork(func(p *parts.Proxy) { p.Delay(50 * time.Millisecond) },
			func(p *parts.Proxy) { p.Delay(0) })
	}},
	{"checkpoint", func(s *scene) { s.execute("CHECKPOINT") }},
	{"transaction of another application stays open", func(s *scene) {
		conn := s.connect()
		defer conn.Close(context.Background())
		_, err := conn.Exec(s.t.Context(), "BEGIN; INSERT INTO others (note) VALUES ('open')")
		require.NoError(s.t, err)
		s.outage(2 * time.Second)
		_, err = conn.Exec(s.t.Context(), "COMMIT")
		require.NoError(s.t, err)
	}},
	{"rows of another application", func(s *scene) {
		s.execute(`INSERT INTO others (note) SELECT repeat('x', 200) FROM generate_series(1, 20000)`,
			"TRUNCATE others")
	}},
}

// schemaActions change the outbox under the relays.
var schemaActions = []action{
	{"column added and dropped", alter(
		"ALTER TABLE outbox ADD COLUMN extra_%d text NOT NULL DEFAULT 'constant'",
		"ALTER TABLE outbox DROP COLUMN extra_%d")},
	{"column added and dropped in one transaction", alter("BEGIN",
		"ALTER TABLE outbox ADD COLUMN extra_%d uuid DEFAULT gen_random_uuid()",
		"ALTER TABLE outbox DROP COLUMN extra_%d", "COMMIT")},
	{"type widened", alter(
		"ALTER TABLE outbox ADD COLUMN width_%d int DEFAULT 1",
		"ALTER TABLE outbox ALTER COLUMN width_%d TYPE bigint",
		"ALTER TABLE outbox DROP COLUMN width_%d")},
	{"index created and dropped", alter(
		"CREATE INDEX CONCURRENTLY extra_%d ON outbox (aggregate_id)", "DROP INDEX extra_%d")},
	{"VACUUM FULL", alter("VACUUM FULL outbox")},
	{"ANALYZE", alter("ANALYZE outbox")},
}

// alter runs statements one by one, in one session, with %d for the number of the change.
func alter(statements ...string) func(s *scene) {
	return func(s *scene) {
		s.changes++
		conn := s.connect()
		defer conn.Close(s.t.Context())
		for _, sql := range statements {
			if slices.Contains([]byte(sql), '%') {
				sql = fmt.Sprintf(sql, s.changes)
			}
			_, err := conn.Exec(s.t.Context(), sql)
			require.NoError(s.t, err, sql)
			s.pause(200 * time.Millisecond)
		}
	}
}

// clusterActions take three brokers, and time.
var clusterActions = []action{
	{"brokers restarted one after the other", func(s *scene) {
		for _, node := range s.nodes {
			node.Stop(s.t)
			s.pause(5 * time.Second)
			node.Restart(s.t)
			s.settle(s.topics()...)
		}
	}},
	{"controller killed", func(s *scene) {
		node := s.nodes[s.cluster.Controller(s.t)]
		node.Kill(s.t)
		s.pause(5 * time.Second)
		node.Restart(s.t)
		s.settle(s.topics()...)
	}},
	{"replicas reassigned", func(s *scene) {
		for _, topic := range s.topics() {
			next := map[int32][]int32{}
			for number, p := range s.cluster.State(s.t, topic) {
				next[number] = append(slices.Clone(p.Replicas[1:]), p.Replicas[0])
			}
			s.cluster.Reassign(s.t, topic, next)
		}
		s.settle(s.topics()...)
	}},
	{"preferred leaders elected", func(s *scene) {
		for _, topic := range s.topics() {
			s.cluster.Elect(s.t, kadm.ElectPreferredReplica, topic)
		}
		s.settle(s.topics()...)
	}},
	{"all brokers down", func(s *scene) {
		for _, node := range s.nodes {
			node.Kill(s.t)
		}
		s.outage(time.Second)
		for _, node := range s.nodes {
			node.Launch(s.t)
		}
		s.settle(s.topics()...)
	}},
	{"no broker within reach", func(s *scene) {
		for _, node := range s.nodes {
			node.Proxy.Refuse()
		}
		s.outage(time.Second)
		for _, node := range s.nodes {
			node.Proxy.Resume()
		}
	}},
	{"server down", func(s *scene) {
		s.stopPostgres()
		s.outage(time.Second)
		s.startPostgres()
	}},
	{"relay frozen for longer than wal_sender_timeout", func(s *scene) {
		s.victim.signal(syscall.SIGSTOP)
		wait(s.t.Context(), 16*time.Second)
		s.victim.signal(syscall.SIGCONT)
	}},
	{"relay paused for a long time", func(s *scene) {
		s.victim.await("streaming")
		s.victim.admin("pause", "--reason", "soak")
		s.outage(time.Second)
		s.victim.admin("resume")
	}},
}

// deck deals all actions in a random order, again and again, so that hours have each often.
type deck struct {
	random *rand.Rand
	all    []action
	left   []action
}

func newDeck(random *rand.Rand) *deck {
	d := &deck{random: random, all: slices.Clone(actions)}
	if long() {
		d.all = append(d.all, clusterActions...)
	}
	return d
}

func (d *deck) next() action {
	if len(d.left) == 0 {
		d.left = slices.Clone(d.all)
		d.random.Shuffle(len(d.left), func(i, j int) { d.left[i], d.left[j] = d.left[j], d.left[i] })
	}
	next := d.left[0]
	d.left = d.left[1:]
	return next
}

func TestDeck_DealsEveryActionOnceBeforeItBeginsAgain(t *testing.T) {
	t.Parallel()
	d := newDeck(random(1))
	for range 3 {
		dealt := map[string]int{}
		for range d.all {
			dealt[d.next().name]++
		}
		require.Len(t, dealt, len(d.all), "names are unique, and each is dealt once: %v", dealt)
	}
}
