package kafka

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/sink"
)

func TestBatch_WaitsOnlyForCompanyThatIsLikely(t *testing.T) {
	const linger = 5 * time.Millisecond
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	one := func(b *batch, size int) {
		r := &record{}
		r.fill(&sink.Message{Topic: "orders", Value: make([]byte, size), Partition: sink.ByKey})
		b.add(r)
	}
	b := &batch{}
	one(b, 10)
	require.Zero(t, b.due(at(0), linger), "the first message ever goes at once")
	b.sent(at(0))
	require.Empty(t, b.records)

	one(b, 10)
	require.Equal(t, at(5), b.due(at(2), linger), "one that follows soon waits for the rest of the linger")
	require.Zero(t, b.due(at(5), linger), "and no longer")
	require.Zero(t, b.due(at(2), 0), "without a linger nothing waits")
	b.sent(at(5))

	one(b, 10)
	require.Zero(t, b.due(at(20), linger), "after a pause nothing waits")
	b.sent(at(20))

	one(b, lingerBytes)
	require.Zero(t, b.due(at(21), linger), "many bytes are worth a request")
	b.sent(at(21))

	for range lingerMessages {
		one(b, 10)
	}
	require.Zero(t, b.due(at(22), linger), "many messages are, too")
}
