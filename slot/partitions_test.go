package slot_test

import (
	"testing"

	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/check/checktest"
	"github.com/postrider/postrider/test/parts/testdb"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/slot"
)

func TestPublication_TakesPartitionsUnderTheirOwnNames(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		for name, of := range map[string]string{"of the table": "FOR TABLE outbox", "of all tables": "FOR ALL TABLES"} {
			t.Run(name, func(t *testing.T) {
				p := checktest.Shared(t, version)
				p.Exec(testdb.PartitionedSQL + "CREATE PUBLICATION postrider " + of)
				got, err := slot.VerifyPublication(t.Context(), p.Conn, "postrider", []string{"public.outbox"})
				require.NoError(t, err)
				require.True(t, got.Tables[0].Partitions)
				require.Equal(t, []string{"id", "payload"}, got.Tables[0].ColumnNames)
				require.Subset(t, []string{"all tables"}, others(p, got), "partitions are no other tables")
				require.NoError(t, verify(p, "public.outbox", "public.outbox_2_1"), "a partition with a name of its own")

				findings := check.Server(t.Context(), check.Preflight{Postgres: p.Postgres, Need: p.Need()})
				f := checktest.Finding(t, findings, "partitions")
				require.Equal(t, check.SeverityWarning, f.Severity)
				p.Exec(f.Fix)
				got, err = slot.VerifyPublication(t.Context(), p.Conn, "postrider", []string{"public.outbox"})
				require.NoError(t, err)
				require.False(t, got.Tables[0].Partitions)
			})
		}
	})
}

// A table may be a partition of another one that is relayed, too. What is below both is of the nearest, in whatever order they are named.
func TestOIDs_GivesAPartitionToTheNearestTable(t *testing.T) {
	p := checktest.Shared(t, "")
	p.Exec(`CREATE TABLE outer_box (id int, payload text) PARTITION BY RANGE (id);
		CREATE TABLE outer_1 PARTITION OF outer_box FOR VALUES FROM (0) TO (10);
		CREATE TABLE inner_box PARTITION OF outer_box FOR VALUES FROM (10) TO (20) PARTITION BY LIST (id);
		CREATE TABLE inner_1 PARTITION OF inner_box FOR VALUES IN (11)`)
	for _, tables := range [][]string{{"public.outer_box", "public.inner_box"}, {"public.inner_box", "public.outer_box"}} {
		oids, err := slot.OIDs(t.Context(), p.Conn, tables)
		require.NoError(t, err)
		require.Len(t, oids, 4)
		for relation, table := range map[string]string{"outer_box": "outer_box", "outer_1": "outer_box", "inner_box": "inner_box", "inner_1": "inner_box"} {
			var oid uint32
			require.NoError(t, p.Conn.QueryRow(t.Context(), "SELECT $1::regclass::oid::bigint", relation).Scan(&oid))
			require.Equal(t, "public."+table, oids[oid], relation)
		}
	}
	var outer slot.Table
	require.NoError(t, p.Conn.QueryRow(t.Context(), "SELECT 'outer_box'::regclass::oid::bigint").Scan(&outer.OID))
	partitions, err := outer.PartitionNames(t.Context(), p.Conn)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"public.outer_1", "public.inner_box", "public.inner_1"}, partitions)
}

// A child by INHERITS is a table of its own: its rows do not come as those of its parent.
func TestOIDs_LeavesOutChildrenThatAreNoPartitions(t *testing.T) {
	p := checktest.Shared(t, "")
	p.Exec("CREATE TABLE parent (id int); CREATE TABLE child () INHERITS (parent)")
	oids, err := slot.OIDs(t.Context(), p.Conn, []string{"public.parent"})
	require.NoError(t, err)
	require.Len(t, oids, 1)
	var parent slot.Table
	for parent.OID = range oids {
	}
	partitions, err := parent.PartitionNames(t.Context(), p.Conn)
	require.NoError(t, err)
	require.Empty(t, partitions)
}
