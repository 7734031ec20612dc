package faults

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/postrider/postrider/test/parts"
)

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
