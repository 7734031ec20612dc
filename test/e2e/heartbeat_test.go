package e2e

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// Beside rows, in a topic that is made while the relay runs.
func TestHeartbeat_IsPublishedLikeDebeziums(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topic, heartbeats := c.Topic(t, partitions), parts.Unique("__debezium-heartbeat.test")
	s := newShop(t, parts.AnyVersion, outboxSQL, fmt.Sprintf(`
[router]
route.topic.regex = ".*"
route.topic.replacement = %q
topic.prefix = "pg"

[format]
key = "json"
value = "json"

[relay]
heartbeat_interval = "50ms"
heartbeat_topic = %q
`, topic, heartbeats))
	r := s.run(t)
	require.Contains(t, r.AwaitLog(t, "heartbeat not published; it is tried again at the next interval, and rows are not affected")["error"], heartbeats)
	s.do(t, `INSERT INTO outbox (aggregate_type, aggregate_id, payload) VALUES ('order', 'a', '{}')`)
	s.awaitConfirmed(t, r)
	s.createTopics(t, heartbeats)
	parts.Await(t, "heartbeats", func() (bool, error) { return c.count(t, heartbeats) >= 2, nil })
	require.Equal(t, 1, r.state(t).Sessions)
	r.Stop(t)
	require.Equal(t, 1, c.count(t, topic))
	for _, record := range s.All(t, heartbeats) {
		require.Zero(t, record.Partition)
		require.Equal(t, `{"serverName":"pg"}`, string(record.Key))
		var value struct {
			At int64 `json:"ts_ms"`
		}
		require.NoError(t, json.Unmarshal(record.Value, &value))
		require.InDelta(t, record.Timestamp.UnixMilli(), value.At, 10_000)
		require.Empty(t, record.Headers)
	}
}
