package check

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/sql"
	"github.com/postrider/postrider/test/parts/testdb"
)

func TestWriteBack_FindsWhatKeepsItFromATable(t *testing.T) {
	p := testdb.Shared(t, "18")
	p.Outbox()
	cfg := config.Default()
	cfg.WriteBack.Enabled, cfg.Replication.Tables = true, []string{"public.outbox"}
	role := "back_" + p.Name
	login := p.Role(role)
	t.Cleanup(func() {
		_, err := p.Conn.Exec(context.Background(), `DROP OWNED BY `+role+`; DROP ROLE `+role)
		require.NoError(t, err)
	})
	conn, err := postgres.Connect(t.Context(), login)
	require.NoError(t, err)
	defer postgres.Close(conn)
	find := func() []Finding {
		t.Helper()
		found, err := checker{loaded: &config.Loaded{Config: cfg}}.writeBack(t.Context(), conn)
		require.NoError(t, err)
		return completed(found)
	}
	found := find()
	require.Len(t, found, 3)
	require.Equal(t, `has no column "published_at"`, found[0].Observed)
	require.Equal(t, ClassConfiguration, found[0].Class)
	require.Contains(t, found[1].Observed, "takes SELECT and UPDATE")
	require.Equal(t, ClassPermission, found[1].Class)
	require.Equal(t, "public.postrider_prune", found[2].Subject)
	for _, f := range found {
		require.Equal(t, "rows are published as before, and stay pending in the table; the WAL is not concerned", f.WAL)
		require.Equal(t, "docs/CHECK.md#write_back", f.Docs)
		require.NotEmpty(t, f.Fix)
	}
	p.Exec(found[0].Fix)
	p.Exec(strings.ReplaceAll(sql.WriteBack(), "TO postrider", "TO "+role)) // roles are the whole server's
	require.Equal(t, []Finding{{Severity: SeverityOK, Code: "write_back", Observed: "can be written to: public.outbox"}}, find())
}
