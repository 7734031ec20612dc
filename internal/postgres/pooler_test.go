package postgres_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/test/parts"
	"github.com/postrider/postrider/test/parts/testdb"
)

// pooler gives clients numbers of its own, and keeps what they send.
type pooler struct {
	mu   sync.Mutex // guards sent
	sent []string
}

// start listens until the end of the test and returns the server's URL with the new address. startup changes the parameters.
func (p *pooler) start(t *testing.T, dsn string, startup func(params map[string]string)) string {
	t.Helper()
	return testdb.Between{
		Startup: func(params map[string]string) *pgproto3.ErrorResponse { startup(params); return nil },
		Answer: func(m pgproto3.BackendMessage) {
			if key, ok := m.(*pgproto3.BackendKeyData); ok {
				key.ProcessID += 1_000_000
			}
		},
		Said: func(m pgproto3.FrontendMessage) {
			p.mu.Lock()
			defer p.mu.Unlock()
			switch m := m.(type) {
			case *pgproto3.Query:
				p.sent = append(p.sent, m.String)
			case *pgproto3.Parse:
				p.sent = append(p.sent, m.Query)
			}
		},
	}.Start(t, dsn)
}

// statements are those that clients have sent.
func (p *pooler) statements() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent
}

func ignoresOptions(params map[string]string) { delete(params, "options") }

// What is set in a process of a pooler stays there for the next client, which may be the user's
// application.
func TestConnect_ChangesNothingBehindAPooler(t *testing.T) {
	for _, version := range []string{"14", "18"} {
		t.Run(version, func(t *testing.T) {
			p := &pooler{}
			cfg := configOf(p.start(t, parts.Postgres(t, version).DSN(), ignoresOptions))
			refused := func(name string, conn interface{ Close(context.Context) error }, err error) {
				if err == nil {
					postgres.Close(conn)
				}
				require.ErrorIs(t, err, postgres.ErrPooler, name)
				require.ErrorContains(t, err, "a pooler answers in the place of the server", name)
				_, fix := postgres.Advice(err)
				require.Equal(t, postgres.FixPooler, fix, name)
			}
			conn, err := postgres.Connect(t.Context(), cfg)
			refused("Connect", conn, err)
			conn, err = postgres.ConnectRows(t.Context(), cfg)
			refused("ConnectRows", conn, err)
			replication, err := postgres.ConnectReplication(t.Context(), cfg)
			refused("ConnectReplication", replication, err)
			sent := p.statements()
			require.Len(t, sent, 3)
			for _, sql := range sent {
				require.True(t, strings.HasPrefix(sql, "SELECT pg_catalog.pg_backend_pid(),"), sql)
				require.NotContains(t, sql, "set_config")
				require.NotContains(t, sql, ";")
			}
		})
	}
}

// A proxy that begins a process for each client passes the startup packet on.
func TestConnect_TakesAProxyWithNumbersOfItsOwn(t *testing.T) {
	for _, version := range []string{"14", "18"} {
		t.Run(version, func(t *testing.T) {
			// no parameters but these, as Neon's
			p := &pooler{}
			cfg := configOf(p.start(t, parts.Postgres(t, version).DSN(), func(params map[string]string) {
				for name := range params {
					switch name {
					case "user", "database", "replication", "application_name", "options":
					default:
						delete(params, name)
					}
				}
			}) + "&search_path=public&options=-c%20search_path%3Dpublic")
			conn, err := postgres.Connect(t.Context(), cfg)
			require.NoError(t, err)
			defer func() { _ = conn.Close(context.Background()) }()
			replication, err := postgres.ConnectReplication(t.Context(), cfg)
			require.NoError(t, err)
			defer func() { _ = replication.Close(context.Background()) }()
			require.Len(t, p.statements(), 2, "nothing is set")
			for _, c := range []*pgconn.PgConn{conn.PgConn(), replication} {
				require.Equal(t, []string{"pg_catalog,pg_temp"}, answers(t, c, "SHOW search_path"))
				require.Equal(t, []string{"off"}, answers(t, c, "SHOW row_security"))
			}
		})
	}
}

func TestError_KnowsAPoolerByItsPreparedStatements(t *testing.T) {
	for _, code := range []string{"26000", "42P05"} {
		require.ErrorIs(t, postgres.Error(&pgconn.PgError{Code: code}), postgres.ErrPooler)
	}
}
