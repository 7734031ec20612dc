package slot

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

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

// Relation describes a table the way the server will before its first row, so that it can be
// judged before there is one. A publication's column list is not applied, see Table.Relation. A
// table that does not exist is a *PublicationError.
func Relation(ctx context.Context, conn *pgx.Conn, table string) (*replication.Relation, error) {
	schema, name := SplitTable(table)
	rel := &replication.Relation{Namespace: schema, Name: name}
	rows, err := conn.Query(ctx, selectColumns, schema, name)
	if err == nil {
		rel.Columns, err = pgx.CollectRows(rows,
			func(row pgx.CollectableRow) (replication.Column, error) {
				var c replication.Column
				err := row.Scan(&rel.OID, &c.Name, &c.TypeOID, &c.TypeMod, &c.Key)
				return c, err
			})
	}
	if err != nil {
		return nil, fmt.Errorf("describe table %s: %w", table, postgres.Error(err))
	}
	if rel.OID == 0 {
		return nil, missingTable("", table) // or it has no columns
	}
	return rel, nil
}

// missingTable says that a configured table does not exist.
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

// WrittenSQL is SQL for what the type's output function writes, which is the server's for all but
// base types, and those are made by superusers.
func WrittenSQL(value string) string {
	return "CASE WHEN NOT (" + value + " IS NULL) THEN pg_catalog.format('%s', " + value + ") END"
}

// Types of columns that hold a moment.
const (
	dateOID        = 1082
	timestampOID   = 1114
	timestamptzOID = 1184
)

// HoldsTime reports whether a column is of a type that can be compared with a moment.
func HoldsTime(c replication.Column) bool {
	return slices.Contains([]uint32{dateOID, timestampOID, timestamptzOID}, c.TypeOID)
}
