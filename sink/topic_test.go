package sink_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/sink"
)

func TestValidTopic(t *testing.T) {
	for _, name := range []string{"a", "outbox.event.Order", "A_z-0.9", "...", strings.Repeat("x", 249)} {
		require.True(t, sink.ValidTopic(name), name)
	}
	for _, name := range []string{"", ".", "..", "a b", "a/b", "a\n", "ä", "a\x00", strings.Repeat("x", 250)} {
		require.False(t, sink.ValidTopic(name), name)
	}
}

func TestMessageError_NamesRowAndTopicOnce(t *testing.T) {
	e := &sink.MessageError{Topic: "orders", Origin: sink.Origin{LSN: 0x1A, Index: 2, Relation: "public.outbox", EventID: "7"}, Err: sink.UnknownTopic("orders")}
	require.ErrorIs(t, e, sink.ErrUnknownTopic)
	require.EqualError(t, e, `publish event "7" of public.outbox at 0/1A index 2: topic "orders" does not exist`)
	e.Err = errors.New("refused")
	require.EqualError(t, e, `publish event "7" of public.outbox at 0/1A index 2 to topic "orders": refused`)
}
