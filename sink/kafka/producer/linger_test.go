package producer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPace_WaitsOnlyForCompanyThatIsLikely(t *testing.T) {
	const linger = 5 * time.Millisecond
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	p := &pace{linger: linger}
	require.Zero(t, p.due(at(0), 1, 10, true), "the first message ever goes at once")
	p.sent(at(0), 1, 10)

	require.Equal(t, at(5), p.due(at(2), 1, 10, true),
		"one that follows soon waits for the rest of the linger")
	require.Zero(t, p.due(at(5), 1, 10, true), "and no longer")
	require.Zero(t, p.due(at(20), 1, 10, true), "after a pause nothing waits")
	require.Zero(t, p.due(at(1), 1, largeBytes, true), "many bytes are worth a request")
	require.Zero(t, p.due(at(1), largeMessages, 10, true), "many messages are, too")

	require.Equal(t, at(25), p.due(at(20), 1000, largeBytes, false),
		"beside a request that is under way the next one is made")
	require.Zero(t, p.due(at(20), 1000, concurrentBytes, false), "until it is large")

	p.sent(at(20), largeMessages, 10)
	require.Equal(t, at(40), p.due(at(21), largeMessages, 10, true),
		"while they are many, requests are larger and fewer")
	require.Zero(t, p.due(at(21), bulkMessages, 10, true))
	require.Zero(t, p.due(at(21), bulkMessages, bulkBytes, true))

	p.linger = 0
	require.Zero(t, p.due(at(0), 1, 10, true), "without a linger nothing waits")
	require.Zero(t, p.due(at(0), 1, 10, false))
}
