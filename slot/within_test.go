package slot

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A slot may still send rows of a transaction that is its catalog_xmin, or later.
func TestWithin_CountsTheFirstTransactionAndNotTheLast(t *testing.T) {
	for _, c := range []struct {
		xid, from, to uint32
		yes           bool
	}{
		{99, 100, 200, false}, {100, 100, 200, true}, {199, 100, 200, true}, {200, 100, 200, false},
		{1<<32 - 1, 1<<32 - 2, 5, true}, {3, 1<<32 - 2, 5, true}, {5, 1<<32 - 2, 5, false}, {1<<32 - 3, 1<<32 - 2, 5, false},
	} {
		require.Equal(t, c.yes, within(c.xid, c.from, c.to), "%d of [%d, %d)", c.xid, c.from, c.to)
	}
}

func TestSnapshot_SeesWhatHadEnded(t *testing.T) {
	s, err := ParseSnapshot("4294967290:4294967300:4294967291,4294967299") // as 64 bits: the epoch has changed between
	require.NoError(t, err)
	for xid, sees := range map[uint32]bool{4294967289: true, 4294967290: true, 4294967291: false, 4294967295: true, 3: false, 2: true, 4: false, 5: false, 100: false, 1 << 30: false, 0: true} {
		require.Equal(t, sees, s.Sees(xid), xid)
	}
	none, err := ParseSnapshot("7:7:")
	require.NoError(t, err)
	require.True(t, none.Sees(6))
	require.False(t, none.Sees(7))
	for _, bad := range []string{"", "1:2", "1:x:", "1:2:x"} {
		_, err := ParseSnapshot(bad)
		require.Error(t, err, bad)
	}
	var all *Snapshot
	require.True(t, all.Sees(7))
}
