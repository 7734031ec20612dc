package badinput

import (
	"regexp"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// statement finds the SQL in what postrider said.
func statement(t *testing.T, advice, pattern string) string {
	t.Helper()
	found := regexp.MustCompile(pattern).FindString(advice)
	require.NotEmpty(t, found, "no %s in:\n%s", pattern, advice)
	return found
}

func (s *site) restart(t *testing.T) {
	t.Helper()
	require.NoError(t, s.postgres.Stop(t.Context()))
	require.NoError(t, s.postgres.Start(t.Context()))
}

// serverMistakes run one after the other on a server that begins with wal_level=replica, one slot and one walsender.
var serverMistakes = []mistake{
	{
		name: "wal-level-replica", about: "the server has wal_level=replica",
		make: func(*testing.T, *site) {},
		run:  78, check: 78, advised: []string{"wal_level", "ALTER SYSTEM SET wal_level = logical;", "restart"},
		heal: func(t *testing.T, s *site, advice string) {
			s.sql(t, "postgres", statement(t, advice, `ALTER SYSTEM SET wal_level = logical;`))
			s.restart(t)
		},
	},
	{
		name: "no-free-slot", about: "all replication slots are taken",
		make: func(t *testing.T, s *site) {
			// The relay of the case before left its slot, which is the only one there can be.
			var slots int
			require.NoError(t, s.connect(t, "postgres").QueryRow(t.Context(), `SELECT count(*) FROM pg_replication_slots`).Scan(&slots))
			require.Equal(t, 1, slots)
		},
		run: 78, check: 78, advised: []string{"max_replication_slots", "ALTER SYSTEM SET max_replication_slots = ", "restart"},
		heal: func(t *testing.T, s *site, advice string) {
			s.sql(t, "postgres", statement(t, advice, `ALTER SYSTEM SET max_replication_slots = \d+;`))
			s.restart(t)
		},
	},
	{
		name: "no-free-walsender", about: "all walsenders are taken, for instance by standbys",
		make: func(t *testing.T, s *site) {
			other, err := pgconn.Connect(t.Context(), s.postgres.DSN()+"&replication=database")
			require.NoError(t, err)
			t.Cleanup(func() { _ = other.Close(t.Context()) })
		},
		run: retries, check: 69, advised: []string{"max_wal_senders"},
		heal: func(t *testing.T, s *site, _ string) {
			s.sql(t, "postgres", `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'walsender'`)
		},
	},
	{
		name: "server-down", about: "PostgreSQL is not running, or listens elsewhere",
		make: func(t *testing.T, s *site) { require.NoError(t, s.postgres.Stop(t.Context())) },
		run:  retries, check: 69, advised: []string{"127.0.0.1:5432", "refused", "postgres.url"},
		heal: func(t *testing.T, s *site, _ string) { require.NoError(t, s.postgres.Start(t.Context())) },
	},
}
