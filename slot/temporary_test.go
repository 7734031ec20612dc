package slot_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/slot"
)

// Two containers with one process id, which this process stands in for, do not get the same slot.
func TestTemporaryName_IsValidAndDiffersWithinOneProcess(t *testing.T) {
	names := map[string]bool{}
	for range 100 {
		name := slot.TemporaryName("compare")
		require.NoError(t, slot.ValidateName(name))
		require.False(t, names[name], name)
		names[name] = true
	}
}
