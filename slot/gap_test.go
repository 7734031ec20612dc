package slot_test

import (
	"fmt"
	"testing"

	"github.com/postrider/postrider/test/parts/testdb"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/check/checktest"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

// The planner evaluates the constant parts of index expressions, with the rights of the reader, before the executor
// finds that he may not read.
func TestMeasureGap_RunsNoCodeOfATablesOwner(t *testing.T) {
	testdb.Versions(t, testdb.All, func(t *testing.T, version string) {
		p := checktest.Shared(t, version)
		p.Exec(`CREATE TABLE caught (who text); GRANT INSERT ON caught TO PUBLIC;
			CREATE FUNCTION act() RETURNS int VOLATILE LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.caught VALUES (current_user); RETURN 1; END $$;
			CREATE FUNCTION harmless() RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN public.act(); END $$;
			CREATE TABLE outbox (id bigint PRIMARY KEY, payload text);
			CREATE INDEX ON outbox ((public.harmless()));
			DELETE FROM caught`)
		conn, err := postgres.Connect(t.Context(), p.Lean())
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close(t.Context())) }()
		lost := &slot.LostError{Name: p.Name, ConfirmedFlushLSN: 1, CatalogXmin: 3}
		g := slot.MeasureGap(t.Context(), conn, lost, []string{"public.outbox", "public.missing"}, false)
		require.Equal(t, []slot.TableGap{
			{Table: "public.outbox", Reason: "the role lacks SELECT on the table"}, {Table: "public.missing", Reason: "there is no such table"},
		}, g.Tables)
		p.Exec("GRANT SELECT ON outbox TO PUBLIC") // which the owner of a table may do
		g = slot.MeasureGap(t.Context(), conn, lost, []string{"public.outbox"}, false)
		require.Equal(t, []slot.TableGap{{Table: "public.outbox", Reason: "the table belongs to another role, and snapshot.mode is off"}}, g.Tables)
		var called int
		require.NoError(t, p.Conn.QueryRow(t.Context(), `SELECT count(*) FROM caught`).Scan(&called))
		require.Zero(t, called)

		for _, consented := range []bool{true, false} {
			g = slot.MeasureGap(t.Context(), p.Conn, lost, []string{"public.outbox"}, consented)
			require.Equal(t, []slot.TableGap{{Table: "public.outbox"}}, g.Tables, "its own role")
		}
		g = slot.MeasureGap(t.Context(), conn, lost, []string{"public.outbox"}, true)
		require.Equal(t, []slot.TableGap{{Table: "public.outbox"}}, g.Tables, "as the configuration says")
		require.NoError(t, p.Conn.QueryRow(t.Context(), `SELECT count(*) FROM caught`).Scan(&called))
		require.NotZero(t, called, "the function is one that the planner calls")
	})
}

// The column xmin of a frozen row has the xid that the row was written with.
func TestFromXminSQL_LeavesOutRowsFrozenLongAgo(t *testing.T) {
	testdb.Versions(t, testdb.All, func(t *testing.T, version string) {
		p := checktest.Shared(t, version)
		next, err := slot.NextXID(t.Context(), p.Conn)
		require.NoError(t, err)
		for age, selected := range map[uint32]bool{1: true, 10: true, 11: false, 1<<31 - 1: false, 1<<31 + 1: false, 1<<32 - 100: false} {
			var found bool
			require.NoError(t, p.Conn.QueryRow(t.Context(), fmt.Sprintf(`SELECT EXISTS (SELECT FROM (SELECT '%d'::pg_catalog.xid AS xmin) row WHERE %s)`,
				next-age, slot.FromXminSQL(next-10))).Scan(&found))
			require.Equal(t, selected, found, "written %d transactions ago", age)
		}
	})
}
