package check

import (
	"os/exec"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// The age of a row is no sign of its delivery, whatever the table is like.
func TestGrowth_RemovesNothingByTimeAlone(t *testing.T) {
	for name, g := range map[string]growth{
		"with a time": {Size: largeSize, TimestampedBy: "created_at"},
		"without one": {Size: largeSize},
		"many rows":   {Rows: manyRows, TimestampedBy: "created_at"},
		"partitioned": {Size: largeSize, TimestampedBy: "created_at", Partitioned: true},
	} {
		fix := g.judge("public.outbox")[0].Fix
		require.Regexp(t, "^postrider prune --dry-run   # then set prune.enabled = true: ", fix, name)
		require.NotRegexp(t, "(?i)delete from|drop table|outbox_maintain", fix, name)
	}
}

func TestHolder_NamesNothingThatATerminalObeys(t *testing.T) {
	h := holder{PID: 815, Application: "app\x1b[8m", User: "role\n  fix: x", Address: "192.0.2.1"}
	require.Equal(t, "process 815 of the database, application app?[8m, role role?  fix: x, from 192.0.2.1", h.String())
}

// What psql gets from the shell leads to the server of the connection, and to its database.
func TestPsqlWord_LeadsToTheSameDatabase(t *testing.T) {
	for _, name := range []string{"shop", "shop app", "o'brien", `back\slash`, `'; touch x; '`, "$(x) `x`"} {
		cfg, err := pgx.ParseConfig("postgres://bob@db.internal:6543/?sslmode=disable")
		require.NoError(t, err)
		cfg.Database, cfg.User = name, "role "+name
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+psqlWord(cfg)).Output()
		require.NoError(t, err, name)
		got, err := pgx.ParseConfig(string(out) + " sslmode=disable")
		require.NoError(t, err, "%s: %s", name, out)
		require.Equal(t, []any{"db.internal", uint16(6543), "role " + name, name}, []any{got.Host, got.Port, got.User, got.Database})
		require.Equal(t, map[string]string{"replication": "database"}, got.RuntimeParams)
	}
	cfg, err := pgx.ParseConfig("host=a,b,a port=1,2,3 user=bob dbname=shop sslmode=prefer")
	require.NoError(t, err)
	require.Equal(t, "'host=a,b,a port=1,2,3 user=bob dbname=shop target_session_attrs=read-write replication=database'", psqlWord(cfg))
	cfg.Fallbacks, cfg.Host, cfg.Database = nil, "/run/my postgres", "a\x1b[8m"
	require.Equal(t, `'host='\''/run/my postgres'\'' port=1 user=bob dbname=NAME replication=database'`, psqlWord(cfg))
}
