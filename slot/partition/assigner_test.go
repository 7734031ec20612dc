package partition_test

import (
	"errors"
	"testing"

	"github.com/postrider/postrider/slot/partition"
	"github.com/postrider/postrider/test/parts/testdb"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/test/parts"
)

// assigner reads the stream of a slot that holds the catalogs as they are now.
func (p *place) assigner(tables ...string) *partition.Assigner {
	cfg := replication.DefaultConfig()
	cfg.Tables = tables
	return partition.New(cfg, p.Name, zerolog.Nop())
}

// now is the first row of a relation, committed now.
func (p *place) now(rel *replication.Relation) partition.FirstRow {
	p.T.Helper()
	var text string
	require.NoError(p.T, p.Conn.QueryRow(p.T.Context(), "SELECT pg_current_wal_insert_lsn()::text").Scan(&text))
	lsn, err := pglogrepl.ParseLSN(text)
	require.NoError(p.T, err)
	return partition.FirstRow{Relation: rel, LSN: lsn}
}

// What a look has seen, and what was decided, is known when the partition is gone.
func TestAssigner_RemembersPartitionsThatAreGone(t *testing.T) {
	t.Parallel()
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := onShared(t, version)
		p.Exec(testdb.PartitionedSQL + "CREATE PUBLICATION postrider FOR ALL TABLES")
		p.Exec("SELECT pg_create_logical_replication_slot('" + p.Name + "', 'pgoutput')")
		relation := func(table string) *replication.Relation {
			rel, err := slot.Relation(t.Context(), p.Conn, table)
			require.NoError(t, err)
			return rel
		}
		a := p.assigner("public.outbox")
		assign := func(row partition.FirstRow) string {
			table, upTo, err := a.Assign(t.Context(), p.Conn, row)
			require.NoError(t, err)
			require.Zero(t, upTo)
			return table
		}
		dropped, detached, nested := relation("public.outbox_1"), relation("public.outbox_2"), relation("public.outbox_2_1")
		row1, row2 := p.now(dropped), p.now(nested)
		p.Exec("INSERT INTO outbox VALUES (1), (11)") // moves the WAL on
		require.NoError(t, a.Look(t.Context(), p.Conn))
		p.Exec("ALTER TABLE outbox DETACH PARTITION outbox_2; DROP TABLE outbox_1")
		later := p.now(dropped)
		require.Equal(t, "public.outbox", assign(row1))
		require.Equal(t, "public.outbox", assign(row2))

		// Behind the look it may have been anything, but for what was decided.
		_, _, err := a.Assign(t.Context(), p.Conn, later)
		var unknown *partition.UnassignedError
		require.ErrorAs(t, err, &unknown)
		require.ErrorIs(t, err, replication.ErrUnassigned)
		require.Equal(t, []string{"public.outbox"}, unknown.Candidates)
		require.Equal(t, dropped.OID, unknown.OID)
		a.Remember(1, dropped.OID, "public.outbox", row1.LSN, later.LSN)
		require.Equal(t, "public.outbox", assign(later))
		a.Remember(1, detached.OID, "", later.LSN, later.LSN)
		require.Empty(t, assign(partition.FirstRow{Relation: detached, LSN: later.LSN}))

		a.On(1)
		require.Equal(t, "public.outbox", assign(later))
		a.On(2) // where a position stands for another row
		_, _, err = a.Assign(t.Context(), p.Conn, later)
		require.ErrorIs(t, err, replication.ErrUnassigned)
		a.Remember(2, dropped.OID, "public.outbox", row1.LSN, later.LSN)
		_, _, err = a.Assign(t.Context(), p.Conn, later)
		require.ErrorIs(t, err, replication.ErrUnassigned)
	})
}

// A place that was seen before the row and is still the same goes on, though it is younger than what the slot holds of the catalogs.
func TestAssigner_GoesOnWithAPlaceThatItHasSeen(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := onShared(t, version)
		p.Exec(testdb.PartitionedSQL + "CREATE PUBLICATION postrider FOR ALL TABLES")
		p.Exec("SELECT pg_create_logical_replication_slot('" + p.Name + "', 'pgoutput')")
		p.Exec("CREATE TABLE outbox_3 (LIKE outbox)")
		p.Exec("ALTER TABLE outbox ATTACH PARTITION outbox_3 FOR VALUES FROM (20) TO (30)")
		rel, err := slot.Relation(t.Context(), p.Conn, "public.outbox_3")
		require.NoError(t, err)
		a := p.assigner("public.outbox")
		before := p.now(rel)
		_, _, err = a.Assign(t.Context(), p.Conn, before)
		require.ErrorIs(t, err, replication.ErrUnassigned, "it may have been written before it was attached")
		require.NoError(t, a.Look(t.Context(), p.Conn))
		p.Exec("INSERT INTO outbox VALUES (21)")
		table, _, err := a.Assign(t.Context(), p.Conn, p.now(rel))
		require.NoError(t, err)
		require.Equal(t, "public.outbox", table)

		p.Exec("ALTER TABLE outbox DETACH PARTITION outbox_3")
		p.Exec("ALTER TABLE outbox ATTACH PARTITION outbox_3 FOR VALUES FROM (20) TO (30)")
		_, _, err = a.Assign(t.Context(), p.Conn, p.now(rel))
		require.ErrorIs(t, err, replication.ErrUnassigned, "another place, if of the same table")
	})
}

// The other way round: what is there and was never a partition, or has other columns, is another table.
func TestAssigner_KnowsWhatIsNoPartition(t *testing.T) {
	p, _ := onOwn(t, "18", nil) // of which no other database keeps the catalogs
	p.Exec(testdb.PartitionedSQL + "CREATE PUBLICATION postrider FOR ALL TABLES")
	p.Exec("SELECT pg_create_logical_replication_slot('" + p.Name + "', 'pgoutput')")
	a := p.assigner("public.outbox")
	for _, table := range []string{"public.other", "public.child"} {
		rel, err := slot.Relation(t.Context(), p.Conn, table)
		require.NoError(t, err)
		got, _, err := a.Assign(t.Context(), p.Conn, p.now(rel))
		require.NoError(t, err)
		require.Empty(t, got, table)
	}
	columns := func(c ...replication.Column) *replication.Relation {
		return &replication.Relation{OID: 1, Namespace: "public", Name: "gone", Columns: c}
	}
	id, payload := replication.Column{Name: "id", TypeOID: 23, TypeMod: -1}, replication.Column{Name: "payload", TypeOID: 25, TypeMod: -1}
	for _, rel := range []*replication.Relation{
		columns(id), columns(id, replication.Column{Name: "payload", TypeOID: 1043, TypeMod: 14}), columns(id, payload, replication.Column{Name: "more", TypeOID: 25, TypeMod: -1}),
	} {
		got, _, err := a.Assign(t.Context(), p.Conn, p.now(rel))
		require.NoError(t, err)
		require.Empty(t, got)
	}
	_, _, err := a.Assign(t.Context(), p.Conn, p.now(columns(payload, id)))
	require.ErrorIs(t, err, replication.ErrUnassigned, "the columns are those of a partition, which it may have been or not")
	p.Exec("ALTER TABLE outbox ADD COLUMN more text")
	for rel, known := range map[*replication.Relation]bool{columns(id): true, columns(id, payload): false, columns(id, payload, replication.Column{Name: "most", TypeOID: 25}): false} {
		_, _, err := a.Assign(t.Context(), p.Conn, p.now(rel))
		require.Equal(t, known, err == nil, "%+v", rel.Columns)
	}
}

// GRANT writes the row of a schema as a rename does: a table that was seen before it has kept its name.
func TestAssigner_KnowsWhatIsNoPartitionBehindAGrantOnTheSchema(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := onShared(t, version)
		p.Exec("CREATE TABLE outbox (id int, payload text); CREATE PUBLICATION postrider FOR ALL TABLES")
		p.Exec("SELECT pg_create_logical_replication_slot('" + p.Name + "', 'pgoutput')")
		gone := func() partition.FirstRow {
			p.Exec("CREATE TABLE scratch (id int, payload text); INSERT INTO scratch VALUES (1)")
			rel, err := slot.Relation(t.Context(), p.Conn, "public.scratch")
			require.NoError(t, err)
			row := p.now(rel)
			p.Exec("DROP TABLE scratch")
			return row
		}
		earlier := gone()
		a := p.assigner("public.outbox")
		require.NoError(t, a.Look(t.Context(), p.Conn))
		p.Exec("GRANT USAGE ON SCHEMA public TO pg_monitor")
		later := gone()
		table, _, err := a.Assign(t.Context(), p.Conn, later)
		require.NoError(t, err)
		require.Empty(t, table)
		restarted := p.assigner("public.outbox")
		require.NoError(t, restarted.Look(t.Context(), p.Conn))
		_, _, err = restarted.Assign(t.Context(), p.Conn, earlier)
		require.ErrorIs(t, err, replication.ErrUnassigned, "the table was not seen before the row")
		p.Exec("ALTER TABLE outbox RENAME TO other_name; ALTER TABLE other_name RENAME TO outbox")
		_, _, err = a.Assign(t.Context(), p.Conn, gone())
		require.ErrorIs(t, err, replication.ErrUnassigned, "another table may have had the name")
	})
}

// PostgreSQL stores the confirmed position of a slot now and then. When it has crashed, the slot sends again what lies behind the stored one, and the
// partition may be gone.
func TestAssigner_RemembersWhatASlotSendsAgainWhenItRewinds(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := onShared(t, version)
		p.Exec(testdb.PartitionedSQL + "CREATE PUBLICATION postrider FOR ALL TABLES")
		p.Exec("SELECT pg_create_logical_replication_slot('" + p.Name + "', 'pgoutput')")
		open, err := parts.Connect(t, p.DSN).Begin(t.Context()) // so that the slot has to begin before it
		require.NoError(t, err)
		_, err = open.Exec(t.Context(), "INSERT INTO other VALUES (1)")
		require.NoError(t, err)
		rel, err := slot.Relation(t.Context(), p.Conn, "public.outbox_1")
		require.NoError(t, err)
		row := p.now(rel)
		a := p.assigner("public.outbox")
		p.Exec("INSERT INTO outbox VALUES (1)")
		require.NoError(t, a.Look(t.Context(), p.Conn))
		p.Exec("DROP TABLE outbox_1")
		confirm := "SELECT pg_replication_slot_advance('" + p.Name + "', pg_current_wal_flush_lsn())"
		p.Exec(confirm)
		require.NoError(t, a.Look(t.Context(), p.Conn))
		table, _, err := a.Assign(t.Context(), p.Conn, row)
		require.NoError(t, err)
		require.Equal(t, "public.outbox", table)
		require.NoError(t, open.Commit(t.Context()))
	})
}

// A place of which it is known that it is older than all that the slot sends says nothing of what was sent before.
func TestAssigner_ProvesNothingOfWhatIsConfirmed(t *testing.T) {
	p, _ := onOwn(t, "18", nil)
	p.Exec(testdb.PartitionedSQL + "CREATE TABLE outbox_3 (LIKE outbox); CREATE PUBLICATION postrider FOR ALL TABLES")
	rel, err := slot.Relation(t.Context(), p.Conn, "public.outbox_3")
	require.NoError(t, err)
	before := p.now(rel)
	p.Exec("INSERT INTO outbox_3 VALUES (21)")
	p.Exec("ALTER TABLE outbox ATTACH PARTITION outbox_3 FOR VALUES FROM (20) TO (30)")
	p.Exec("SELECT pg_create_logical_replication_slot('" + p.Name + "', 'pgoutput')")
	a := p.assigner("public.outbox")
	p.Exec("INSERT INTO outbox VALUES (22)")
	row := p.now(rel)
	p.Exec("INSERT INTO outbox VALUES (23)")
	require.NoError(t, a.Look(t.Context(), p.Conn))
	table, known := a.Remembered(row)
	require.True(t, known)
	require.Equal(t, "public.outbox", table)
	_, known = a.Remembered(before)
	require.False(t, known)
}

// However many tables come and go, only what can come again is remembered, whether the outbox has partitions or not.
func TestAssigner_ForgetsWhatDoesNotComeAgain(t *testing.T) {
	for _, table := range []string{"public.outbox", "public.other"} {
		p := onShared(t, "18")
		p.Exec(testdb.PartitionedSQL + "CREATE PUBLICATION postrider FOR ALL TABLES")
		earlier := p.now(nil).LSN
		p.Exec("INSERT INTO outbox VALUES (1)")
		p.Exec("SELECT pg_create_logical_replication_slot('" + p.Name + "', 'pgoutput')")
		a := p.assigner(table)
		require.NoError(t, a.Look(t.Context(), p.Conn))
		partitions := a.Spans()
		for n := range uint32(3000) {
			a.Remember(1, 1<<30+n%1000, "", earlier-pglogrepl.LSN(n), earlier-pglogrepl.LSN(n))
		}
		require.Greater(t, a.Spans(), partitions+2000)
		require.NoError(t, a.Look(t.Context(), p.Conn))
		require.Equal(t, partitions, a.Spans())
	}
}

// A table that had the name of an outbox table then was that table, and no partition of another one.
func TestAssigner_TakesATableByTheNameThatItHad(t *testing.T) {
	p := onShared(t, "18")
	p.Exec(testdb.PartitionedSQL + "CREATE PUBLICATION postrider FOR ALL TABLES")
	p.Exec("SELECT pg_create_logical_replication_slot('" + p.Name + "', 'pgoutput')")
	rel, err := slot.Relation(t.Context(), p.Conn, "public.other")
	require.NoError(t, err)
	row := p.now(rel)
	p.Exec("DROP TABLE other CASCADE")
	p.Exec("CREATE TABLE other (id int, payload text)")
	table, _, err := p.assigner("public.outbox", "public.other").Assign(t.Context(), p.Conn, row)
	require.NoError(t, err)
	require.Equal(t, "public.other", table)
}

// A partition may have been in the publication itself, with a list of columns. What its rows lack proves nothing then.
func TestAssigner_KnowsThatPublicationsLeaveColumnsOut(t *testing.T) {
	p, _ := onOwn(t, "18", nil)
	p.Exec(testdb.PartitionedSQL + "CREATE PUBLICATION postrider FOR TABLE outbox, outbox_1 (id)")
	p.Exec("SELECT pg_create_logical_replication_slot('" + p.Name + "', 'pgoutput')")
	rel, err := slot.Relation(t.Context(), p.Conn, "public.outbox_1")
	require.NoError(t, err)
	rel.Columns = rel.Columns[:1]
	row := p.now(rel)
	p.Exec("DROP TABLE outbox_1")
	a := p.assigner("public.outbox")
	_, _, err = a.Assign(t.Context(), p.Conn, row)
	require.ErrorIs(t, err, replication.ErrUnassigned)

	rel.Columns[0].TypeOID = 20
	table, _, err := a.Assign(t.Context(), p.Conn, row)
	require.NoError(t, err)
	require.Empty(t, table, "a column of another type was never one of a partition")
}

// A transaction is decoded when its commit is written, and visible later: long after it, if it waits for a synchronous standby. Meanwhile the catalogs
// are still as they were before it.
func TestAssigner_WaitsUntilChangesOfTablesAreVisible(t *testing.T) {
	t.Parallel()
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := onShared(t, version)
		p.Exec(testdb.PartitionedSQL + "CREATE PUBLICATION postrider FOR ALL TABLES")
		p.Exec("SELECT pg_create_logical_replication_slot('" + p.Name + "', 'pgoutput')")
		a := p.assigner("public.outbox")
		partition, err := slot.Relation(t.Context(), p.Conn, "public.outbox_1")
		require.NoError(t, err)
		tx, xid := p.transaction()
		_, err = tx.Exec(t.Context(), "CREATE TABLE copy AS SELECT 1 AS id, 'x' AS payload")
		require.NoError(t, err)
		rel := &replication.Relation{Namespace: "public", Name: "copy", Columns: partition.Columns}
		require.NoError(t, tx.QueryRow(t.Context(), "SELECT 'copy'::regclass::oid::bigint").Scan(&rel.OID))
		row := p.now(rel)
		row.XID = xid
		p.Exec("INSERT INTO outbox VALUES (1)") // moves the WAL on
		_, _, err = a.Assign(t.Context(), p.Conn, row)
		require.ErrorContains(t, err, "is not visible yet")
		require.NotErrorIs(t, err, replication.ErrUnassigned)

		answered := make(chan error, 1)
		go func() {
			table, _, err := a.Assign(t.Context(), p.Conn, row)
			if err == nil && table != "" {
				err = errors.New("it was assigned to " + table)
			}
			answered <- err
		}()
		require.NoError(t, tx.Commit(t.Context()))
		require.NoError(t, <-answered)
	})
}

// Whoever only writes rows is not waited for: where the relay is the synchronous standby, the writer waits for it. Nor is one that nobody knows.
func TestAssigner_WaitsForNoWriter(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := onShared(t, version)
		p.Exec(testdb.PartitionedSQL + "CREATE PUBLICATION postrider FOR TABLE outbox")
		p.Exec("SELECT pg_create_logical_replication_slot('" + p.Name + "', 'pgoutput')")
		a := p.assigner("public.outbox")
		rel, err := slot.Relation(t.Context(), p.Conn, "public.outbox_1")
		require.NoError(t, err)
		tx, xid := p.transaction()
		_, err = tx.Exec(t.Context(), "INSERT INTO outbox VALUES (1)")
		require.NoError(t, err)
		require.NoError(t, a.Look(t.Context(), p.Conn)) // which does not see it
		for _, row := range []partition.FirstRow{{Relation: rel, LSN: p.now(rel).LSN, XID: xid}, {Relation: rel, LSN: p.now(rel).LSN, XID: xid + 100_000}} {
			_, known := a.Remembered(row)
			require.False(t, known)
			table, _, err := a.Assign(t.Context(), p.Conn, row)
			require.NoError(t, err, "the transaction is open all the while: whoever waited for it gave up with an error")
			require.Equal(t, "public.outbox", table)
		}
		require.NoError(t, tx.Rollback(t.Context()))
	})
}

// transaction begins one that has an xid.
func (p *place) transaction() (tx pgx.Tx, xid uint32) {
	p.T.Helper()
	tx, err := parts.Connect(p.T, p.DSN).Begin(p.T.Context())
	require.NoError(p.T, err)
	require.NoError(p.T, tx.QueryRow(p.T.Context(), "SELECT pg_current_xact_id()::xid::text::bigint").Scan(&xid))
	return tx, xid
}

// The other way round: what a look has seen is not what a transaction left that was invisible to it.
func TestAssigner_KnowsNothingOfATransactionThatItsLookDidNotSee(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := onShared(t, version)
		p.Exec(testdb.PartitionedSQL + "CREATE PUBLICATION postrider FOR ALL TABLES")
		p.Exec("SELECT pg_create_logical_replication_slot('" + p.Name + "', 'pgoutput')")
		a := p.assigner("public.outbox")
		rel, err := slot.Relation(t.Context(), p.Conn, "public.outbox_1")
		require.NoError(t, err)
		tx, xid := p.transaction()
		before := p.now(rel)
		own := before
		own.XID = xid
		p.Exec("INSERT INTO outbox VALUES (1)") // moves the WAL on
		require.NoError(t, a.Look(t.Context(), p.Conn))
		table, known := a.Remembered(before)
		require.True(t, known)
		require.Equal(t, "public.outbox", table)
		_, known = a.Remembered(own)
		require.False(t, known, "it may have detached the partition before it wrote the row")
		unknown := *rel
		unknown.OID, unknown.Name = 1, "gone"
		_, known = a.Remembered(partition.FirstRow{Relation: &unknown, LSN: own.LSN, XID: xid})
		require.False(t, known, "it may have made a partition")
		require.NoError(t, tx.Rollback(t.Context()))
		require.NoError(t, a.Look(t.Context(), p.Conn))
		_, known = a.Remembered(own)
		require.True(t, known, "this look has seen it")
	})
}

// A table between a partition and the top may have been an outbox table of its own when the row was written: a rename leaves that in doubt.
func TestAssigner_DoesNotTakeARenamedOutboxForAPartitionOfAnother(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := onShared(t, version)
		p.Exec(`CREATE TABLE a (id int, payload text) PARTITION BY RANGE (id);
			CREATE TABLE b PARTITION OF a FOR VALUES FROM (0) TO (10) PARTITION BY LIST (id);
			CREATE TABLE b_1 PARTITION OF b FOR VALUES IN (1);
			CREATE PUBLICATION postrider FOR ALL TABLES`)
		p.Exec("SELECT pg_create_logical_replication_slot('" + p.Name + "', 'pgoutput')")
		rel, err := slot.Relation(t.Context(), p.Conn, "public.b_1")
		require.NoError(t, err)
		row := p.now(rel)
		p.Exec("BEGIN; ALTER TABLE b RENAME TO b_old; CREATE TABLE b (id int, payload text); COMMIT")
		a := p.assigner("public.a", "public.b")
		_, _, err = a.Assign(t.Context(), p.Conn, row)
		require.ErrorIs(t, err, replication.ErrUnassigned)
		require.NoError(t, a.Look(t.Context(), p.Conn))
		_, known := a.Remembered(row)
		require.False(t, known, "it was a row of b")
		_, _, err = a.Assign(t.Context(), p.Conn, row)
		require.ErrorIs(t, err, replication.ErrUnassigned)
	})
}

// What had another name for a while was no outbox table then, though it was one before and is one again.
func TestAssigner_DoesNotKnowATableThatHadAnotherNameForAWhile(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := onShared(t, version)
		p.Exec("CREATE TABLE outbox (id int, payload text); CREATE PUBLICATION postrider FOR ALL TABLES")
		p.Exec("SELECT pg_create_logical_replication_slot('" + p.Name + "', 'pgoutput')")
		a := p.assigner("public.outbox")
		require.NoError(t, a.Look(t.Context(), p.Conn))
		p.Exec("ALTER TABLE outbox RENAME TO outbox_old; CREATE TABLE outbox (id int, payload text)")
		rel, err := slot.Relation(t.Context(), p.Conn, "public.outbox_old")
		require.NoError(t, err)
		p.Exec("INSERT INTO outbox_old VALUES (1)")
		row := p.now(rel)
		p.Exec("DROP TABLE outbox; ALTER TABLE outbox_old RENAME TO outbox")
		_, _, err = a.Assign(t.Context(), p.Conn, row)
		require.ErrorIs(t, err, replication.ErrUnassigned)
	})
}

// A look tells about rows from before it only where the table at the top had its name all the time.
func TestAssigner_LooksBackNoFurtherThanTheNameOfTheTable(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := onShared(t, version)
		p.Exec(testdb.PartitionedSQL + "CREATE PUBLICATION postrider FOR ALL TABLES")
		p.Exec("SELECT pg_create_logical_replication_slot('" + p.Name + "', 'pgoutput')")
		rel, err := slot.Relation(t.Context(), p.Conn, "public.outbox_1")
		require.NoError(t, err)
		p.Exec("INSERT INTO outbox VALUES (1)") // moves the WAL on
		row := p.now(rel)
		p.Exec("ALTER TABLE outbox RENAME TO other_name; ALTER TABLE other_name RENAME TO outbox")
		a := p.assigner("public.outbox")
		require.NoError(t, a.Look(t.Context(), p.Conn))
		_, known := a.Remembered(row)
		require.False(t, known, "another table may have had the name")
	})
}
