package faults

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

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
			var status []byte
			eventually(t, time.Minute, "status names what has no leader", func() bool {
				status, _ = p.get("/status")
				return strings.Contains(string(status), `"leaderless": true`) &&
					strings.Contains(string(status), "--unavailable-partitions")
			})
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
	const took = "postrider_relay_commit_to_ack_seconds"
	metrics := p.metrics(t)
	quick, found := metrics.Sum(took+"_bucket", "le", "1")
	require.True(t, found, "no bucket of a second")
	all = metrics.Value(took + "_count")
	return all - quick, all
}
