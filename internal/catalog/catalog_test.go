package catalog

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/test/parts"
)

func TestCatalog_AsksManyQuestionsOnOneConnection(t *testing.T) {
	db := parts.Postgres(t, parts.AnyVersion)
	cfg := postgres.DefaultConfig()
	cfg.URL = secret.Of(db.DSN())
	c := &Catalog{Config: cfg}
	t.Cleanup(c.Reset)
	backend := func() (pid int) {
		require.NoError(t, c.Query(func(ctx context.Context, conn *pgx.Conn) error {
			return conn.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid)
		}))
		return pid
	}
	first := backend()
	require.Equal(t, first, backend())

	wrong := errors.New("the question's own")
	require.ErrorIs(t, c.Query(func(context.Context, *pgx.Conn) error { return wrong }), wrong)
	require.Equal(t, first, backend(), "an answer that is an error is no reason to connect again")

	db.Exec(t, "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = "+
		"current_database() AND pid <> pg_backend_pid()")
	second := backend()
	require.NotEqual(t, first, second,
		"the connection had ended: the query runs again")
	c.Reset()
	require.NotEqual(t, second, backend())
}
