package cli

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/sink"
)

// To look at what would be redriven ends no redrive that is under way.
func TestDeadLetter_DryRunOfRedriveShutsOutNobody(t *testing.T) {
	i, k := installWithKafka(t, "17", topics{"outbox.event.order": 1, "postrider.dead_letters": 1})
	h := func(key, value string) sink.Header { return sink.Header{Key: key, Value: []byte(value)} }
	i.put(k.Brokers()[0], &sink.Message{
		Topic: "postrider.dead_letters", Partition: sink.ByKey, Key: []byte("2"),
		Value: []byte(`{"n": 2}`), Timestamp: time.Now(),
		Headers: []sink.Header{
			h(deadletter.HeaderForm, string(deadletter.FormMessage)),
			h(deadletter.HeaderID, "0102030405060708090a0b0c"),
			h(deadletter.HeaderCause, "refused"),
			h(deadletter.HeaderPosition, "0/1/0"), h(deadletter.HeaderParks, "false"),
			h(deadletter.HeaderTopic, "outbox.event.order"),
		},
	})
	other, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers()...),
		kgo.TransactionalID("postrider.deadletter.postrider.dead_letters"))
	require.NoError(t, err)
	defer other.Close()
	require.NoError(t, other.BeginTransaction())
	require.NoError(t,
		other.ProduceSync(t.Context(),
			&kgo.Record{Topic: "outbox.event.order", Value: []byte("x")}).FirstErr())
	r := i.ok("deadletter", "redrive", "--all", "--dry-run")
	require.Contains(t, r.stdout, "0102030405060708090a0b0c")
	require.NoError(t, other.EndTransaction(t.Context(), kgo.TryCommit))
}
