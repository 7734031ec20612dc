package postgres_test

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/test/parts"
)

// Neither the database's owner, nor who may alter the role, nor the connection string decides
// which schema a name is looked up in.
func TestConnect_PinsTheSession(t *testing.T) {
	for _, version := range []string{"14", "15", "16", "17", "18"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			// settings of a role are the whole server's
			s := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: version})
			admin := parts.Connect(t, s.DSN())
			_, err := admin.Exec(t.Context(), `CREATE ROLE relay LOGIN REPLICATION; CREATE SCHEMA evil; GRANT USAGE ON SCHEMA evil TO PUBLIC;
				CREATE FUNCTION evil.version() RETURNS text LANGUAGE sql AS $$ SELECT 'called'::text $$;
				ALTER DATABASE postgres SET search_path = evil, pg_catalog;
				ALTER DATABASE postgres SET standard_conforming_strings = off;
				ALTER DATABASE postgres SET client_encoding = 'LATIN1';
				ALTER ROLE relay SET search_path = evil, pg_catalog;
				ALTER ROLE relay SET row_security = on;
				ALTER ROLE relay SET quote_all_identifiers = on`)
			require.NoError(t, err)
			u, err := url.Parse(s.DSN())
			require.NoError(t, err)
			u.User = url.User("relay")
			q := u.Query()
			q.Set("search_path", "evil, pg_catalog")
			q.Set("options", "-c search_path=evil,pg_catalog -c row_security=on")
			u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20") // as libpq reads it
			cfg := configOf(u.String())

			unpinned, err := pgx.Connect(t.Context(), u.String())
			require.NoError(t, err)
			require.Equal(t, []string{"called"}, answers(t, unpinned.PgConn(), "SELECT version()"),
				"the trap is set")
			require.NoError(t, unpinned.Close(t.Context()))

			verify := func(t *testing.T, conn *pgconn.PgConn) {
				require.Equal(t, []string{"pg_catalog, pg_temp"}, answers(t, conn, "SHOW search_path"))
				require.NotEqual(t, []string{"called"}, answers(t, conn, "SELECT version()"))
				require.Equal(t, []string{"UTF8"}, answers(t, conn, "SHOW client_encoding"))
				require.Equal(t, []string{"on"}, answers(t, conn, "SHOW standard_conforming_strings"))
				require.Equal(t, []string{"off"}, answers(t, conn, "SHOW row_security"))
				require.Equal(t, []string{"off"}, answers(t, conn, "SHOW quote_all_identifiers"))
				require.Equal(t, []string{"view, foreign-table"},
					answers(t, conn, "SHOW restrict_nonsystem_relation_kind"))
			}
			for name, connect := range map[string]func(context.Context, postgres.Config) (*pgx.Conn,
				error){"Connect": postgres.Connect, "ConnectRows": postgres.ConnectRows} {
				t.Run(name, func(t *testing.T) {
					conn, err := connect(t.Context(), cfg)
					require.NoError(t, err)
					defer func() { _ = conn.Close(context.Background()) }()
					verify(t, conn.PgConn())
				})
			}
			t.Run("ConnectReplication", func(t *testing.T) {
				conn, err := postgres.ConnectReplication(t.Context(), cfg)
				require.NoError(t, err)
				defer func() { _ = conn.Close(context.Background()) }()
				verify(t, conn)
			})
		})
	}
}

func answers(t *testing.T, conn *pgconn.PgConn, sql string) []string {
	t.Helper()
	results, err := conn.Exec(t.Context(), sql).ReadAll()
	require.NoError(t, err, sql)
	var values []string
	for _, row := range results[0].Rows {
		values = append(values, string(row[0]))
	}
	return values
}
