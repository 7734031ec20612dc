package faults

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts"
)

// names waits until the status names the topic that is waited for.
func (p *process) names(t testing.TB, topic string) {
	t.Helper()
	eventually(t, time.Minute, "the status names topic "+topic, func() bool {
		p.requireRunning(t)
		body, _ := p.get("/status")
		return strings.Contains(string(body), topic)
	})
}

func TestFault19_ATopicThatIsMissingIsWaitedFor(t *testing.T) {
	t.Parallel()
	onEach(t, parts.RealKafka, func(t *testing.T, place string, r *rig, _ []*parts.Broker) {
		topic := "outbox.event." + r.topic
		r.broker.DeleteTopic(t, topic)
		p := r.started(t)
		for _, when := range []string{"missing from the start", "deleted in mid-stream"} {
			if when == "deleted in mid-stream" {
				r.receive(t)
				r.broker.DeleteTopic(t, topic)
			}
			before := r.confirmed(t)
			r.backlog(t, 1000)
			p.names(t, topic)
			require.Zero(t, r.broker.Partitions(t, topic), "a topic was created without being asked for")
			require.Less(t, r.confirmed(t), currentLSN(t, r.dsn), "rows without a topic are confirmed")
			require.GreaterOrEqual(t, r.confirmed(t), before)
			r.broker.CreateTopic(t, topic, partitions, nil)
			back := r.caughtUp(t)
			matrix(t, 19, place+", "+when, fmt.Sprintf("caught up %.1f s after the topic was made", back.Seconds()))
		}
		p.stop(t)
		requireExact(t, r.judge(t))
	})
}

func TestFault19_ATopicThatIsNotPermittedIsWaitedFor(t *testing.T) {
	t.Parallel()
	waitedFor := func(t *testing.T, place string, r *rig, deny func() (permit func())) {
		p := r.started(t)
		r.backlog(t, 1000)
		r.drained(t, time.Minute)
		permit := deny()
		r.backlog(t, 1000)
		p.names(t, "outbox.event."+r.topic)
		permit()
		back := r.caughtUp(t)
		p.stop(t)
		requireExact(t, r.judge(t))
		matrix(t, 19, place+", TOPIC_AUTHORIZATION_FAILED", fmt.Sprintf("caught up %.1f s after it was permitted", back.Seconds()))
	}
	t.Run("in-process broker", func(t *testing.T) {
		t.Parallel()
		broker, fake := parts.FakeKafka(t, embedded.KafkaConfig{})
		waitedFor(t, "in-process broker", newRig(t, server(t, parts.AnyVersion), broker), func() func() {
			return fake.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.TopicAuthorizationFailed, Count: -1}).Remove
		})
	})
	if *long {
		t.Run("cluster", func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, map[string]string{"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
				"super.users": "User:ANONYMOUS", "allow.everyone.if.no.acl.found": "true"})
			waitedFor(t, "cluster", c.rig, func() func() { return c.deny(t) })
		})
	}
}
