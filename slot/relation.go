package slot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
)

// Key as the server marks it in the stream: what the replica identity consists of.
const selectColumns = `
SELECT c.oid, a.attname, a.atttypid, a.atttypmod,
  CASE c.relreplident WHEN 'f' THEN true WHEN 'n' THEN false ELSE EXISTS (
    SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND a.attnum = ANY (i.indkey)
    AND CASE c.relreplident WHEN 'd' THEN i.indisprimary ELSE i.indisreplident END) END
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND
  a.attgenerated = ''
WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind IN ('r', 'p')
ORDER BY a.attnum`

// Relation describes a table as the server will before its first row, without a publication's
// column list: see Table.Relation. A table that does not exist is a *PublicationError.
func Relation(ctx context.Context, conn *pgx.Conn, table string) (*replication.Relation, error) {
	schema, name := SplitTable(table)
	rel := &replication.Relation{Namespace: schema, Name: name}
	read := func(row pgx.CollectableRow) (c replication.Column, err error) {
		err = row.Scan(&rel.OID, &c.Name, &c.TypeOID, &c.TypeMod, &c.Key)
		return c, err
	}
	columns, err := postgres.Collect(ctx, conn, read, selectColumns, schema, name)
	if err != nil {
		return nil, fmt.Errorf("describe table %s: %w", table, err)
	}
	rel.Columns = columns
	if rel.OID == 0 {
		return nil, missingTable("", table) // or it has no columns
	}
	return rel, nil
}

// missingTable is the error of a configured table that does not exist.
func missingTable(publication, table string) *PublicationError {
	return &PublicationError{
		Publication: publication, Table: table, Problem: "does not exist",
		SQL: "postrider init   # makes it; or correct replication.tables",
	}
}

// Relation is the table as the publication sends it, without the columns that a column list leaves
// out.
func (t Table) Relation(ctx context.Context, conn *pgx.Conn) (*replication.Relation, error) {
	rel, err := Relation(ctx, conn, t.Name)
	if err != nil || t.ColumnNames == nil {
		return rel, err
	}
	rel.Columns = slices.DeleteFunc(rel.Columns,
		func(c replication.Column) bool { return !slices.Contains(t.ColumnNames, c.Name) })
	return rel, nil
}

// firstUserOID is PostgreSQL's FirstNormalObjectId: types below it are those of pg_catalog, which
// only superusers can make casts for.
const firstUserOID = 16384

// Builtin reports whether a column is of a type of pg_catalog.
func Builtin(c replication.Column) bool { return c.TypeOID < firstUserOID }

// TextSQL is SQL for the text of a column's value. A cast from a type of a user's own may be a
// function of theirs, which would run with our rights.
func TextSQL(c replication.Column) string {
	if Builtin(c) {
		return postgres.QuoteName(c.Name) + "::text"
	}
	return WrittenSQL(postgres.QuoteName(c.Name))
}

// WrittenSQL is SQL for the text that the output function of the type returns. It runs no code of
// another user: output functions are built in, except those of base types, which only superusers
// create.
func WrittenSQL(value string) string {
	return "CASE WHEN NOT (" + value + " IS NULL) THEN pg_catalog.format('%s', " + value + ") END"
}

// HoldsTime reports whether a column is of a type that can be compared with a moment.
func HoldsTime(c replication.Column) bool {
	return slices.Contains([]uint32{pgtype.DateOID, pgtype.TimestampOID, pgtype.TimestamptzOID},
		c.TypeOID)
}

// HoldsInstant reports whether a column says which rows are older than a moment: a date does not
// say it of the rows of its day.
func HoldsInstant(c replication.Column) bool {
	return HoldsTime(c) && c.TypeOID != pgtype.DateOID
}

// zoneMargin is how much later than UTC a column without a time zone may be.
const zoneMargin = 24 * time.Hour

// RecordsSince returns the earliest time that the records have of rows whose column has a time
// since then; zero: any. recordTime is the column with the time of the records; empty: that is the
// time of the commit, or a later one. Rows and records have one clock only if the column is that
// one, or there is none.
func RecordsSince(since time.Time, column replication.Column, recordTime string) time.Time {
	switch {
	case since.IsZero() || recordTime != "" && recordTime != column.Name:
		return time.Time{}
	case column.TypeOID == pgtype.TimestampOID:
		return since.Add(-zoneMargin)
	}
	return since
}

// selectPartitionOIDs does not use pg_partition_tree, which locks every partition. The tables
// themselves, depth 0, come last: a partition that is configured itself keeps its own name in
// OIDs.
const selectPartitionOIDs = `
WITH RECURSIVE tree(n, oid, depth) AS (
  SELECT wanted.n, c.oid, 0
  FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS wanted(nspname, relname, n)
  JOIN pg_catalog.pg_namespace ns ON ns.nspname = wanted.nspname
  JOIN pg_catalog.pg_class c ON c.relnamespace = ns.oid AND c.relname = wanted.relname
  UNION ALL
  SELECT tree.n, i.inhrelid, tree.depth + 1
  FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid JOIN pg_catalog.pg_class c ON
  c.oid = i.inhrelid AND c.relispartition)
SELECT n, oid FROM tree ORDER BY depth DESC`

// OIDs returns the tables, and their present partitions, by OID. A row in the WAL may be older:
// see partition.Assigner.
func OIDs(ctx context.Context, conn *pgx.Conn, tables []string) (map[uint32]string, error) {
	schemas, names := SplitTables(tables)
	type row struct {
		N   int
		OID uint32
	}
	found, err := postgres.Collect(ctx, conn, pgx.RowToStructByPos[row], selectPartitionOIDs, schemas,
		names)
	oids := map[uint32]string{}
	for _, r := range found {
		if err = CheckNumbers(len(tables), r.N); err != nil {
			break
		}
		oids[r.OID] = tables[r.N-1]
	}
	return oids, postgres.Wrap(err, "read the partitions of the tables")
}

const selectPartitions = `
WITH RECURSIVE tree(oid) AS (
  SELECT $1::oid
  UNION ALL
  SELECT i.inhrelid FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid JOIN
  pg_catalog.pg_class c ON c.oid = i.inhrelid AND c.relispartition)
SELECT pg_catalog.format('%s.%s', n.nspname, c.relname) FROM tree JOIN pg_catalog.pg_class c ON
  c.oid = tree.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE tree.oid <> $1`

// PartitionNames are the names under which rows of a table may come, beside its own.
func (t Table) PartitionNames(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	names, err := postgres.Collect(ctx, conn, pgx.RowTo[string], selectPartitions, t.OID)
	return names, postgres.Wrap(err, "read the partitions of table %s", t.Name)
}

// HoldTable locks what a FROM reads, and with it the partitions, as a SELECT does, until conn's
// transaction ends: what rewrites the table waits. ErrRewritten: it was rewritten since the
// transaction's snapshot was taken. ALTER TABLE that rewrites a table, and TRUNCATE, hide its rows
// from earlier snapshots.
func HoldTable(ctx context.Context, conn *pgx.Conn, from string, oid uint32) error {
	// LOCK TABLE needs a right on the whole table, this on any of its columns.
	_, err := conn.PgConn().Exec(ctx, "SELECT FROM "+from+" LIMIT 0").ReadAll()
	if err != nil {
		return Locked(postgres.Wrap(err, "read table %s", from))
	}
	// The columns of a catalog are those of the snapshot, the function's result is the present one.
	rewritten, err := postgres.One[bool](ctx, conn, `
		SELECT EXISTS (SELECT FROM pg_catalog.pg_class c
		WHERE (c.oid = $1::oid OR c.oid IN (SELECT p.relid::oid FROM
		  pg_catalog.pg_partition_tree($1::oid::regclass) p))
		  AND c.relfilenode <> pg_catalog.pg_relation_filenode(c.oid::regclass))`, oid)
	switch {
	case err != nil:
		return fmt.Errorf("look whether table %s was rewritten: %w", from, err)
	case rewritten:
		return &Error{
			Err: fmt.Errorf("read table %s: ALTER TABLE, VACUUM FULL or TRUNCATE has changed all of it "+
				"since the snapshot was taken, in which rows may be missing: %w", from, ErrRewritten),
			Fix: "try again",
		}
	}
	return nil
}

// MayRead returns why the rows of a table must not be read by SELECT; empty: they may. A SELECT
// runs code of the table's owner with the rights of the reader (docs/THREAT-MODEL.md). The owner
// grants SELECT, so the grant is no consent; the configuration or a command is.
func MayRead(ctx context.Context, conn *pgx.Conn, oid uint32,
	consented bool) (whyNot string, err error) {
	var granted, table, own bool
	err = conn.QueryRow(ctx, `
		SELECT pg_catalog.has_table_privilege(c.oid, 'SELECT'), c.relkind IN ('r'::"char", 'p'::"char"),
		NOT EXISTS (
			SELECT FROM pg_catalog.pg_class t WHERE t.relowner <> me.oid
			  AND (t.oid = c.oid OR t.oid IN (SELECT p.relid::oid FROM
			  pg_catalog.pg_partition_tree(c.oid::regclass) p)))
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_roles me ON me.rolname = current_user WHERE c.oid =
		$1::oid`, oid).Scan(&granted, &table, &own)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "there is no such table", nil
	case err != nil:
		return "", fmt.Errorf("read who may read relation %d: %w", oid, postgres.Error(err))
	case !table:
		return "the relation is not a table", nil
	case !granted:
		return "the role lacks SELECT on the table", nil
	case !own && !consented:
		return "the table belongs to another role, and snapshot.mode is off", nil
	}
	return "", nil
}
