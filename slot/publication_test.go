package slot_test

import (
	"bytes"
	"context"
	"net"
	"regexp"
	"strings"
	"testing"

	"github.com/postrider/postrider/test/parts/testdb"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/check/checktest"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/sql"
)

func verify(p *checktest.DB, tables ...string) error {
	_, err := slot.VerifyPublication(p.T.Context(), p.Conn, "postrider", tables)
	return err
}

// repair runs the SQL that an error advises, and expects it to help.
func repair(p *checktest.DB, err error, tables ...string) {
	p.T.Helper()
	var problem *slot.PublicationError
	require.ErrorAs(p.T, err, &problem)
	require.NotEmpty(p.T, problem.SQL, problem.Error())
	p.Exec(problem.SQL)
	require.NoError(p.T, verify(p, tables...))
}

func TestPublication_ProblemsAreRepairedByTheirSQL(t *testing.T) {
	const plain = "CREATE TABLE outbox (id int PRIMARY KEY)"
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		for _, c := range []struct{ name, setup, text string }{
			{"missing", plain, "does not exist"},
			{"without the table", plain + "; CREATE PUBLICATION postrider WITH (publish = 'insert')", "is not in publication"},
			{"without inserts", plain + "; CREATE PUBLICATION postrider FOR TABLE outbox WITH (publish = 'delete')", "does not publish inserts"},
			{"partitioned by its partitions", `CREATE TABLE outbox (id int) PARTITION BY RANGE (id);
				CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES FROM (0) TO (9);
				CREATE PUBLICATION postrider FOR TABLE outbox_1`, "partitioned"},
		} {
			t.Run(c.name, func(t *testing.T) {
				p := checktest.Shared(t, version)
				p.Exec(c.setup)
				err := verify(p, "public.outbox")
				require.ErrorContains(t, err, c.text)
				repair(p, err, "public.outbox")
			})
		}
	})
}

// TestPublication_RefusesATableNumberThatWasNotAsked changes the answers on their way, as a damaged
// connection does.
func TestPublication_RefusesATableNumberThatWasNotAsked(t *testing.T) {
	p := checktest.Shared(t, "17")
	p.Exec("CREATE TABLE outbox (id int PRIMARY KEY); CREATE PUBLICATION postrider FOR TABLE outbox")
	for _, number := range []string{"0", "2"} {
		config := p.Conn.Config().Copy()
		dial := config.DialFunc
		config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			return &changing{conn, []byte(`{"n": 1, "acl"`), []byte(`{"n": ` + number + `, "acl"`)}, err
		}
		config.Fallbacks = nil
		conn, err := pgx.ConnectConfig(t.Context(), config)
		require.NoError(t, err)
		_, err = slot.VerifyPublication(t.Context(), conn, "postrider", []string{"public.outbox"})
		require.ErrorContains(t, err, "the server returned a row for table number "+number+" of 1")
		require.NoError(t, conn.Close(t.Context()))
	}
}

// changing replaces bytes by as many others in what is read.
type changing struct {
	net.Conn
	old, new []byte
}

func (c *changing) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	copy(b, bytes.ReplaceAll(b[:n], c.old, c.new))
	return n, err
}

func TestPublication_PartitionedTableComesUnderTheRoot(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := checktest.Shared(t, version)
		script, err := sql.Outbox(sql.Partitioned, "public", "outbox")
		require.NoError(t, err)
		p.Exec(script)
		created, err := slot.EnsurePublication(t.Context(), p.Conn, "postrider", []string{"public.outbox"})
		require.NoError(t, err)
		require.True(t, created)
		require.NoError(t, verify(p, "public.outbox"))
		require.ErrorContains(t, verify(p, "public.outbox_default"), "name of public.outbox")
	})
}

func TestPublication_SeesWhatCannotBeRepaired(t *testing.T) {
	p := checktest.Shared(t, "17")
	p.Exec(`CREATE TABLE outbox (id int); CREATE VIEW seen AS SELECT * FROM outbox; CREATE UNLOGGED TABLE unsafe (id int)`)
	p.Exec(`CREATE PUBLICATION postrider FOR ALL TABLES`)
	require.NoError(t, verify(p, "public.outbox"))
	require.ErrorContains(t, verify(p, "public.outbox", "public.absent"), "does not exist")
	require.ErrorContains(t, verify(p, "public.seen"), "is not a table")
	err := verify(p, "public.unsafe")
	require.ErrorContains(t, err, "unlogged")
	repair(p, err, "public.unsafe")
}

func TestInspect_ReportsFiltersListsAndOthers(t *testing.T) {
	p := checktest.Shared(t, "18")
	p.Exec(`CREATE TABLE outbox (id int, a int, b int GENERATED ALWAYS AS (a + 1) STORED, c text); CREATE TABLE other (id int)`)
	p.Exec(`CREATE PUBLICATION postrider FOR TABLE outbox (id, c) WHERE (id > 3), other WITH (publish = 'insert, update')`)
	got, err := slot.Inspect(t.Context(), p.Conn, "postrider", []string{"public.outbox"})
	require.NoError(t, err)
	require.Empty(t, got.Problems())
	require.Equal(t, []string{"public.other"}, others(p, got))
	require.Equal(t, []string{"id", "c"}, got.Tables[0].ColumnNames)
	require.False(t, got.Tables[0].AllColumns)
	require.Equal(t, "(id > 3)", got.Tables[0].RowFilter)
	require.True(t, got.Update)

	findings := check.Server(t.Context(), check.Preflight{Postgres: p.Postgres, Need: p.Need()})
	for _, code := range []string{"row_filter", "publication_tables", "publication_publish"} {
		f := checktest.Finding(t, findings, code)
		require.Equal(t, check.SeverityWarning, f.Severity, code)
	}
	p.Exec(checktest.Finding(t, findings, "publication_publish").Fix)
	p.Exec(checktest.Finding(t, findings, "publication_tables").Fix)
	got, err = slot.Inspect(t.Context(), p.Conn, "postrider", []string{"public.outbox"})
	require.NoError(t, err)
	require.Empty(t, others(p, got))
	require.False(t, got.Update)
	require.Equal(t, []string{"id", "a", "c"}, got.Tables[0].ColumnNames)
	require.True(t, got.Tables[0].AllColumns)
}

func TestInspect_Reads14WithoutItsMissingColumns(t *testing.T) {
	p := checktest.Shared(t, "14")
	p.Exec(`CREATE TABLE outbox (id int, a int, b int GENERATED ALWAYS AS (a + 1) STORED)`)
	p.Exec(slot.CreatePublicationSQL("postrider", []string{"public.outbox"}))
	got, err := slot.Inspect(t.Context(), p.Conn, "postrider", []string{"public.outbox"})
	require.NoError(t, err)
	require.Equal(t, []string{"id", "a"}, got.Tables[0].ColumnNames)
	require.True(t, got.Tables[0].AllColumns)
}

func TestPublication_QuotesNames(t *testing.T) {
	p := checktest.Shared(t, "17")
	p.Exec(`CREATE SCHEMA "My Shop"; CREATE TABLE "My Shop"."Out""box" (id int)`)
	_, err := slot.EnsurePublication(t.Context(), p.Conn, `Post"rider`, []string{`My Shop.Out"box`})
	require.NoError(t, err)
	created, err := slot.EnsurePublication(t.Context(), p.Conn, `Post"rider`, []string{`My Shop.Out"box`})
	require.NoError(t, err)
	require.False(t, created)
	_, err = slot.VerifyPublication(t.Context(), p.Conn, `Post"rider`, []string{`My Shop.Out"box`})
	require.NoError(t, err)
}

func TestEnsurePublication_NeedsTheOwner(t *testing.T) {
	p := checktest.Shared(t, "17")
	p.Exec("CREATE TABLE outbox (id int)")
	p.Exec("CREATE ROLE stranger_" + p.Name + " LOGIN")
	p.Exec("SET ROLE stranger_" + p.Name)
	_, err := slot.EnsurePublication(t.Context(), p.Conn, "postrider", []string{"public.outbox"})
	require.ErrorIs(t, err, postgres.ErrPermission)
	require.Contains(t, advice(t, err), "CREATE PUBLICATION")
	p.Exec("RESET ROLE")
}

// foreign makes an outbox, and a publication without it that belongs to a role which has no right to the table.
func foreign(p *checktest.DB) (role string) {
	p.T.Helper()
	role = "another_" + p.Name
	p.Role(role)
	p.Exec(`CREATE TABLE outbox (id int PRIMARY KEY); CREATE PUBLICATION postrider; ALTER PUBLICATION postrider OWNER TO ` + role)
	return role
}

// A superuser may change every publication, so that nothing but its owner tells who made it.
func TestAddTables_LeavesAPublicationOfAnotherRoleAlone(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := checktest.Shared(t, version)
		role := foreign(p)
		p.Exec(`CREATE ROLE second_` + p.Name + `; ALTER TABLE outbox OWNER TO second_` + p.Name)
		p.Exec(`CREATE ROLE third_` + p.Name + `; CREATE TABLE tasks (id int PRIMARY KEY); ALTER TABLE tasks OWNER TO third_` + p.Name)
		tables := []string{"public.outbox", "public.tasks"}
		_, err := slot.AddTables(t.Context(), p.Conn, "postrider", tables)
		require.ErrorIs(t, err, slot.ErrForeign)
		require.ErrorContains(t, err, role)
		advised := new(slot.Error)
		require.ErrorAs(t, err, &advised)
		_, sql, _ := strings.Cut(advised.Fix, "\n")
		p.Exec(sql)
		added, err := slot.AddTables(t.Context(), p.Conn, "postrider", tables)
		require.NoError(t, err, "whoever owns the tables")
		require.Equal(t, tables, added)

		tables = tables[:1]
		p.Exec(`ALTER PUBLICATION postrider DROP TABLE outbox; ALTER TABLE outbox OWNER TO ` + role + `; ALTER PUBLICATION postrider OWNER TO ` + role)
		added, err = slot.AddTables(t.Context(), p.Conn, "postrider", tables)
		require.NoError(t, err, "the owner of the table decides about its rows")
		require.Equal(t, tables, added)
	})
}

func TestEnsurePublicationSQL_LeavesAPublicationOfAnotherRoleAlone(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := checktest.Shared(t, version)
		role := foreign(p)
		script := slot.EnsurePublicationSQL("postrider", []string{"public.outbox"})
		_, err := p.Conn.Exec(t.Context(), script)
		refused := new(pgconn.PgError)
		require.ErrorAs(t, err, &refused)
		require.Contains(t, refused.Message, "publication postrider, which belongs to role "+role+": ")
		require.ErrorContains(t, verify(p, "public.outbox"), "is not in publication")
		p.Exec(regexp.MustCompile(`ALTER PUBLICATION .*;`).FindString(refused.Hint))
		for range 2 {
			p.Exec(script)
			require.NoError(t, verify(p, "public.outbox"))
		}

		p.Exec(`ALTER PUBLICATION postrider DROP TABLE outbox; ALTER TABLE outbox OWNER TO ` + role + `; ALTER PUBLICATION postrider OWNER TO ` + role)
		p.Exec(script)
		require.NoError(t, verify(p, "public.outbox"), "the owner of the table decides about its rows")

		p.Exec(`ALTER PUBLICATION postrider DROP TABLE outbox; CREATE ROLE third_` + p.Name + `; GRANT third_` + p.Name + ` TO ` + role + `;
			ALTER TABLE outbox OWNER TO third_` + p.Name + `; SET ROLE ` + role)
		p.Exec(script)
		p.Exec(`RESET ROLE`)
		require.NoError(t, verify(p, "public.outbox"), "the owner of the publication may do so by his own right")
	})
}

// What is advised is typed by a superuser, too.
func TestVerifyPublication_AdvisesNoTableForAPublicationOfAnotherRole(t *testing.T) {
	const partitioned = `ALTER TABLE outbox RENAME TO outbox_1; CREATE TABLE outbox (LIKE outbox_1) PARTITION BY RANGE (id);
		ALTER TABLE outbox ATTACH PARTITION outbox_1 DEFAULT`
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		for setup, text := range map[string]string{"": "is not in publication", partitioned: "is partitioned"} {
			p := checktest.Shared(t, version)
			role := foreign(p)
			p.Exec(setup)
			relay, err := postgres.Connect(t.Context(), p.Role("relay_"+p.Name))
			require.NoError(t, err)
			defer func() { _ = relay.Close(context.Background()) }()
			var super string
			require.NoError(t, p.Conn.QueryRow(t.Context(), "SELECT current_user::text").Scan(&super))
			for conn, to := range map[*pgx.Conn]string{relay: "CURRENT_USER", p.Conn: `"` + super + `"`} {
				_, err = slot.VerifyPublication(t.Context(), conn, "postrider", []string{"public.outbox"})
				require.ErrorContains(t, err, text)
				require.ErrorContains(t, err, `, which belongs to role "`+role+`"`)
				problem := new(slot.PublicationError)
				require.ErrorAs(t, err, &problem)
				require.Regexp(t, `ALTER PUBLICATION "postrider" OWNER TO `+to+`; ALTER PUBLICATION "postrider" ADD TABLE .* -- .*replication\.publication`,
					problem.SQL)
				p.Exec("BEGIN; " + problem.SQL)
				require.NoError(t, verify(p, "public.outbox"))
				p.Exec("ROLLBACK")
			}

			p.Exec("REVOKE SELECT ON pg_catalog.pg_roles FROM PUBLIC")
			_, err = slot.VerifyPublication(t.Context(), relay, "postrider", []string{"public.outbox"})
			require.ErrorContains(t, err, text, "with less advice")
		}
	})
}

// What check advises against other tables puts the outbox into the publication, too.
func TestCheck_AdvisesNoTableForAPublicationOfAnotherRole(t *testing.T) {
	p := checktest.Shared(t, "18")
	foreign(p)
	p.Exec("CREATE TABLE other (id int); ALTER PUBLICATION postrider ADD TABLE other")
	findings := check.Server(t.Context(), check.Preflight{Postgres: p.Postgres, Need: p.Need()})
	for _, code := range []string{"table", "publication_tables"} {
		require.Contains(t, checktest.Finding(t, findings, code).Fix, " OWNER TO ", code)
	}
	p.Heal(checktest.Finding(t, findings, "publication_tables"))
	require.NoError(t, verify(p, "public.outbox"))
}

func TestRelation_DescribesWhatTheStreamWillBring(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := checktest.Shared(t, version)
		p.Exec(`CREATE TABLE outbox (id int PRIMARY KEY, gone int, "Name" varchar(9), twice int GENERATED ALWAYS AS (id * 2) STORED);
			ALTER TABLE outbox DROP COLUMN gone`)
		rel, err := slot.Relation(t.Context(), p.Conn, "public.outbox")
		require.NoError(t, err)
		require.NotZero(t, rel.OID)
		require.Equal(t, []replication.Column{
			{Name: "id", TypeOID: 23, TypeMod: -1, Key: true},
			{Name: "Name", TypeOID: 1043, TypeMod: 13},
		}, rel.Columns)
		_, err = slot.Relation(t.Context(), p.Conn, "public.absent")
		require.ErrorContains(t, err, "does not exist")

		p.Exec(`ALTER TABLE outbox REPLICA IDENTITY FULL`)
		rel, err = slot.Table{Name: "public.outbox", ColumnNames: []string{"Name"}}.Relation(t.Context(), p.Conn)
		require.NoError(t, err)
		require.Equal(t, []replication.Column{{Name: "Name", TypeOID: 1043, TypeMod: 13, Key: true}}, rel.Columns)
	})
}
