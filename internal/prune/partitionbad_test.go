package prune

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/test/parts"
	"github.com/postrider/postrider/test/parts/testdb"
)

// TestPartition_RefusesWhatItMustNotRemove: for each a reason, and nothing is changed.
func TestPartition_RefusesWhatItMustNotRemove(t *testing.T) {
	const recreate = "DROP TABLE outbox_1; "
	const bounds = " FOR VALUES FROM ('2026-01-01 00:00+00') TO ('2026-01-02 00:00+00')"
	for name, c := range map[string]struct{ sql, why string }{
		"a foreign key to the table": {"ALTER TABLE outbox ADD PRIMARY KEY (id, created_at); CREATE TABLE copy (i uuid, c timestamptz, FOREIGN KEY (i, c) REFERENCES outbox)",
			"is referenced by a foreign key of public.copy"},
		"a foreign key to the partition": {"ALTER TABLE outbox_1 ADD PRIMARY KEY (id); CREATE TABLE copy (i uuid REFERENCES outbox_1)", "a foreign key refers to it: public.copy"},
		"a trigger of the table": {"CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'; CREATE TRIGGER archive AFTER DELETE ON outbox FOR EACH STATEMENT EXECUTE FUNCTION f()",
			"has a trigger for DELETE or TRUNCATE, which DROP TABLE does not fire: archive"},
		"a trigger of the partition": {"CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'; CREATE TRIGGER archive AFTER DELETE ON outbox_1 FOR EACH ROW EXECUTE FUNCTION f()",
			"it has a trigger for DELETE or TRUNCATE, which DROP TABLE does not fire: archive"},
		"an unlogged partition":     {"ALTER TABLE outbox_1 SET UNLOGGED", "it is unlogged"},
		"a foreign table":           {recreate + "CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w; CREATE FOREIGN TABLE outbox_1 PARTITION OF outbox" + bounds + " SERVER s", "it is a foreign table"},
		"a partition of partitions": {recreate + "CREATE TABLE outbox_1 PARTITION OF outbox" + bounds + " PARTITION BY HASH (id)", "it is itself partitioned"},
		"a partition of another owner": {"ALTER TABLE outbox_1 OWNER TO postrider",
			`it belongs to role "postrider" and the table to "postgres": ALTER TABLE "public"."outbox_1" OWNER TO "postgres";`},
		"a view of the partition":  {"CREATE VIEW v AS SELECT id FROM outbox_1", "other objects depend on it: rule _RETURN on view public.v"},
		"a function of its type":   {"CREATE FUNCTION f(outbox_1) RETURNS int LANGUAGE sql AS 'SELECT 1'", "other objects depend on it: function public.f(public.outbox_1)"},
		"a constraint of the name": {"ALTER TABLE outbox_1 ADD CONSTRAINT postrider_pruned CHECK (false) NOT VALID", "it has a constraint postrider_pruned that postrider did not make"},
		"a pending detachment":     {"SET allow_system_table_mods = on; UPDATE pg_inherits SET inhdetachpending = true WHERE inhrelid = 'outbox_1'::regclass", "its DETACH CONCURRENTLY is pending, and postrider did not begin it"},
		"a pending detachment of its own of a partition with a trigger": {`ALTER TABLE outbox_1 ADD CONSTRAINT postrider_pruned CHECK (false) NOT VALID; DO $$ BEGIN EXECUTE format('COMMENT ON CONSTRAINT postrider_pruned ON outbox_1 IS %L',
			'{"slot":"' || (SELECT slot_name FROM pg_replication_slots WHERE database = current_database()) || '","schema":"public","table":"outbox","proven":true}'); END $$;
			CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'; CREATE TRIGGER archive AFTER DELETE ON outbox_1 FOR EACH ROW EXECUTE FUNCTION f();
			SET allow_system_table_mods = on; UPDATE pg_inherits SET inhdetachpending = true WHERE inhrelid = 'outbox_1'::regclass`, "its DETACH CONCURRENTLY is pending, and it has a trigger for DELETE or TRUNCATE"},
		"pg_partman with a retention": {partmanSQL + "INSERT INTO \"part man\".part_config VALUES ('public.outbox', '7 days')", "is pruned by pg_partman, which removes partitions after 7 days"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newPartitionRig(t, parts.AnyVersion, false)
			r.exec(t, "DROP TABLE outbox_2; "+c.sql)
			relations := count(t, r.conn, "SELECT count(*) FROM pg_class")
			constraints := count(t, r.conn, "SELECT count(*) FROM pg_constraint")
			result := r.prune(t)
			require.Empty(t, result.Removed)
			require.Len(t, result.Kept, 1, "%v", result.Kept)
			require.Contains(t, result.Kept[0].Why, c.why)
			require.Equal(t, relations, count(t, r.conn, "SELECT count(*) FROM pg_class"))
			require.Equal(t, constraints, count(t, r.conn, "SELECT count(*) FROM pg_constraint"))
		})
	}
}

func TestPartition_RefusesTablesWithoutARangeOfTimeOrID(t *testing.T) {
	t.Parallel()
	r := newPartitionRig(t, parts.AnyVersion, false)
	for by, why := range map[string]string{
		"LIST (created_at)":             "is partitioned by list or hash",
		"HASH (id)":                     "is partitioned by list or hash",
		"RANGE (created_at, id)":        "is partitioned by several columns",
		"RANGE (date_part('year', at))": "or by an expression",
		"RANGE (payload)":               `has the partition key "payload", which is neither a time`,
	} {
		r.exec(t, "DROP TABLE outbox; CREATE TABLE outbox ("+outboxColumns+", at timestamp) PARTITION BY "+by)
		run, _ := r.run(t)
		require.NoError(t, run.whole(t.Context(), 1))
		require.Len(t, run.result.Kept, 1)
		require.Contains(t, run.result.Kept[0].Why, why)
	}
}

func TestPartition_NamesTheRightThatIsMissing(t *testing.T) {
	t.Parallel()
	r := newPartitionRig(t, parts.AnyVersion, false)
	db := &testdb.DB{T: t, Conn: r.conn, DSN: dsn(t, r.cfg)}
	role := parts.Unique("role")
	cfg := db.Role(role)
	defer r.exec(t, "DROP OWNED BY "+role+"; DROP ROLE "+role)
	conn, err := postgres.ConnectRows(t.Context(), cfg)
	require.NoError(t, err)
	defer postgres.CloseBoth(conn)
	table, err := readPartitioned(t.Context(), conn, "public", "outbox", nil)
	require.NoError(t, err)
	run := &partitionRun{conn: conn, table: table, result: &PartitionReport{}}
	require.NoError(t, run.whole(t.Context(), 1))
	require.Len(t, run.result.Kept, 1)
	require.Contains(t, run.result.Kept[0].Why, `GRANT "postgres" TO "`+role+`";`)
}

// TestPartition_DropsNoTableOfAnother: a role that may create tables makes one look like a detached partition.
func TestPartition_DropsNoTableOfAnother(t *testing.T) {
	t.Parallel()
	r := newPartitionRig(t, parts.AnyVersion, false)
	forged := func(table, owner, slot, parent string, proven string) {
		r.exec(t, "CREATE TABLE "+table+" (); ALTER TABLE "+table+" ADD CONSTRAINT postrider_pruned CHECK (false) NOT VALID; COMMENT ON CONSTRAINT postrider_pruned ON "+table+
			` IS '{"slot":"`+slot+`","schema":"public","table":"`+parent+`","proven":`+proven+"}'; ALTER TABLE "+table+" OWNER TO "+owner)
	}
	forged("forged", "postrider", r.slot, "outbox", "true")
	forged("of_another_slot", "postgres", "other", "outbox", "true")
	forged("of_another_table", "postgres", r.slot, "other", "true")
	forged("unproven", "postgres", r.slot, "outbox", "false")
	r.exec(t, "CREATE TABLE unmarked (); ALTER TABLE unmarked ADD CONSTRAINT postrider_pruned CHECK (false) NOT VALID")
	forged("ours", "postgres", r.slot, "outbox", "true")
	run, _ := r.run(t)
	require.NoError(t, run.whole(t.Context(), 0))
	require.Equal(t, []string{`"public"."ours"`}, run.result.Removed)
	require.Len(t, run.result.Kept, 1)
	require.Contains(t, run.result.Kept[0].Why, "before its rows were proven to be delivered")
	for _, table := range strings.Fields("forged of_another_slot of_another_table unproven unmarked") {
		require.NotNil(t, query[*string](t, r.conn, "SELECT to_regclass($1)::text", table), table)
	}
}

// partmanSQL makes the table of the extension pg_partman, which the servers of the tests do not have.
const partmanSQL = `CREATE SCHEMA "part man"; CREATE TABLE "part man".part_config (parent_table text, retention text);
	SET allow_system_table_mods = on;
	INSERT INTO pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion) VALUES (99999, 'pg_partman', 10, '"part man"'::regnamespace, false, '5');
	INSERT INTO pg_depend (classid, objid, objsubid, refclassid, refobjid, refobjsubid, deptype)
		VALUES ('pg_class'::regclass, '"part man".part_config'::regclass, 0, 'pg_extension'::regclass, 99999, 0, 'e');`

func TestPartition_LeavesCreatingToPartman(t *testing.T) {
	t.Parallel()
	r := newPartitionRig(t, parts.AnyVersion, false)
	r.exec(t, partmanSQL+`INSERT INTO "part man".part_config VALUES ('public.outbox', NULL)`)
	result := r.pruneUntil(t, 2)
	require.Empty(t, result.Kept)
	require.Empty(t, result.Created)
}

// A table of the name that is not the extension's says nothing.
func TestPartition_IgnoresAForgedConfigurationOfPartman(t *testing.T) {
	t.Parallel()
	r := newPartitionRig(t, parts.AnyVersion, false)
	r.exec(t, "CREATE TABLE part_config (parent_table text, retention text); INSERT INTO part_config VALUES ('public.outbox', '7 days')")
	require.Len(t, r.pruneUntil(t, 2).Removed, 2)
}
