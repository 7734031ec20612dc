package health

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/slot"
)

// The server ignores catalog_xmin of a lost slot, and docs/RUNBOOKS.md says to keep the slot until its rows are recovered.
func TestJudge_ALostSlotHoldsNoCatalogRows(t *testing.T) {
	in := input(func(in *Input) { in.Observation.CatalogXminAge = new(int64(300_000_000)) })
	require.NotEmpty(t, find(Judge(in), CatalogXminAge))
	inSlot(func(s *slot.Status) { s.Active, s.WALStatus, s.RetainedBytes = false, "lost", nil })(&in)
	require.NotEmpty(t, find(Judge(in), SlotLost))
	require.Empty(t, find(Judge(in), CatalogXminAge))
}
