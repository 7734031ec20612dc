package slot_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/check/checktest"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/test/parts/testdb"
)

// Tables of every kind: b is partitioned twice, c has a partition in another schema, and p has a child that is no partition.
const manyTables = `
CREATE SCHEMA s; CREATE SCHEMA "S 2";
CREATE TABLE a (id int PRIMARY KEY, gone int, x int, y int GENERATED ALWAYS AS (x + 1) STORED, z text); ALTER TABLE a DROP COLUMN gone;
CREATE TABLE b (id int, x int) PARTITION BY RANGE (id);
CREATE TABLE b_1 PARTITION OF b FOR VALUES FROM (0) TO (10);
CREATE TABLE b_2 PARTITION OF b FOR VALUES FROM (10) TO (20) PARTITION BY LIST (id);
CREATE TABLE s.b_2_1 PARTITION OF b_2 FOR VALUES IN (11);
CREATE TABLE b_2_2 PARTITION OF b_2 FOR VALUES IN (12);
CREATE TABLE c (id int, x int) PARTITION BY RANGE (id);
CREATE TABLE "S 2"."c 1" PARTITION OF c DEFAULT;
CREATE TABLE s.d (id int, x int);
CREATE TABLE p (id int); CREATE TABLE p_child () INHERITS (p);
CREATE VIEW v AS SELECT * FROM a; CREATE UNLOGGED TABLE u (id int); CREATE SEQUENCE q; CREATE TABLE s.empty ();`

var allOfThem = []string{"public.a", "public.b", "public.b_1", "public.b_2", "s.b_2_1", "public.b_2_2", "public.c", "S 2.c 1", "s.d", "public.p", "public.p_child",
	"public.v", "public.u", "s.empty"}

// published is a row of pg_publication_tables.
type published struct {
	columns []string // nil: before 15
	filter  string
	parents []string
}

// view is what the server says that it publishes.
func view(p *checktest.DB) map[string]published {
	p.T.Helper()
	rows, err := p.Conn.Query(p.T.Context(), `
		SELECT to_jsonb(t), ARRAY(SELECT format('%s.%s', an.nspname, a.relname) FROM pg_partition_ancestors(c.oid) p
			JOIN pg_class a ON a.oid = p.relid JOIN pg_namespace an ON an.oid = a.relnamespace WHERE a.oid <> c.oid)
		FROM pg_publication_tables t JOIN pg_namespace n ON n.nspname = t.schemaname JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
		WHERE t.pubname = 'postrider'`)
	require.NoError(p.T, err)
	defer rows.Close()
	found := map[string]published{}
	for rows.Next() {
		var row struct {
			Schema  string   `json:"schemaname"`
			Table   string   `json:"tablename"`
			Columns []string `json:"attnames"`
			Filter  string   `json:"rowfilter"`
		}
		var parents []string
		require.NoError(p.T, rows.Scan(&row, &parents))
		found[row.Schema+"."+row.Table] = published{row.Columns, row.Filter, parents}
	}
	require.NoError(p.T, rows.Err())
	return found
}

// requireView compares what was read of some tables with what the server says.
func requireView(p *checktest.DB, tables []string, whole map[string][]string) {
	p.T.Helper()
	got, err := slot.Inspect(p.T.Context(), p.Conn, "postrider", tables)
	require.NoError(p.T, err)
	want := view(p)
	var taken []string
	for _, table := range got.Tables {
		row, is := want[table.Name]
		if table.Partitions { // its partitions are there instead
			taken = append(taken, table.Name)
			require.False(p.T, is, table.Name)
			is = true
		}
		if table.Unlogged { // which Problems reports
			continue
		}
		require.Equal(p.T, table.Published, is, "%s: %+v", table.Name, want)
		require.Equal(p.T, row.filter, table.RowFilter, table.Name)
		columns := row.columns
		if is && (columns == nil || len(columns) > len(whole[table.Name])) {
			columns = whole[table.Name] // the view of 15 has generated columns, which 15 does not send
		}
		require.Equal(p.T, columns, table.ColumnNames, table.Name)
		lacks := func(column string) bool { return !slices.Contains(columns, column) }
		require.Equal(p.T, is && !slices.ContainsFunc(whole[table.Name], lacks), table.AllColumns, table.Name)
	}
	others, more, err := got.Others(p.T.Context(), p.Conn)
	require.NoError(p.T, err)
	if got.AllTables {
		require.Equal(p.T, []string{"all tables"}, others)
		return
	}
	for name, row := range want {
		brought := func(table string) bool { return slices.Contains(row.parents, table) }
		if slices.Contains(tables, name) || slices.ContainsFunc(taken, brought) {
			delete(want, name)
		}
	}
	var names []string
	for name := range want {
		names = append(names, name)
	}
	require.ElementsMatch(p.T, names, others)
	require.True(p.T, slices.IsSorted(others))
	require.Zero(p.T, more)
}

// The view locks every table that it lists, so what it says is read from the catalog.
func TestInspect_AgreesWithTheViewOfTheServer(t *testing.T) {
	testdb.Versions(t, testdb.All, func(t *testing.T, version string) {
		major, err := strconv.Atoi(version)
		require.NoError(t, err)
		p := checktest.Shared(t, version)
		p.Exec(manyTables)
		of := []string{"", "FOR ALL TABLES", "FOR TABLE a", "FOR TABLE a, s.d, p", "FOR TABLE ONLY p", "FOR TABLE b", "FOR TABLE b, b_1", "FOR TABLE b_1", "FOR TABLE b_2",
			"FOR TABLE b, b_2, s.b_2_1", "FOR TABLE s.b_2_1, c", `FOR TABLE "S 2"."c 1", b_2`}
		if major >= 15 {
			of = append(of, "FOR TABLE a (id, z)", "FOR TABLE a (z, id) WHERE (id > 3 AND z <> 'it''s')", "FOR TABLE a WHERE (id > 3), s.d (x)",
				"FOR TABLES IN SCHEMA s", `FOR TABLES IN SCHEMA public, "S 2"`, "FOR TABLES IN SCHEMA s, public", "FOR TABLE a WHERE (id > 3), TABLES IN SCHEMA public",
				"FOR TABLE s.b_2_1 WHERE (x > 1), TABLES IN SCHEMA public", "FOR TABLE b, b_1 WHERE (x > 1), b_2_2 WHERE (x > 2), TABLES IN SCHEMA s", "FOR TABLE b_1 WHERE (x > 1)",
				// a partitioned table has these only where rows come under its name
				"FOR TABLE b WHERE (id > 3), b_1 WHERE (x > 1)", "FOR TABLE b WHERE (id > 3), TABLES IN SCHEMA public", "FOR TABLE b (id), s.b_2_1 (x)",
				"FOR TABLE b_2 (id), b")
		}
		generated := []string{""}
		if major >= 18 {
			of = append(of, "FOR TABLE a (id, y)")
			generated = append(generated, ", publish_generated_columns = stored")
		}
		for _, tables := range of {
			for _, root := range []string{"false", "true"} {
				for _, columns := range generated {
					with := fmt.Sprintf(" WITH (publish_via_partition_root = %s%s)", root, columns)
					_, err := p.Conn.Exec(t.Context(), "CREATE PUBLICATION postrider "+tables+with)
					if root == "false" && err != nil {
						require.Equal(t, "22023", postgres.SQLState(err), tables)
						continue
					}
					require.NoError(t, err, tables)
					t.Run(tables+with, func(t *testing.T) {
						p := &checktest.DB{DB: &testdb.DB{T: t, Conn: p.Conn}}
						whole := sendable(p, columns != "")
						requireView(p, allOfThem, whole)
						for _, table := range allOfThem {
							requireView(p, []string{table}, whole)
						}
					})
					p.Exec("DROP PUBLICATION postrider")
				}
			}
		}
	})
}

// sendable are the columns of the tables that are sent without a column list.
func sendable(p *checktest.DB, generated bool) map[string][]string {
	p.T.Helper()
	rows, err := p.Conn.Query(p.T.Context(), `
		SELECT attrelid::regclass::oid::int, format('%s.%s', nspname, relname), array_agg(attname::text ORDER BY attnum)
		FROM pg_attribute JOIN pg_class c ON c.oid = attrelid JOIN pg_namespace n ON n.oid = relnamespace
		WHERE attnum > 0 AND NOT attisdropped AND (attgenerated = '' OR $1) AND c.oid >= 16384 GROUP BY 1, 2`, generated)
	require.NoError(p.T, err)
	defer rows.Close()
	found := map[string][]string{}
	for rows.Next() {
		var oid int
		var name string
		var columns []string
		require.NoError(p.T, rows.Scan(&oid, &name, &columns))
		found[name] = columns
	}
	require.NoError(p.T, rows.Err())
	return found
}

// Anybody who may create a table can lock it, and a publication of all tables has it.
func TestPublication_WaitsForNoOtherTable(t *testing.T) {
	testdb.Versions(t, testdb.All, func(t *testing.T, version string) {
		ways := []string{"FOR ALL TABLES", "FOR TABLE outbox, unrelated"}
		if version != "14" {
			ways = append(ways, "FOR TABLE outbox (id) WHERE (id > 3), unrelated", "FOR TABLES IN SCHEMA public")
		}
		for _, of := range ways {
			t.Run(of, func(t *testing.T) {
				p := checktest.Shared(t, version)
				p.Exec("CREATE TABLE outbox (id int PRIMARY KEY); CREATE TABLE unrelated (id int PRIMARY KEY); CREATE PUBLICATION postrider " + of)
				p.Exec("SELECT pg_create_logical_replication_slot($1, 'pgoutput')", p.Name)
				p.Open("LOCK TABLE unrelated IN ACCESS EXCLUSIVE MODE")
				p.Exec("SET lock_timeout = 1") // millisecond
				require.NoError(t, verify(p, "public.outbox"))
				_, err := slot.Prepare(t.Context(), p.Conn, p.Need(), false, zerolog.Nop())
				require.NoError(t, err)
				findings := check.Server(t.Context(), check.Preflight{Postgres: p.Postgres, Need: p.Need()})
				f := checktest.Finding(t, findings, "publication_tables")
				require.Contains(t, []string{"public.unrelated", "all tables"}, f.Observed)
				_, err = p.Conn.Exec(t.Context(), "SELECT FROM unrelated")
				require.Equal(t, "55P03", postgres.SQLState(err), "it is locked")
			})
		}
	})
}

func TestOthers_CountsWhatItDoesNotName(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := checktest.Shared(t, version)
		p.Exec(`DO $$ BEGIN FOR i IN 100..122 LOOP EXECUTE format('CREATE TABLE t_%s ()', i); END LOOP; END $$;
			CREATE TABLE outbox (id int); CREATE PUBLICATION postrider FOR TABLE outbox`)
		p.Exec(`DO $$ BEGIN FOR i IN 100..122 LOOP EXECUTE format('ALTER PUBLICATION postrider ADD TABLE t_%s', i); END LOOP; END $$`)
		got, err := slot.VerifyPublication(t.Context(), p.Conn, "postrider", []string{"public.outbox"})
		require.NoError(t, err)
		others, more, err := got.Others(t.Context(), p.Conn)
		require.NoError(t, err)
		require.Len(t, others, 20)
		require.Equal(t, "public.t_119", others[19])
		require.Equal(t, 3, more)
	})
}

// others are those of the publication beside the outbox.
func others(p *checktest.DB, publication *slot.Publication) []string {
	p.T.Helper()
	names, _, err := publication.Others(p.T.Context(), p.Conn)
	require.NoError(p.T, err)
	return names
}
