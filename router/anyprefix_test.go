package router

import (
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/replication"
)

func TestRoute_TakesMessagesOfAnyPrefix(t *testing.T) {
	r, err := New([]Config{DefaultConfig()}, DefaultFormat(), Options{MessagePrefixes: []string{AnyPrefix}})
	require.NoError(t, err)
	for _, prefix := range []string{"foo", "other"} {
		m, err := r.Route(&replication.Event{Kind: replication.Message, Time: committed, Prefix: prefix,
			Content: []byte(`{"id": "1", "aggregatetype": "User", "aggregateid": "k", "type": "T", "payload": "x"}`)})
		require.NoError(t, err)
		require.Equal(t, "outbox.event.User", m.Topic)
	}
}
