package auditor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/internal/audit/topics"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/test/parts"
)

// What retention deletes while an audit reads is not lost: it is not found.
func TestAudit_NotesWhatIsRemovedWhileItReads(t *testing.T) {
	b := parts.Kafka(t)
	kept, trimmed, empty := b.Topic(t, 1), b.Topic(t, 1), b.Topic(t, 1)
	client := b.Client(t)
	for _, topic := range []string{kept, trimmed} {
		for range 3 {
			require.NoError(t, client.ProduceSync(t.Context(),
				&kgo.Record{Topic: topic, Value: []byte("v")}).FirstErr())
		}
	}
	cfg := kafka.DefaultConfig()
	cfg.Brokers = b.Brokers()
	reader, err := topics.OpenReader(parts.Within(t, parts.Patience), cfg, false)
	require.NoError(t, err)
	audited := &auditTopics{Reader: reader}
	t.Cleanup(audited.Close)
	for _, topic := range []string{kept, trimmed, empty} {
		spans, err := reader.Spans(t.Context(), topic, time.Time{})
		require.NoError(t, err)
		audited.spans = append(audited.spans, spans...)
	}
	require.NoError(t, audited.noteRemoved(t.Context()))
	require.Empty(t, audited.removed)
	deleted, err := kadm.NewClient(client).DeleteRecords(t.Context(),
		kadm.OffsetsList{{Topic: trimmed, Partition: 0, At: 1}}.Offsets())
	require.NoError(t, err)
	require.NoError(t, deleted.Error())
	for range 2 {
		require.NoError(t, audited.noteRemoved(t.Context()))
		require.Equal(t, []string{trimmed}, audited.removed)
	}
}
