package faults

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/test/parts"
)

// cluster is a rig on three brokers, with a plain producer beside the relay: an idempotent one with the client's defaults, whose topic has its
// partitions on the same brokers.
type cluster struct {
	*rig
	kafka *parts.KafkaCluster
	plain string // topic
}

func newCluster(t testing.TB, properties map[string]string) *cluster {
	t.Helper()
	c := &cluster{kafka: parts.StartKafkaCluster(t, parts.KafkaConfig{ThroughProxy: true, Properties: properties}), plain: parts.Unique("plain")}
	c.rig = newRig(t, server(t, parts.AnyVersion), c.kafka.Broker)
	for key, value := range map[string]string{
		"sink.kafka.tls.enabled": "true", "sink.kafka.tls.ca_file": quote(c.kafka.CAFile), "sink.kafka.sasl.mechanism": `"SCRAM-SHA-256"`,
		"sink.kafka.sasl.username": quote(parts.ClusterUser), "sink.kafka.sasl.password": quote(parts.ClusterPassword),
	} {
		c.settings[key] = value
	}
	c.kafka.CreateTopic(t, c.plain, partitions, nil)
	same := map[int32][]int32{}
	for number, p := range c.kafka.State(t, c.outbox()) {
		same[number] = p.Replicas
	}
	c.kafka.Reassign(t, c.plain, same)
	c.kafka.AwaitInSync(t, c.outbox(), c.plain)
	return c
}

func (c *cluster) outbox() string { return "outbox.event." + c.topic }

// produce writes to every partition of the plain topic until ctx ends.
func (c *cluster) produce(ctx context.Context, t testing.TB) {
	t.Helper()
	ca, err := os.ReadFile(c.kafka.CAFile)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(ca))
	client, err := kgo.NewClient(kgo.SeedBrokers(c.kafka.Brokers()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.DialTLSConfig(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}), kgo.DisableClientMetrics(),
		kgo.SASL(scram.Auth{User: parts.ClusterUser, Pass: parts.ClusterPassword}.AsSha256Mechanism()))
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				client.Close()
				return
			case <-tick.C:
				for p := range int32(partitions) {
					client.TryProduce(ctx, &kgo.Record{Topic: c.plain, Partition: p, Value: make([]byte, 200)}, nil)
				}
			}
		}
	})
	t.Cleanup(wg.Wait)
}

// deliveries notes when consumers can see more of each partition. It asks every broker for the high watermarks, and does not
// consume: a consumer takes up to a second to find the next leader.
type deliveries struct {
	mu      sync.Mutex
	seen    map[string]map[int32]int64 // offset
	last    map[string]map[int32]time.Time
	longest map[string]map[int32]time.Duration
}

// deliveries looks at both topics until ctx ends.
func (c *cluster) deliveries(ctx context.Context, t testing.TB) *deliveries {
	t.Helper()
	d := &deliveries{seen: map[string]map[int32]int64{}, last: map[string]map[int32]time.Time{}, longest: map[string]map[int32]time.Duration{}}
	for _, topic := range []string{c.outbox(), c.plain} {
		d.seen[topic], d.last[topic], d.longest[topic] = map[int32]int64{}, map[int32]time.Time{}, map[int32]time.Duration{}
	}
	request := parts.EndsRequest(partitions, c.outbox(), c.plain)
	client := c.kafka.Client(t, kgo.DialTimeout(time.Second))
	var wg sync.WaitGroup
	for node := range c.kafka.Nodes {
		broker := client.Broker(node + 1)
		wg.Go(func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				<-tick.C
				timed, cancel := context.WithTimeout(ctx, time.Second)
				if answer, err := broker.Request(timed, request); err == nil {
					d.take(answer.(*kmsg.ListOffsetsResponse))
				}
				cancel()
			}
		})
	}
	t.Cleanup(wg.Wait)
	return d
}

func (d *deliveries) take(answer *kmsg.ListOffsetsResponse) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	for _, of := range answer.Topics {
		for _, p := range of.Partitions {
			if p.ErrorCode != 0 || p.Offset <= d.seen[of.Topic][p.Partition] {
				continue
			}
			d.seen[of.Topic][p.Partition] = p.Offset
			if last, known := d.last[of.Topic][p.Partition]; known {
				d.longest[of.Topic][p.Partition] = max(d.longest[of.Topic][p.Partition], now.Sub(last))
			}
			d.last[of.Topic][p.Partition] = now
		}
	}
}

// pauses returns the longest time without a delivery of each partition since the last call.
func (d *deliveries) pauses(topic string) (by []time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range slices.Sorted(maps.Keys(d.last[topic])) {
		by = append(by, max(d.longest[topic][p], time.Since(d.last[topic][p])))
		d.longest[topic][p] = 0
	}
	return by
}

// slower returns the partition whose relay paused the longest beyond the plain producer, and both times. It begins anew.
func (c *cluster) slower(d *deliveries) (relay, plain time.Duration) {
	ours, theirs := d.pauses(c.outbox()), d.pauses(c.plain)
	for p := range min(len(ours), len(theirs)) {
		if p == 0 || ours[p]-theirs[p] > relay-plain {
			relay, plain = ours[p], theirs[p]
		}
	}
	return relay, plain
}

// pausesBeside is what a fault of the cluster cost the relay and the plain producer.
type pausesBeside struct{ relay, plain time.Duration }

// requireNoLonger is the bar of the full form: no partition waits for more than a second longer than with a plain producer.
func requireNoLonger(t testing.TB, what string, all []pausesBeside) string {
	t.Helper()
	worst := slices.MaxFunc(all, func(a, b pausesBeside) int { return cmp.Compare(a.relay-a.plain, b.relay-b.plain) })
	text := fmt.Sprintf("%s: without a delivery for at most %s, a plain producer %s", what, seconds(worst.relay), seconds(worst.plain))
	if *long {
		require.LessOrEqual(t, worst.relay, worst.plain+time.Second, text)
	}
	return text
}

// Restarts, kills, moved and elected leaders, brokers that come and go: nothing that the cluster survives may cost a row.
func TestFault46_AClusterInMotionLosesNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	p := c.started(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.produce(ctx, t)
	l := c.load(t, rate())
	l.more(t, 500)
	d := c.deliveries(ctx, t)
	var said []string
	strike := func(what string, times int, fault func(round int)) {
		var all []pausesBeside
		for round := range times {
			l.more(t, 500)
			c.slower(d) // from here on
			fault(round)
			c.kafka.AwaitInSync(t, c.outbox(), c.plain)
			l.more(t, 500)
			relay, plain := c.slower(d)
			all = append(all, pausesBeside{relay, plain})
			p.requireRunning(t)
		}
		if times == 0 {
			return
		}
		said = append(said, requireNoLonger(t, what, all))
		t.Log(said[len(said)-1])
	}
	// The short form stops and kills the controller, the full form each broker.
	node := func(round int) *parts.Broker {
		if *long {
			return c.kafka.Nodes[round%3]
		}
		return c.kafka.Nodes[c.kafka.Controller(t)]
	}
	before, moves := c.kafka.Controller(t), 0
	moved := func() {
		if now := c.kafka.Controller(t); now != before {
			before = now
			moves++
		}
	}
	strike("restarts", full(t, 1, 6), func(round int) {
		n := node(round)
		n.Stop(t)
		moved()
		l.more(t, 500)
		n.Restart(t)
	})
	strike("kills", full(t, 1, 6), func(round int) {
		n := node(round)
		n.Kill(t)
		l.more(t, 500)
		moved()
		n.Restart(t)
	})
	strike("kills with an immediate restart", full(t, 0, 4), func(round int) {
		n := node(round)
		n.Kill(t)
		n.Restart(t)
	})
	strike("replicas reassigned", full(t, 1, 10), func(int) {
		for _, topic := range []string{c.outbox(), c.plain} {
			c.kafka.Reassign(t, topic, c.rotated(t, topic))
		}
	})
	strike("preferred leaders elected", full(t, 1, 10), func(int) {
		for _, topic := range []string{c.outbox(), c.plain} {
			c.kafka.Elect(t, kadm.ElectPreferredReplica, topic)
		}
	})
	strike("all brokers down", full(t, 0, 3), func(int) {
		for _, n := range c.kafka.Nodes {
			n.Kill(t)
		}
		l.more(t, 500)
		for _, n := range c.kafka.Nodes {
			n.Launch(t)
		}
	})
	strike("connections cut", full(t, 5, 100), func(int) {
		for _, n := range c.kafka.Nodes {
			n.Proxy.Cut()
		}
	})
	require.Positive(t, moves, "the controller did not move")
	l.end(t)
	c.drained(t, time.Minute)
	sessions := p.ask().Relay.Sessions
	p.stop(t)
	requireExact(t, c.judge(t))
	require.Equal(t, 1, sessions)
	matrix(t, 46, "", fmt.Sprintf("one session; the controller moved %d times; %s", moves, strings.Join(said, "; ")))
}

// Brokers that are added and removed, one with a full disk, an unclean election, and more partitions in mid-stream.
func TestFault46_BrokersThatComeAndGoLoseNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	dir := ""
	if *long {
		dir, _ = smallDisk(t, 256)
	}
	p := c.started(t)
	l := c.load(t, rate())
	l.more(t, 500)

	added := c.kafka.Add(t, dir)
	move := func(nodes ...int32) {
		c.kafka.Reassign(t, c.outbox(), c.on(t, c.outbox(), nodes...))
		c.kafka.Elect(t, kadm.ElectPreferredReplica, c.outbox())
		c.kafka.AwaitInSync(t, c.outbox())
		l.more(t, 500)
	}
	leads := func(node int32) func() bool {
		return func() bool {
			state := slices.Collect(maps.Values(c.kafka.State(t, c.outbox())))
			return len(state) > 0 && !slices.ContainsFunc(state, func(p parts.Partition) bool { return p.Leader != node })
		}
	}
	move(4, 1, 2)
	eventually(t, time.Minute, "the added broker leads", leads(4))

	if *long {
		c.fullDisk(t, added, dir, l)
		move(3, 4)
		c.unclean(t, added, l)
		eventually(t, time.Minute, "4 leads after an unclean election", func() bool {
			c.kafka.Elect(t, kadm.ElectLiveReplica, c.outbox())
			return leads(4)()
		})
		c.kafka.Nodes[2].Restart(t)
		c.kafka.AwaitInSync(t, c.outbox())
	}

	c.grown = true
	c.kafka.AddPartitions(t, c.outbox(), 2*partitions)
	move(1, 2, 3)
	added.Stop(t) // for good; the relay finds the new partitions while it looks for the leaders
	l.more(t, 1000)
	l.end(t)
	c.drained(t, time.Minute)
	sessions := p.ask().Relay.Sessions
	p.stop(t)
	v := c.judge(t)
	requireNothingLost(t, v)
	if sessions == 1 {
		require.Zero(t, v.Duplicated)
	}
	faults := "a broker added and removed"
	if *long {
		faults += ", its disk full, an unclean election"
	}
	matrix(t, 46, "", fmt.Sprintf("%s, %d partitions added: %d sessions", faults, partitions, sessions))
}

// fullDisk has the broker with its data in dir end for want of space, and gives it space again.
func (c *cluster) fullDisk(t testing.TB, broker *parts.Broker, dir string, l *load) {
	t.Helper()
	filler := filepath.Join(dir, "filler")
	fill(t, filler)
	l.more(t, 500) // its followers go on without it
	eventually(t, time.Minute, "the broker without space ends", func() bool { return !broker.Running() })
	require.NoError(t, os.Remove(filler))
	broker.Restart(t)
}

// unclean leaves all partitions, which are on 3 and on another broker, without a leader: 3, which has appended more than the other, is
// down. All that is acknowledged is on both.
func (c *cluster) unclean(t testing.TB, other *parts.Broker, l *load) {
	t.Helper()
	other.Kill(t)
	eventually(t, time.Minute, "3 is the only one in sync", func() bool {
		for _, p := range c.kafka.State(t, c.outbox()) {
			if len(p.ISR) != 1 {
				return false
			}
		}
		return true
	})
	l.more(t, 500)
	c.kafka.Nodes[2].Kill(t)
	other.Restart(t)
}

// fill writes a file until the file system is full.
func fill(t testing.TB, path string) {
	t.Helper()
	file, err := os.Create(path)
	require.NoError(t, err)
	defer file.Close()
	for err == nil {
		_, err = file.Write(make([]byte, 1<<20))
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
}

// rotated makes the second replica of each partition of a topic the first.
func (c *cluster) rotated(t testing.TB, topic string) map[int32][]int32 {
	t.Helper()
	next := map[int32][]int32{}
	for number, p := range c.kafka.State(t, topic) {
		next[number] = append(slices.Clone(p.Replicas[1:]), p.Replicas[0])
	}
	return next
}

// on gives every partition of a topic these replicas.
func (c *cluster) on(t testing.TB, topic string, nodes ...int32) map[int32][]int32 {
	t.Helper()
	next := map[int32][]int32{}
	for number := range c.kafka.State(t, topic) {
		next[number] = nodes
	}
	return next
}

// A third of the partitions has its replicas on one broker, which is killed.
func TestFault47_PartitionsWithoutALeaderStopNoOther(t *testing.T) {
	t.Parallel()
	modes := []string{"none", "tail"}
	if !*long {
		modes = modes[1:]
	}
	for _, name := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tail := name == "tail"
			c := newCluster(t, map[string]string{"min.insync.replicas": "1"})
			perSecond := rate()
			if *long { // the default limits, and 1,000 events a second
				delete(c.settings, "relay.in_flight_messages")
				perSecond = 220
			}
			if tail {
				c.dedup()
			}
			next := c.on(t, c.outbox(), 1, 2)
			for number := range int32(partitions / 3) {
				next[number] = []int32{3}
			}
			c.kafka.Reassign(t, c.outbox(), next)
			c.kafka.AwaitInSync(t, c.outbox())
			p := c.started(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			l := c.load(t, perSecond)
			l.more(t, 1000)
			d := c.deliveries(ctx, t)
			l.more(t, 500)

			c.kafka.Nodes[2].Kill(t)
			away := fullFor(t, 8*time.Second, time.Minute)
			began, memory, longest := time.Now(), p.rss(t), time.Duration(0)
			d.pauses(c.outbox())
			slowBefore, allBefore := p.slow(t)
			// More wait than may be in flight, so that the others went on.
			limit := inFlight
			if *long {
				limit = relay.DefaultConfig().InFlightMessages
			}
			eventually(t, time.Minute, "more messages wait than may be in flight", func() bool {
				for number, pause := range d.pauses(c.outbox()) {
					if number >= partitions/3 {
						longest = max(longest, pause)
					}
				}
				return time.Since(began) > away && p.ask().Relay.InFlight > limit
			})
			slow, all := p.slow(t)
			late := 100 * (slow - slowBefore) / (all - allBefore)
			published, waiting := p.ask().Relay.Published, p.ask().Relay.InFlight
			eventually(t, time.Minute, "the others go on", func() bool { return p.ask().Relay.Published > published+200 })
			grown := p.rss(t) - memory
			status, _ := p.get("/status")
			require.Contains(t, string(status), `"leaderless": true`)
			require.Contains(t, string(status), "--unavailable-partitions")
			if *long {
				require.Contains(t, string(status), "has no leader, and has acknowledged nothing for")
				require.Less(t, longest, time.Second, "the other partitions wait")
				require.LessOrEqual(t, late, 1.0, "percent of the others that took longer than a second")
			}
			published = p.ask().Relay.Published
			p.Kill(t)
			p = c.started(t)
			l.more(t, 500)
			c.kafka.Nodes[2].Restart(t)
			c.drained(t, time.Minute)
			l.end(t)
			c.drained(t, time.Minute)
			p.stop(t)
			v := c.judge(t)
			requireNothingLost(t, v)
			if tail {
				require.Zero(t, v.Duplicated)
			} else {
				require.Positive(t, v.Duplicated, "rows behind those that waited")
				require.LessOrEqual(t, v.Duplicated, int64(published)+repeats) //nolint:gosec // thousands
			}
			matrix(t, 47, "dedup "+name, fmt.Sprintf("%s without a leader: the others paused for %s at most, and %.1f %% of them took longer than a second; %d messages waited, and took %s; the kill repeated %d",
				away, seconds(longest), late, waiting, mib(grown), v.Duplicated))
		})
	}
}

// slow returns how many messages took longer than a second from the commit to the acknowledgement, and how many there were.
func (p *process) slow(t testing.TB) (slow, all float64) {
	t.Helper()
	body, _ := p.get("/metrics")
	quick := -1.0
	for line := range strings.Lines(string(body)) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.HasPrefix(series, "postrider_relay_commit_to_ack_seconds_") {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		require.NoError(t, err)
		switch {
		case strings.Contains(series, `le="1"`):
			quick = n
		case strings.Contains(series, "_count"):
			all = n
		}
	}
	require.GreaterOrEqual(t, quick, 0.0, "no bucket of a second")
	return all - quick, all
}

// Brokers are stopped or killed one after the other, and the relay is killed before, while or after one is away.
func TestFault48_ExactlyOnceOnAClusterInMotion(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.exactlyOnce(t)
	parts.Binary(t)
	reader := c.reader(t)
	l := c.load(t, rate())
	random := random(t, 1)
	kills := full(t, 3, 100)
	p := c.started(t)
	kill := func() {
		l.more(t, 1+random.Int64N(400))
		p.Kill(t)
		p = c.started(t)
	}
	for round := range kills {
		l.more(t, 300)
		n := c.kafka.Nodes[round%3]
		if round%3 == 0 {
			kill()
		}
		if round%2 == 0 {
			n.Kill(t)
		} else {
			n.Stop(t)
		}
		if round%3 == 1 {
			kill()
		}
		n.Restart(t)
		if round%3 == 2 {
			kill()
		}
		c.kafka.AwaitInSync(t, c.outbox(), "__transaction_state")
	}
	l.end(t)
	c.drained(t, 2*time.Minute)
	p.stop(t)
	reader.look(t)
	requireExact(t, c.judge(t))
	require.Zero(t, reader.torn, "rows of transactions that were seen in part")
	matrix(t, 48, "", fmt.Sprintf("%d brokers stopped or killed, as many kills of the relay, %d transactions, none seen in part", kills, len(reader.first)))
}
