package sink_test

import (
	"errors"
	"strings"
	"testing"
	"time"

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

func TestParseSignature(t *testing.T) {
	source := sink.Source{SystemID: "7", Timeline: 2, Slot: "a", Events: "p@q"}
	committed := time.UnixMicro(-1_700_000_000_000_001)
	header, at, ok := sink.ParseSignature(source.Signature(committed))
	require.True(t, ok)
	require.Equal(t, source.Header(), string(header))
	require.True(t, committed.Equal(at), at)
	for _, other := range []string{"", "7/2/a/p", "7/2/a/p@", "7/2/a/p@1.5", "7/2/a/p@99999999999999999999"} {
		_, _, ok := sink.ParseSignature([]byte(other))
		require.False(t, ok, other)
	}
}
