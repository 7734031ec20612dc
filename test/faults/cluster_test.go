package faults

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"

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
	client := c.kafka.Client(t, kgo.DialTimeout(time.Second))
	var wg sync.WaitGroup
	for node := range c.kafka.Nodes {
		broker, request := client.Broker(node+1), parts.EndsRequest(partitions, c.outbox(), c.plain)
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
