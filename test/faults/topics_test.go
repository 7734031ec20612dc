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
	for _, when := range []string{"missing from the start", "deleted in mid-stream"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
			topic := "outbox.event." + r.topic
			var p *process
			if when == "missing from the start" {
				r.broker.DeleteTopic(t, topic)
				p = r.started(t)
			} else {
				p = r.started(t)
				r.backlog(t, 1000)
				r.drained(t, time.Minute)
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
			p.stop(t)
			requireExact(t, r.judge(t))
			matrix(t, 19, when, fmt.Sprintf("caught up %.1f s after the topic was made", back.Seconds()))
		})
	}
}

func TestFault19_ATopicThatIsNotPermittedIsWaitedFor(t *testing.T) {
	t.Parallel()
	broker, fake := parts.FakeKafka(t, embedded.KafkaConfig{})
	r := newRig(t, server(t, parts.AnyVersion), broker)
	p := r.started(t)
	r.backlog(t, 1000)
	r.drained(t, time.Minute)
	refused := fake.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	r.backlog(t, 1000)
	p.names(t, "outbox.event."+r.topic)
	refused.Remove()
	back := r.caughtUp(t)
	p.stop(t)
	requireExact(t, r.judge(t))
	matrix(t, 19, "TOPIC_AUTHORIZATION_FAILED", fmt.Sprintf("caught up %.1f s after it was permitted", back.Seconds()))
}
