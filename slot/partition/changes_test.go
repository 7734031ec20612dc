package partition

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/slot"
)

func TestSight_FurtherIsTheLaterPosition(t *testing.T) {
	s, err := slot.ParseSnapshot("10:20:11,19")
	require.NoError(t, err)
	none, err := slot.ParseSnapshot("7:7:")
	require.NoError(t, err)
	before, later := sight{10, s}, sight{20, none}
	require.Equal(t, later, before.further(later))
	require.Equal(t, later, later.further(before))
}
