package parts_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts"
)

func TestMain(m *testing.M) { parts.Main(m) }

func TestPostgres_GivesEveryVersion(t *testing.T) {
	for _, version := range embedded.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			db := parts.Postgres(t, version)
			conn := db.Connect(t)
			var major, walLevel, name string
			require.NoError(t, conn.QueryRow(t.Context(),
				"SELECT (current_setting('server_version_num')::int / 10000)::text, "+
					"current_setting('wal_level'), current_database()").
				Scan(&major, &walLevel, &name))
			require.Equal(t, version, major)
			require.Equal(t, "logical", walLevel)
			require.Equal(t, db.Name, name)
		})
	}
}

func TestPostgres_SharesTheServerButNotTheDatabase(t *testing.T) {
	one, two := parts.Postgres(t, parts.AnyVersion), parts.Postgres(t, parts.AnyVersion)
	require.NotEqual(t, one.Name, two.Name)
	one.Exec(t, "CREATE TABLE mine (); INSERT INTO mine DEFAULT VALUES")
	var there bool
	require.NoError(t,
		two.Connect(t).QueryRow(t.Context(),
			"SELECT to_regclass('mine') IS NOT NULL").Scan(&there))
	require.False(t, there)
}

func TestPostgres_DropsDatabaseAndSlotsAtTheEnd(t *testing.T) {
	keep := parts.Postgres(t, parts.AnyVersion).Connect(t)
	slot := parts.Unique("slot")
	var name string
	t.Run("uses a slot", func(t *testing.T) {
		db := parts.Postgres(t, parts.AnyVersion)
		name = db.Name
		_, err := db.Connect(t).Exec(t.Context(),
			"SELECT pg_create_logical_replication_slot($1, 'pgoutput')", slot)
		require.NoError(t, err)
	})
	var left int
	require.NoError(t, keep.QueryRow(t.Context(), `SELECT
		(SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1)
		+ (SELECT count(*) FROM pg_database WHERE datname = $2)`, slot, name).Scan(&left))
	require.Zero(t, left)
}

func TestExclusivePostgres_MayBeStopped(t *testing.T) {
	pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{})
	db := parts.NewDatabase(t, pg.DSN())
	db.Exec(t, "CREATE TABLE kept ()")
	require.NoError(t, pg.Stop(t.Context()))
	require.NoError(t, pg.Start(t.Context()))
	db.Exec(t, "TABLE kept")
}
