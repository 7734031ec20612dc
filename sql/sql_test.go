package sql_test

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/sql"
	"github.com/postrider/postrider/test/parts"
)

func TestMain(m *testing.M) { parts.Main(m) }

func database(t *testing.T) *pgx.Conn {
	t.Helper()
	return parts.Postgres(t, "14").Connect(t) // the oldest: what it takes, all take
}

func TestOutbox_EveryPresetRunsTwiceAndTakesARow(t *testing.T) {
	for _, name := range []struct{ schema, table string }{{"public", "outbox"}, {"my shop", "Order Events"}, {"my shop", "100%"}} {
		for _, preset := range sql.Presets() {
			t.Run(preset+" "+name.table, func(t *testing.T) {
				conn := database(t)
				_, err := conn.Exec(t.Context(), `CREATE SCHEMA "my shop"`)
				require.NoError(t, err)
				script, err := sql.Outbox(preset, name.schema, name.table)
				require.NoError(t, err)
				for range 2 {
					_, err = conn.Exec(t.Context(), script)
					require.NoError(t, err)
				}
				table := pgx.Identifier{name.schema, name.table}.Sanitize()
				columns := "aggregate_type, aggregate_id, event_type"
				if preset == sql.Debezium {
					columns = "aggregatetype, aggregateid, type"
				}
				_, err = conn.Exec(t.Context(), "INSERT INTO "+table+" ("+columns+", payload) VALUES ('order', '7', 'OrderCreated', '{}')")
				require.NoError(t, err)
				var id string
				require.NoError(t, conn.QueryRow(t.Context(), "SELECT id::text FROM "+table).Scan(&id))
				require.Len(t, id, 36)
			})
		}
	}
}

// partitioned runs the script of the partitioned outbox, and returns it and what counts the partitions.
func partitioned(t *testing.T, conn *pgx.Conn) (script string, count func() int) {
	t.Helper()
	script, err := sql.Outbox(sql.Partitioned, "public", "outbox")
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), script)
	require.NoError(t, err)
	return script, func() (n int) {
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_inherits WHERE inhparent = 'outbox'::regclass").Scan(&n))
		return n
	}
}

func TestOutbox_PartitionsComeAndGo(t *testing.T) {
	conn := database(t)
	_, count := partitioned(t, conn)
	require.Equal(t, 9, count(), "today, seven days to come, and the default")
	_, err := conn.Exec(t.Context(), `CREATE TABLE outbox_20200101 PARTITION OF outbox FOR VALUES FROM ('2020-01-01 00:00Z') TO ('2020-01-02 00:00Z')`)
	require.NoError(t, err)
	insert := `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, created_at) VALUES ('order', '7', 'OrderCreated', $1)`
	for _, at := range []time.Time{time.Now(), time.Now().Add(20 * 24 * time.Hour)} {
		_, err = conn.Exec(t.Context(), insert, at)
		require.NoError(t, err)
	}
	var inDefault int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM outbox_default").Scan(&inDefault))
	require.Equal(t, 1, inDefault)
	_, err = conn.Exec(t.Context(), "SELECT outbox_maintain(keep => interval '7 days')")
	require.NoError(t, err)
	require.Equal(t, 9, count(), "the old day is gone, nothing else")
	_, err = conn.Exec(t.Context(), "SELECT outbox_maintain(ahead => 21)")
	require.NoError(t, err)
	require.Equal(t, 9+13, count(), "but for the day that the default partition holds already")
}

func TestOutbox_MaintenanceDropsWhatItMadeAlone(t *testing.T) {
	conn := database(t)
	script, err := sql.Outbox(sql.Partitioned, "public", "outbox")
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), script+`;
		CREATE SCHEMA archive;
		CREATE TABLE archive.outbox_20200101 PARTITION OF public.outbox FOR VALUES FROM ('2020-01-01 00:00Z') TO ('2020-01-02 00:00Z');
		CREATE TABLE public.outbox_20200101 (no_partition text);
		CREATE TABLE public.else_20200102 PARTITION OF public.outbox FOR VALUES FROM ('2020-01-02 00:00Z') TO ('2020-01-03 00:00Z');
		CREATE TABLE public.outbox_00000000 PARTITION OF public.outbox FOR VALUES FROM ('2020-01-03 00:00Z') TO ('2020-01-04 00:00Z');
		CREATE TABLE public.outbox_20200105 PARTITION OF public.outbox FOR VALUES FROM ('2020-01-05 00:00Z') TO ('2020-01-06 00:00Z')`)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "SELECT public.outbox_maintain(7, interval '7 days')")
	require.NoError(t, err)
	for table, there := range map[string]bool{
		"archive.outbox_20200101": true, "public.outbox_20200101": true, "public.else_20200102": true, "public.outbox_00000000": true,
		"public.outbox_20200105": false,
	} {
		var is bool
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT to_regclass($1) IS NOT NULL", table).Scan(&is))
		require.Equal(t, there, is, table)
	}
}

// What somebody has made by hand under the name of a day may hold rows of other days.
func TestOutbox_MaintenanceDropsPartitionsOfOneDayAlone(t *testing.T) {
	for _, version := range []string{"14", "18"} {
		t.Run(version, func(t *testing.T) {
			conn := parts.Postgres(t, version).Connect(t)
			script, err := sql.Outbox(sql.Partitioned, "public", "outbox")
			require.NoError(t, err)
			_, err = conn.Exec(t.Context(), script+`;
				ALTER TABLE public.outbox DETACH PARTITION public.outbox_default;
				DO $$ BEGIN EXECUTE (SELECT string_agg(format('DROP TABLE %s', inhrelid::regclass), ';') FROM pg_inherits WHERE inhparent = 'outbox'::regclass); END $$;
				CREATE TABLE outbox_20200105 PARTITION OF outbox FOR VALUES FROM ('2020-01-05 00:00Z') TO ('2020-01-06 00:00Z');
				CREATE TABLE outbox_20200107 PARTITION OF outbox FOR VALUES FROM ('2020-01-07 00:00Z') TO ('2020-01-07 12:00Z');
				CREATE TABLE outbox_20200108 PARTITION OF outbox FOR VALUES FROM ('2020-01-09 00:00Z') TO ('2020-01-10 00:00Z');
				CREATE TABLE outbox_20200112 PARTITION OF outbox FOR VALUES FROM ('2020-01-12 00:00+01') TO ('2020-01-13 00:00+01');
				CREATE TABLE outbox_20200231 PARTITION OF outbox FOR VALUES FROM ('2020-02-28 00:00Z') TO ('2020-02-29 00:00Z');
				CREATE TABLE outbox_20200401 PARTITION OF outbox FOR VALUES FROM ('2020-04-01 00:00Z') TO ('3000-01-01 00:00Z');
				CREATE TABLE outbox_20200102 PARTITION OF outbox FOR VALUES FROM (MINVALUE) TO ('2020-01-03 00:00Z');
				INSERT INTO outbox (aggregate_type, aggregate_id, event_type) VALUES ('order', '7', 'OrderCreated');
				SET timezone = 'America/New_York'; SET datestyle = 'SQL, DMY'`)
			require.NoError(t, err)
			_, err = conn.Exec(t.Context(), "SELECT public.outbox_maintain(-1, interval '7 days')")
			require.NoError(t, err)
			var left []string
			require.NoError(t, conn.QueryRow(t.Context(), `SELECT array_agg(inhrelid::regclass::text)
				FROM pg_inherits WHERE inhparent = 'outbox'::regclass`).Scan(&left))
			require.ElementsMatch(t, []string{"outbox_20200102", "outbox_20200107", "outbox_20200108", "outbox_20200112", "outbox_20200231", "outbox_20200401"}, left)
		})
	}
}

// What stands in the place of the default partition may be that partition, with rows that nobody has published.
func TestOutbox_ADetachedDefaultPartitionIsAttachedAgain(t *testing.T) {
	conn := database(t)
	for _, table := range []string{"outbox", "Order Events"} {
		script, err := sql.Outbox(sql.Partitioned, "public", table)
		require.NoError(t, err)
		quoted, rest := pgx.Identifier{table}.Sanitize(), pgx.Identifier{table + "_default"}.Sanitize()
		_, err = conn.Exec(t.Context(), script+"; ALTER TABLE "+quoted+" DETACH PARTITION "+rest)
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), "INSERT INTO "+rest+" (id, aggregate_type, aggregate_id, event_type, created_at) "+
			"VALUES (gen_random_uuid(), 'order', '7', 'OrderCreated', '3000-01-01')")
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), script)
		refused := new(pgconn.PgError)
		require.ErrorAs(t, err, &refused)
		require.NotContains(t, strings.ToLower(refused.Hint), "drop")
		advised := regexp.MustCompile(`ALTER TABLE .* DEFAULT;`).FindString(refused.Hint)
		require.NotEmpty(t, advised, refused.Hint)
		_, err = conn.Exec(t.Context(), "ROLLBACK; "+advised)
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), script)
		require.NoError(t, err)
		var rows int
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM "+quoted).Scan(&rows))
		require.Equal(t, 1, rows)
	}
}

// PostgreSQL reads the default partition with writers kept out, once for each partition that is made.
func TestOutbox_NoPartitionIsMadeBesideALargeDefaultPartition(t *testing.T) {
	var warnings []*pgconn.Notice
	cfg, err := pgx.ParseConfig(parts.Postgres(t, "14").DSN())
	require.NoError(t, err)
	cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if n.Severity == "WARNING" {
			warnings = append(warnings, n)
		}
	}
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	script, count := partitioned(t, conn)
	require.Equal(t, 9, count())
	_, err = conn.Exec(t.Context(), `ALTER TABLE outbox_default ALTER payload SET STORAGE PLAIN;
		INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, created_at)
		SELECT 'order', '7', 'OrderCreated', to_jsonb(repeat('x', 7000)), now() - interval '9 days' FROM generate_series(1, 8193)`) // a page each
	require.NoError(t, err)
	for _, statement := range []string{"SELECT outbox_maintain(7, NULL)", script} {
		_, err = conn.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	require.Empty(t, warnings, "there is nothing to make")
	_, err = conn.Exec(t.Context(), "CREATE TABLE outbox_20200101 PARTITION OF outbox FOR VALUES FROM ('2020-01-01 00:00Z') TO ('2020-01-02 00:00Z'); SELECT outbox_maintain(9, interval '7 days')")
	require.NoError(t, err)
	require.Equal(t, 9, count(), "two more days are not made, and the old one is dropped")
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0].Message, "outbox_default is larger than 64 MB")
	_, fix, _ := strings.Cut(warnings[0].Hint, "no backlog: ")
	for _, statement := range []string{fix, "SELECT outbox_maintain(9, NULL)"} {
		_, err = conn.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	require.Equal(t, 11, count())
	require.Len(t, warnings, 1)
	var apart int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM outbox_default_"+time.Now().UTC().Format("20060102")).Scan(&apart))
	require.Equal(t, 8193, apart)
}

// Days are those of UTC, whatever the time zone of who calls the maintenance, and no row goes before it is as old as keep.
func TestOutbox_DaysAreThoseOfUTC(t *testing.T) {
	for _, zone := range []string{"UTC", "Pacific/Kiritimati", "Etc/GMT+12"} { // fourteen hours ahead, and twelve behind: it is always another day in one of them
		t.Run(zone, func(t *testing.T) {
			conn := database(t)
			script, err := sql.Outbox(sql.Partitioned, "public", "outbox")
			require.NoError(t, err)
			_, err = conn.Exec(t.Context(), "SET timezone = '"+zone+"'; "+script)
			require.NoError(t, err)
			for _, at := range []string{"00:00:00", "23:59:59.999999"} {
				var itsDay bool
				require.NoError(t, conn.QueryRow(t.Context(), `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, created_at)
					SELECT 'order', '7', 'OrderCreated', ((now() AT TIME ZONE 'UTC')::date + 1 + $1::text::time) AT TIME ZONE 'UTC'
					RETURNING tableoid::regclass::text = 'outbox_' || to_char(created_at AT TIME ZONE 'UTC', 'YYYYMMDD')`, at).Scan(&itsDay))
				require.True(t, itsDay, at)
			}

			_, err = conn.Exec(t.Context(), `BEGIN; -- in which now() is one moment
				CREATE FUNCTION pg_temp.partition(ago int) RETURNS text AS $$ SELECT 'outbox_' || to_char((now() AT TIME ZONE 'UTC')::date - ago, 'YYYYMMDD') $$ LANGUAGE sql;
				DO $$ BEGIN FOR ago IN 7..8 LOOP
					EXECUTE format('CREATE TABLE %I PARTITION OF outbox FOR VALUES FROM (%L) TO (%L)', pg_temp.partition(ago),
						((now() AT TIME ZONE 'UTC')::date - ago)::timestamp AT TIME ZONE 'UTC', ((now() AT TIME ZONE 'UTC')::date - ago + 1)::timestamp AT TIME ZONE 'UTC');
				END LOOP; END $$;
				SELECT outbox_maintain(7, interval '7 days')`)
			require.NoError(t, err)
			var kept, dropped bool
			require.NoError(t, conn.QueryRow(t.Context(), `SELECT to_regclass(pg_temp.partition(7)) IS NOT NULL, to_regclass(pg_temp.partition(8)) IS NULL`).Scan(&kept, &dropped))
			require.True(t, kept, "the end of that day is not seven days old")
			require.True(t, dropped)
		})
	}
}

// A row must find a partition whatever other tables have their names.
func TestOutbox_ATableInThePlaceOfAPartitionIsNoPartition(t *testing.T) {
	conn := database(t)
	script, err := sql.Outbox(sql.Partitioned, "public", "outbox")
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), `CREATE TABLE outbox_default (x int);
		DO $$ BEGIN EXECUTE format('CREATE TABLE outbox_%s (x int)', to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')); END $$`)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), script)
	require.ErrorContains(t, err, "outbox_default exists and is no partition")
	_, err = conn.Exec(t.Context(), "ROLLBACK; DROP TABLE outbox_default")
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), script)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "INSERT INTO outbox (aggregate_type, aggregate_id, event_type) VALUES ('order', '7', 'OrderCreated')")
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "ALTER TABLE outbox DETACH PARTITION outbox_default")
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "SELECT outbox_maintain(7, NULL)")
	require.ErrorContains(t, err, "already exists", "there is nothing to take its rows")
}

func TestPublication_IsWhatInitMakes(t *testing.T) {
	require.Contains(t, sql.Publication(), "\nCREATE PUBLICATION postrider FOR TABLE public.outbox WITH (publish = 'insert', publish_via_partition_root = true);\n")
	require.Equal(t, `CREATE PUBLICATION "postrider" FOR TABLE "public"."outbox" WITH (publish = 'insert', publish_via_partition_root = true);`,
		slot.CreatePublicationSQL("postrider", []string{"public.outbox"}))
	conn := database(t)
	script, err := sql.Outbox(sql.Plain, "public", "outbox")
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), script+sql.Publication()+sql.Role())
	require.NoError(t, err)
	_, err = slot.VerifyPublication(t.Context(), conn, "postrider", []string{"public.outbox"})
	require.NoError(t, err)
}

func TestPrune_RunsTwice(t *testing.T) {
	conn := database(t)
	script, err := sql.Outbox(sql.Plain, "public", "outbox")
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), script+sql.Role()+sql.Prune()+sql.Prune())
	require.NoError(t, err)
	var may bool
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT has_table_privilege('postrider', 'outbox', 'SELECT') AND has_table_privilege('postrider', 'outbox', 'DELETE')
		AND has_any_column_privilege('postrider', 'outbox', 'UPDATE') AND NOT has_table_privilege('postrider', 'outbox', 'UPDATE')
		AND has_table_privilege('postrider', 'postrider_prune', 'SELECT, INSERT, UPDATE, DELETE')`).Scan(&may))
	require.True(t, may)
}

func TestWriteBack_RunsTwiceAndGrantsColumnsAlone(t *testing.T) {
	conn := database(t)
	script, err := sql.Outbox(sql.Plain, "public", "outbox")
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), script+"ALTER TABLE outbox ADD published_at timestamptz;"+sql.Role()+sql.WriteBack()+sql.WriteBack())
	require.NoError(t, err)
	var may bool
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT has_table_privilege('postrider', 'outbox', 'SELECT') AND NOT has_table_privilege('postrider', 'outbox', 'DELETE')
		AND has_column_privilege('postrider', 'outbox', 'published_at', 'UPDATE') AND NOT has_column_privilege('postrider', 'outbox', 'payload', 'UPDATE')
		AND has_table_privilege('postrider', 'postrider_prune', 'SELECT, INSERT, UPDATE, DELETE')`).Scan(&may))
	require.True(t, may)
}

func TestOutbox_RefusesNamesThatCouldEndTheirQuotes(t *testing.T) {
	for _, name := range []string{"", `a"b`, "a'b", "a$b", `a\b`, "a.b", "a\nb", string(make([]byte, 60))} {
		_, err := sql.Outbox(sql.Plain, "public", name)
		require.Error(t, err, name)
		_, err = sql.Outbox(sql.Plain, name, "outbox")
		if len(name) < 60 {
			require.Error(t, err, name)
		}
	}
	_, err := sql.Outbox("fancy", "public", "outbox")
	require.ErrorContains(t, err, "plain, partitioned, debezium")
}
