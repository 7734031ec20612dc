package embedded_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/postrider/postrider/internal/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, cfg embedded.PostgresConfig) *embedded.Postgres {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // a first start downloads
	defer cancel()
	pg, err := embedded.StartPostgres(ctx, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pg.Close()) })
	return pg
}

func query[T any](t *testing.T, dsn, sql string) T {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	var value T
	require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&value))
	return value
}

func execute(t *testing.T, dsn, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	_, err = conn.Exec(t.Context(), sql)
	require.NoError(t, err)
}

func TestStartPostgres_StartsEveryMajorVersion(t *testing.T) {
	for _, version := range embedded.Versions() {
		t.Run(version, func(t *testing.T) {
			pg := start(t, embedded.PostgresConfig{Version: version})
			require.Equal(t, version,
				query[string](t, pg.DSN(),
					"SELECT (current_setting('server_version_num')::int / 10000)::text"))
			require.Equal(t, "logical", query[string](t, pg.DSN(), "SHOW wal_level"))
			// The slot needs the output plugin, which not every build carries.
			require.Equal(t, "one",
				query[string](t, pg.DSN(),
					"SELECT slot_name::text "+
						"FROM pg_create_logical_replication_slot('one', 'pgoutput')"))
		})
	}
}

func TestPostgres_KeepsDataOverStopAndKill(t *testing.T) {
	pg := start(t, embedded.PostgresConfig{})
	dsn := pg.DSN()
	execute(t, dsn, "CREATE TABLE kept (id int); INSERT INTO kept VALUES (1)")

	require.NoError(t, pg.Stop(t.Context()))
	require.False(t, pg.Running())
	require.NoError(t, pg.Start(t.Context()))
	require.Equal(t, dsn, pg.DSN())
	require.Equal(t, 1, query[int](t, dsn, "SELECT count(*)::int FROM kept"))

	execute(t, dsn, "INSERT INTO kept VALUES (2)")
	require.NoError(t, pg.Kill())
	require.False(t, pg.Running())
	require.NoError(t, pg.Start(t.Context()))
	require.Equal(t, 2, query[int](t, dsn, "SELECT count(*)::int FROM kept"))

	require.NoError(t, pg.StopMode(t.Context(), embedded.Immediate))
	require.NoError(t, pg.SetParam("work_mem", "12MB"))
	require.NoError(t, pg.Start(t.Context()))
	require.Equal(t, 2, query[int](t, dsn, "SELECT count(*)::int FROM kept"))
	require.Equal(t, "12MB", query[string](t, dsn, "SHOW work_mem"))
}

func TestPostgres_PauseStopsAnswersUntilResume(t *testing.T) {
	pg := start(t, embedded.PostgresConfig{})
	require.NoError(t, pg.Pause())
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := pgx.Connect(ctx, pg.DSN())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, pg.Resume())
	require.Equal(t, 1, query[int](t, pg.DSN(), "SELECT 1"))
}

func TestPostgres_CopyFromMakesAStandby(t *testing.T) {
	primary, standby := start(t, embedded.PostgresConfig{}), start(t, embedded.PostgresConfig{})
	require.ErrorContains(t, standby.CopyFrom(primary, nil), "is running")
	execute(t, primary.DSN(), "CREATE TABLE copied AS SELECT 7 AS n")
	require.NoError(t, standby.Stop(t.Context()))
	require.NoError(t, primary.Kill(), "what it had not written to its tables is in the WAL")
	require.NoError(t, standby.CopyFrom(primary, map[string]string{"standby.signal": ""}))
	require.NoError(t, standby.Start(t.Context()))
	require.Equal(t, 7, query[int](t, standby.DSN(), "SELECT n FROM copied"))
	require.True(t, query[bool](t, standby.DSN(), "SELECT pg_is_in_recovery()"))
	require.True(t, query[bool](t, standby.DSN(), "SELECT pg_promote()"))
	execute(t, standby.DSN(), "INSERT INTO copied VALUES (8)")
	require.NoError(t, primary.Start(t.Context()))
}

func TestStartPostgres_AsksForThePassword(t *testing.T) {
	pg := start(t,
		embedded.PostgresConfig{Password: "it's right",
			Params: map[string]string{"wal_level": "replica"}})
	require.Equal(t, "replica", query[string](t, pg.DSN(), "SHOW wal_level"))

	cfg, err := pgx.ParseConfig(pg.DSN())
	require.NoError(t, err)
	cfg.Password = "wrong"
	_, err = pgx.ConnectConfig(t.Context(), cfg)
	var refused *pgconn.PgError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "28P01", refused.Code)
}

func TestStartPostgres_GivesAnIdentityOfItsOwn(t *testing.T) {
	const identity = "SELECT system_identifier::text FROM pg_control_system()"
	copied, own := start(t, embedded.PostgresConfig{}),
		start(t, embedded.PostgresConfig{OwnIdentity: true})
	require.NotEqual(t, query[string](t, copied.DSN(), identity),
		query[string](t, own.DSN(), identity))
}

func TestPostgres_CloseRemovesEverything(t *testing.T) {
	dir := t.TempDir()
	pg, err := embedded.StartPostgres(t.Context(), embedded.PostgresConfig{Dir: openDir(t, dir)})
	require.NoError(t, err)
	require.DirExists(t, pg.DataDir())
	require.NoError(t, pg.Close())
	require.NoDirExists(t, pg.DataDir())
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// openDir lets the server's user into dir and its parent, which the testing package made.
func openDir(t *testing.T, dir string) string {
	t.Helper()
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

func TestStartPostgres_ShowsWhyTheServerEnded(t *testing.T) {
	_, err := embedded.StartPostgres(t.Context(),
		embedded.PostgresConfig{Params: map[string]string{"wal_level": "nonsense"}})
	require.ErrorContains(t, err, "wal_level")
}

func TestStartPostgres_RefusesAnUnknownVersion(t *testing.T) {
	_, err := embedded.StartPostgres(t.Context(), embedded.PostgresConfig{Version: "9"})
	require.ErrorContains(t, err, "14, 15, 16, 17, 18")
}

func TestStartPostgres_EndsWithItsContext(t *testing.T) {
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	_, err := embedded.StartPostgres(ctx, embedded.PostgresConfig{OwnIdentity: true})
	require.ErrorIs(t, err, cause)
}
