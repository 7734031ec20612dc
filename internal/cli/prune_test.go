package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/prune"
)

// The gap of a rewrite is a moment, and holds all rows that were in the table.
func TestPrune_SaysThatRewrittenRowsAreRowsOfTheGap(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var out strings.Builder
	c := pruning{app: &app{}}
	require.NoError(t, c.write(&out, &prune.Report{Tables: []prune.TableReport{{Table: "public.outbox", Gaps: []prune.Gap{{To: at}, {From: at, To: at}}}}}))
	require.Contains(t, out.String(), "public.outbox: rows written, or rewritten by ALTER TABLE, before 2026-01-02T03:04:05Z are kept: it is not proven that the slot sends them\n")
	require.Contains(t, out.String(), "public.outbox: rows written, or rewritten by ALTER TABLE, from 2026-01-02T03:04:05Z to 2026-01-02T03:04:05Z are kept")
	require.Contains(t, out.String(), prune.FixGap)
}
