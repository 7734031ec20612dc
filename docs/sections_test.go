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

	reasons := docs.Section("When a session ends, or the relay halts")
	require.Contains(t, reasons, "### Large rows\n", "headings below it belong to it")
	require.NotContains(t, reasons, "### PostriderDown")
	require.Equal(t, reasons, docs.Section("when-a-session-ends-or-the-relay-halts"))

	require.Equal(t, lost, docs.Section("docs/RUNBOOKS.md#slot_lost"))
	require.Equal(t, lost, docs.Section("docs/OPERATIONS.md#slot_lost"), "a link of an older rule")
	require.True(t, strings.HasPrefix(docs.Section("who-holds-restart_lsn"), "## Who holds restart_lsn\n"))
	require.True(t, strings.HasPrefix(docs.Section("docs/CHECK.md#wal_level"), "### wal_level\n"))

	kafka := docs.Section("docs/CHECK.md#kafka")
	require.True(t, strings.HasPrefix(kafka, "### kafka\n"), "the check, not the group of that name: %s", kafka)

	require.Empty(t, docs.Section("no such heading"))
	require.Empty(t, docs.Section("docs/../README.md#postrider"))
	require.Empty(t, docs.Section("GUARANTEES.md#guarantees"), "that page is not carried")
	require.Empty(t, docs.Section(""))
}
