package docs_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/docs"
)

func TestSection_IsWhatStandsUnderAHeading(t *testing.T) {
	lost := docs.Section("slot_lost")
	require.True(t, strings.HasPrefix(lost, "#### slot_lost\n"))
	require.Equal(t, 1, strings.Count("\n"+lost, "\n#"), "it ends at the next heading:\n%s", lost)
	require.Equal(t, lost, docs.Section("Slot_Lost"))

	watch := docs.Section("3. Watch")
	require.Contains(t, watch, "### HTTP\n", "headings below it belong to it")
	require.NotContains(t, watch, "## 4.")
	require.Equal(t, watch, docs.Section("3-watch"))

	require.Equal(t, lost, docs.Section("docs/OPERATIONS.md#slot_lost"))
	require.True(t, strings.HasPrefix(docs.Section("docs/CHECK.md#wal_level"), "### wal_level\n"))

	kafka := docs.Section("docs/CHECK.md#kafka")
	require.True(t, strings.HasPrefix(kafka, "### kafka\n"), "the check, not the group of that name: %s", kafka)

	require.Empty(t, docs.Section("no such heading"))
	require.Empty(t, docs.Section("docs/../README.md#postrider"))
	require.Empty(t, docs.Section("GUARANTEES.md#guarantees"), "that page is not carried")
	require.Empty(t, docs.Section(""))
}
