package topics

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/test/parts"
)

// A relay with transactions takes back what it had written before it failed.
func TestFollower_SeesNoRecordThatWasTakenBack(t *testing.T) {
	b := parts.RealKafka(t)
	topic := b.Topic(t, 1)
	f := follow(t, real(b), topic, "")
	writer := b.Client(t, kgo.TransactionalID(parts.Unique("writer")), kgo.DefaultProduceTopic(topic))
	for i, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
		require.NoError(t, writer.BeginTransaction())
		require.NoError(t, writer.ProduceSync(t.Context(), kgo.StringRecord(fmt.Sprint(i))).FirstErr())
		require.NoError(t, writer.EndTransaction(t.Context(), end))
	}
	require.Equal(t, []string{"1"}, f.next(t, 1))
}
