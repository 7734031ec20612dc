package backfill

import (
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"
)

// At the start of a page or a segment the next record stands behind a header, where no record ends: an idle server would never come to that position.
func TestEndOfRecord_IsBeforeTheHeaderOfAPage(t *testing.T) {
	const block, segment = 8 << 10, 16 << 20
	for insert, want := range map[pglogrepl.LSN]pglogrepl.LSN{
		5*segment + 40: 5 * segment, 5*segment + block + 24: 5*segment + block, 5*segment + block + 40: 5*segment + block + 40,
		5*segment + 48: 5*segment + 48, 5*segment + block + 104: 5*segment + block + 104,
	} {
		require.Equal(t, want, endOfRecord(insert, block, segment), "next at %s", insert)
	}
}

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
