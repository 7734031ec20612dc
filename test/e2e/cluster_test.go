package e2e

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/test/parts"
)

// partitions of every topic: enough to see that keys are spread as Java's producer spreads them.
const partitions = 6

// cluster is the Kafka that tests share, with what this package needs of it.
type cluster struct{ *parts.Broker }

func newCluster(t testing.TB) cluster {
	t.Helper()
	return cluster{parts.Kafka(t)}
}

func (c cluster) list() string { return strings.Join(c.Brokers(), ",") }

// createTopics makes topics of fixed names, which are deleted at the end of the test. What a killed run left is replaced.
func (c cluster) createTopics(t testing.TB, topics ...string) {
	t.Helper()
	for _, topic := range topics {
		if c.Partitions(t, topic) > 0 {
			c.DeleteTopic(t, topic)
			parts.Await(t, "the end of topic "+topic, func() (bool, error) { return c.Partitions(t, topic) == 0, nil })
		}
		c.CreateTopic(t, topic, partitions, nil)
	}
	admin := kadm.NewClient(c.Client(t))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), parts.Patience)
		defer cancel()
		_, err := admin.DeleteTopics(ctx, topics...)
		require.NoError(t, err)
	})
}

// count is how many records a topic holds.
func (c cluster) count(t testing.TB, topic string) int {
	t.Helper()
	total := int64(0)
	for _, end := range c.EndOffsets(t, topic) {
		total += end
	}
	return int(total)
}

// byKey returns the records of one key, in order.
func byKey(records []*kgo.Record, key string) []*kgo.Record {
	return slices.DeleteFunc(slices.Clone(records), func(r *kgo.Record) bool { return !bytes.Equal(r.Key, []byte(key)) })
}

// partitionOf is where Java's producer puts a key: murmur2, as another client than the relay's implements it.
func partitionOf(topic string, key []byte) int32 {
	return int32(kgo.StickyKeyPartitioner(nil).ForTopic(topic).Partition(&kgo.Record{Topic: topic, Key: key}, partitions))
}
