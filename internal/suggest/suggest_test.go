package suggest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNearest_FindsTheLeastDistanceWithinTheLimit(t *testing.T) {
	known := []string{"linger.ms", "acks", "retries"}
	require.Equal(t, "acks", Nearest("akcs", known, 1), "two letters in the wrong order count once")
	require.Equal(t, "linger.ms", Nearest("Linger.MS", known, 0), "any case of letters")
	require.Equal(t, "retries", Nearest("retry", known, 3))
	require.Empty(t, Nearest("retry", known, 2))
	require.Empty(t, Nearest("acks", nil, 2))
}
