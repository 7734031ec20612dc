package backfill

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Tables have rows with the same ids, and their unique columns are of any length.
func TestRowID_TellsRowsApart(t *testing.T) {
	key := func(values ...string) (unique [][]byte) {
		for _, v := range values {
			unique = append(unique, []byte(v))
		}
		return unique
	}
	id := newRowID(10, key("a", "bc"))
	require.Equal(t, id, newRowID(10, key("a", "bc")))
	require.NotEqual(t, id, newRowID(11, key("a", "bc")))
	require.NotEqual(t, id, newRowID(10, key("ab", "c")))
	require.NotEqual(t, id, newRowID(10, key("a", "bd")))
}
