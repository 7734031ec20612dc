package child

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFreePort_ReturnsNoPortTwice(t *testing.T) {
	given := map[int]bool{}
	for range 500 {
		port, err := FreePort()
		require.NoError(t, err)
		require.False(t, given[port], "port %d", port)
		given[port] = true
	}
}
