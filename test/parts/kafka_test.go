package parts_test

import (
	"context"
	"encoding/xml"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/test/parts"
)

func produce(t *testing.T, client *kgo.Client, topic string, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		record := &kgo.Record{Topic: topic, Partition: int32(i % 2),
			Value: []byte(strconv.Itoa(i))}
		require.NoError(t, client.ProduceSync(t.Context(), record).FirstErr())
	}
}

// requireNoAnswer connects anew: an old connection may have ended for older reasons.
func requireNoAnswer(t *testing.T, broker *parts.Broker) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Brokers()...),
		kgo.RequestTimeoutOverhead(300*time.Millisecond), kgo.RetryTimeout(300*time.Millisecond))
	require.NoError(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var timeout net.Error
	require.ErrorAs(t, client.Ping(ctx), &timeout)
	require.True(t, timeout.Timeout())
}

func TestKafka_CarriesRecords(t *testing.T) {
	broker := parts.Kafka(t)
	topic := broker.Topic(t, 2)
	require.EqualValues(t, 2, broker.Partitions(t, topic))
	require.Empty(t, broker.All(t, topic))
	client := broker.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	produce(t, client, topic, 0, 5)
	require.Len(t, broker.Consume(t, topic, 5), 5)
	require.Len(t, broker.All(t, topic), 5)
	require.Equal(t, map[int32]int64{0: 3, 1: 2}, broker.EndOffsets(t, topic))
	broker.DeleteTopic(t, topic)
}

func TestKafka_ShowsCommittedRecordsOnly(t *testing.T) {
	broker := parts.Kafka(t)
	topic := broker.Topic(t, 1)
	client := broker.Client(t, kgo.TransactionalID(parts.Unique("tx")))
	for i, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit, kgo.TryAbort} {
		require.NoError(t, client.BeginTransaction())
		require.NoError(t,
			client.ProduceSync(t.Context(),
				&kgo.Record{Topic: topic, Value: []byte(strconv.Itoa(i))}).FirstErr())
		require.NoError(t, client.EndTransaction(t.Context(), end))
	}
	records := broker.All(t, topic)
	require.Len(t, records, 1)
	require.Equal(t, "1", string(records[0].Value))
}

func TestKafka_CreatesNoTopicByItself(t *testing.T) {
	broker := parts.Kafka(t)
	name := parts.Unique("missing")
	client := broker.Client(t, kgo.UnknownTopicRetries(0))
	require.Error(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: name}).FirstErr())
	require.Zero(t, broker.Partitions(t, name))
}

func TestExclusiveKafka_KeepsRecordsAndPortOverKillAndPause(t *testing.T) {
	broker := parts.ExclusiveKafka(t, parts.KafkaConfig{ThroughProxy: true})
	addresses := broker.Brokers()
	topic := broker.Topic(t, 2)
	client, err := kgo.NewClient(kgo.SeedBrokers(addresses...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer client.Close()
	produce(t, client, topic, 0, 2)
	require.Positive(t, broker.Proxy.Connections(), "the broker must advertise the proxy")

	broker.Kill(t)
	broker.Restart(t)
	require.Equal(t, addresses, broker.Brokers())
	produce(t, client, topic, 2, 4)

	broker.Pause(t)
	requireNoAnswer(t, broker)
	broker.Resume(t)
	produce(t, client, topic, 4, 6)

	broker.Proxy.Stall()
	requireNoAnswer(t, broker)
	require.Len(t, broker.All(t, topic), 6, "the helpers go past the proxy")
	broker.Proxy.Resume()

	broker.Stop(t)
	broker.Restart(t)
	require.Len(t, broker.All(t, topic), 6)
}

func TestKafka_RunsTheVersionOfThePom(t *testing.T) {
	text, err := os.ReadFile("kafka/pom.xml")
	require.NoError(t, err)
	var pom struct {
		Version string `xml:"properties>kafka.version"`
	}
	require.NoError(t, xml.Unmarshal(text, &pom))
	require.Equal(t, parts.KafkaVersion, pom.Version)
}
