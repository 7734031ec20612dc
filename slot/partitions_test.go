package slot_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/replication"
	"postrider/slot"
)

const partitionedSQL = `
CREATE TABLE outbox (id int, payload text) PARTITION BY RANGE (id);
CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES FROM (0) TO (10);
CREATE TABLE outbox_2 PARTITION OF outbox FOR VALUES FROM (10) TO (20) PARTITION BY LIST (id);
CREATE TABLE outbox_2_1 PARTITION OF outbox_2 FOR VALUES IN (11);
CREATE TABLE other (id int, payload text);
CREATE TABLE child () INHERITS (other);`

func TestPublication_TakesPartitionsUnderTheirOwnNames(t *testing.T) {
	versions(t, oldAndNew, func(t *testing.T, version string) {
		for name, of := range map[string]string{"of the table": "FOR TABLE outbox", "of all tables": "FOR ALL TABLES"} {
			t.Run(name, func(t *testing.T) {
				p := onShared(t, version)
				p.exec(partitionedSQL + "CREATE PUBLICATION postrider " + of)
				got, err := slot.VerifyPublication(t.Context(), p.conn, "postrider", []string{"public.outbox"})
				require.NoError(t, err)
				require.True(t, got.Tables[0].Partitions)
				require.Equal(t, []string{"id", "payload"}, got.Tables[0].ColumnNames)
				require.Subset(t, []string{"public.child", "public.other"}, got.Others, "partitions are no other tables")
				require.NoError(t, verify(p, "public.outbox", "public.outbox_2_1"), "a partition with a name of its own")

				findings := slot.Check(t.Context(), slot.Preflight{Postgres: p.cfg, Need: p.need()})
				f := finding(t, findings, "partitions")
				require.Equal(t, slot.SeverityWarning, f.Severity)
				p.exec(f.Fix)
				got, err = slot.VerifyPublication(t.Context(), p.conn, "postrider", []string{"public.outbox"})
				require.NoError(t, err)
				require.False(t, got.Tables[0].Partitions)
			})
		}
	})
}

func TestOIDs_HasTablesAndTheirPartitions(t *testing.T) {
	p := onShared(t, "17")
	p.exec(partitionedSQL)
	oids, err := slot.OIDs(t.Context(), p.conn, []string{"public.other", "public.outbox", "public.outbox_2"})
	require.NoError(t, err)
	for name, table := range map[string]string{
		"outbox": "public.outbox", "outbox_1": "public.outbox", "outbox_2": "public.outbox_2", "outbox_2_1": "public.outbox_2", "other": "public.other",
	} {
		var oid uint32
		require.NoError(t, p.conn.QueryRow(t.Context(), "SELECT $1::text::regclass::oid", name).Scan(&oid))
		require.Equal(t, table, oids[oid], name)
		delete(oids, oid)
	}
	require.Empty(t, oids)
}

func TestHome_FindsTheTableOfAPartition(t *testing.T) {
	p := onShared(t, "17")
	p.exec(partitionedSQL + "CREATE PUBLICATION postrider FOR TABLE outbox")
	got, err := slot.Inspect(t.Context(), p.conn, "postrider", []string{"public.outbox"})
	require.NoError(t, err)
	home := func(rel *replication.Relation) string {
		table, err := slot.Home(t.Context(), p.conn, got.Tables, rel)
		require.NoError(t, err)
		return table
	}
	relation := func(table string) *replication.Relation {
		rel, err := slot.Relation(t.Context(), p.conn, table)
		require.NoError(t, err)
		return rel
	}
	require.Equal(t, "public.outbox", home(relation("public.outbox_2_1")))
	require.Empty(t, home(relation("public.other")), "the same columns, but there and no partition")
	require.Empty(t, home(relation("public.child")))

	gone, kept := relation("public.outbox_1"), relation("public.outbox_2_1")
	other := relation("public.other")
	other.OID, other.Columns = 1, other.Columns[:1]
	p.exec("DROP TABLE outbox_1")
	p.exec("ALTER TABLE outbox_2 DETACH PARTITION outbox_2_1")
	require.Equal(t, "public.outbox", home(gone), "dropped: it had the columns of the table")
	require.Empty(t, home(kept), "detached: it is a table like any other")
	require.Empty(t, home(other), "dropped, with other columns")
}
