package sink_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/sink"
)

func TestValidTopic(t *testing.T) {
	for _, name := range []string{"a", "outbox.event.Order", "A_z-0.9", "...", strings.Repeat("x", 249)} {
		require.True(t, sink.ValidTopic(name), name)
	}
	for _, name := range []string{"", ".", "..", "a b", "a/b", "a\n", "ä", "a\x00", strings.Repeat("x", 250)} {
		require.False(t, sink.ValidTopic(name), name)
	}
}
