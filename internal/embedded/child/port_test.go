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

// A server that is stopped does not listen: what keeps its port is the block of its process.
func TestFreePort_IsNotGivenToAnotherProcess(t *testing.T) {
	const first, end = 32_000, 32_000 + 4*portsInBlock
	one, other := ports{first: first, end: end}, ports{first: first, end: end}
	given := map[int]bool{}
	for range 3 {
		port, err := one.take()
		require.NoError(t, err)
		given[port] = true
	}
	for {
		port, err := other.take()
		if err != nil {
			require.EqualError(t, err, "find a free port: each block of ports is held by a process")
			break
		}
		require.False(t, given[port], "port %d", port)
		given[port] = true
	}
	require.Len(t, given, 3+3*(portsInBlock-1))
	for _, listener := range append(one.held, other.held...) {
		require.NoError(t, listener.Close())
	}
}
