package embedded_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/internal/embedded"
)

func TestStartKafka_CarriesARecord(t *testing.T) {
	kafka, err := embedded.StartKafka(embedded.KafkaConfig{Brokers: 2,
		Topics: map[string]int32{"orders": 3}})
	require.NoError(t, err)
	defer kafka.Close()
	require.Len(t, kafka.Brokers(), 2)
	require.NoError(t, kafka.CreateTopic("later", 1))
	require.ErrorIs(t, kafka.CreateTopic("later", 1), kerr.TopicAlreadyExists)

	client, err := kgo.NewClient(kgo.SeedBrokers(kafka.Brokers()...),
		kgo.ConsumeTopics("orders", "later"))
	require.NoError(t, err)
	defer client.Close()
	record := &kgo.Record{Topic: "orders", Key: []byte("key"), Value: []byte("value")}
	require.NoError(t, client.ProduceSync(t.Context(), record).FirstErr())
	fetched := client.PollFetches(t.Context())
	require.NoError(t, fetched.Err())
	require.Len(t, fetched.Records(), 1)
	require.Equal(t, []byte("value"), fetched.Records()[0].Value)
}
