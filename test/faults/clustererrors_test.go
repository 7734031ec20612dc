package faults

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/postrider/postrider/test/parts"
)

// onEach runs a test on one broker and, in the full form, on a cluster. Nodes are its brokers.
func onEach(t *testing.T, one func(testing.TB) *parts.Broker, test func(t *testing.T, place string, r *rig, nodes []*parts.Broker)) {
	t.Helper()
	t.Run("one broker", func(t *testing.T) {
		t.Parallel()
		broker := one(t)
		test(t, "one broker", newRig(t, server(t, parts.AnyVersion), broker), []*parts.Broker{broker})
	})
	if *long {
		t.Run("cluster", func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, nil)
			test(t, "cluster", c.rig, c.kafka.Nodes)
		})
	}
}

// set changes a setting of a topic.
func (c *cluster) set(t testing.TB, topic, key, value string) {
	t.Helper()
	answers, err := kadm.NewClient(c.kafka.Client(t)).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: key, Value: &value}}, topic)
	require.NoError(t, err)
	for _, answer := range answers {
		require.NoError(t, answer.Err)
	}
}

// While a replica is paused the brokers answer REQUEST_TIMED_OUT, since produce_timeout is shorter than what they grant the replica, then
// NOT_ENOUGH_REPLICAS_AFTER_APPEND and NOT_ENOUGH_REPLICAS.
func TestFault17_TooFewReplicasRepeatNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t, map[string]string{"replica.lag.time.max.ms": "3000"})
	c.settings["sink.kafka.produce_timeout"], c.settings["sink.kafka.read_timeout"] = `"1s"`, `"4s"`
	c.set(t, c.outbox(), "min.insync.replicas", "3")
	p := c.started(t)
	l := c.load(t, rate())
	times := full(t, 1, 10)
	for round := range times {
		l.more(t, 300)
		follower := c.kafka.Nodes[(c.kafka.Controller(t)+1+round%2)%3]
		follower.Pause(t)
		eventually(t, time.Minute, "too few replicas in sync", func() bool {
			p.requireRunning(t)
			for _, of := range c.kafka.State(t, c.outbox()) {
				if len(of.ISR) < 3 {
					return true
				}
			}
			return false
		})
		eventually(t, time.Minute, "the status names the partition", func() bool {
			status, _ := p.get("/status")
			return strings.Contains(string(status), "has acknowledged nothing for") && strings.Contains(string(status), "--under-min-isr-partitions")
		})
		l.more(t, 300)
		follower.Resume(t)
		c.kafka.AwaitInSync(t, c.outbox())
		l.more(t, 300)
	}
	l.end(t)
	c.drained(t, time.Minute)
	sessions := p.ask().Relay.Sessions
	p.stop(t)
	requireExact(t, c.judge(t))
	require.Equal(t, 1, sessions)
	matrix(t, 17, "cluster, a replica paused", fmt.Sprintf("%d times, one session", times))
}

// The user of the relay is denied its topic.
func (c *cluster) deny(t testing.TB) (permit func()) {
	t.Helper()
	admin := kadm.NewClient(c.kafka.Client(t))
	denied := kadm.NewACLs().Deny("User:" + parts.ClusterUser).DenyHosts("*").Topics(c.outbox()).ResourcePatternType(kadm.ACLPatternLiteral).
		Operations(kadm.OpWrite)
	_, err := admin.CreateACLs(t.Context(), denied)
	require.NoError(t, err)
	return func() {
		_, err = admin.DeleteACLs(t.Context(), denied)
		require.NoError(t, err)
	}
}
