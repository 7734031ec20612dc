package backfill

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

// Order is what rows are sorted by, before their id.
type Order struct {
	Column string // empty: none
	Commit bool   // by the commit time of the transaction that wrote the row last
	Random bool   // only by an id that is unrelated to time
	// by the transaction that wrote the row last; see inWrittenOrder
	Written bool
}

// String names the order in logs and in tableProgress, by which a change is found.
func (o Order) String() string {
	switch {
	case o.Commit:
		return "commit time"
	case o.Written:
		return "writing transaction"
	case o.Column != "":
		return o.Column
	}
	return "id"
}

// key is an expression that rows are sorted by. Types outside of pg_catalog are compared as text:
// their operators and casts are code of the type's owner.
type key struct {
	column   string
	sql      string
	typ      string // for literals; of no length: character is character(1)
	nullable bool
}

// KeyColumns are the columns of a table that decide the order of its rows.
type KeyColumns struct {
	ID        string // unique
	OrderBy   string // snapshot.order_by; empty: found
	Timestamp string // time of the record; empty: none
}

// readKeys returns the columns of a table, by name.
func readKeys(ctx context.Context, conn *pgx.Conn, table uint32) (map[string]key, error) {
	type column struct {
		Name     string
		Nullable bool
		Type     string // empty: not of pg_catalog
	}
	found, err := postgres.Collect(ctx, conn, pgx.RowToStructByPos[column], `
		SELECT a.attname, NOT a.attnotnull, CASE WHEN t.typnamespace =
		'pg_catalog'::pg_catalog.regnamespace::oid AND t.typtype = 'b'
			THEN pg_catalog.format_type(t.oid, -1) ELSE '' END
		FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
		WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped`, table)
	keys := map[string]key{}
	for _, c := range found {
		k := key{column: c.Name, sql: postgres.QuoteName(c.Name), typ: c.Type, nullable: c.Nullable}
		if k.typ == "" {
			k.sql, k.typ = slot.WrittenSQL(k.sql), "text"
		}
		keys[k.column] = k
	}
	return keys, err
}

// findUnique finds a unique index that contains the id. Those of a partitioned table have more
// columns.
func (c *TableReader) findUnique(ctx context.Context, conn *pgx.Conn, columns map[string]key,
	id string) error {
	if _, exists := columns[id]; !exists {
		return c.refuse(fmt.Sprintf("has no column %q", id),
			"set router.table.field.event.id to the column with the id")
	}
	indexes, err := postgres.Collect(ctx, conn, pgx.RowTo[[]string], `
		SELECT ARRAY(SELECT a.attname::text FROM pg_catalog.unnest(i.indkey::pg_catalog.int2[]) WITH
		ORDINALITY AS k(attnum, n)
			JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum WHERE k.n <=
			i.indnkeyatts)
		FROM pg_catalog.pg_index i
		WHERE i.indrelid = $1 AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS
		NULL
		ORDER BY i.indnkeyatts, NOT i.indisprimary`, c.Relation.OID)
	if err != nil {
		return fmt.Errorf("read the indexes of table %s: %w", c.Name, postgres.Error(err))
	}
	for _, index := range indexes {
		nullable := slices.ContainsFunc(index,
			func(column string) bool { return columns[column].nullable })
		if nullable || !slices.Contains(index, id) {
			continue
		}
		c.unique = []key{columns[id]}
		for _, column := range index {
			if column != id {
				c.unique = append(c.unique, columns[column])
			}
		}
		return nil
	}
	return c.refuse(fmt.Sprintf("has no unique index on %q without NULLs: rows could not be "+
		"distinguished after an interruption", id),
		"ALTER TABLE "+slot.QuoteTable(c.Name)+" ADD PRIMARY KEY ("+postgres.QuoteName(id)+")"+
			insteadNoData)
}

// uniqueColumns are those of a Position's Key.
func (c *TableReader) uniqueColumns() []string {
	var columns []string
	for _, k := range c.unique {
		columns = append(columns, k.column)
	}
	return columns
}

// findOrder finds what rows are sorted by. Integer ids count as a sequence.
func (c *TableReader) findOrder(ctx context.Context, conn *pgx.Conn, columns map[string]key,
	keys KeyColumns) error {
	if by := cmp.Or(keys.OrderBy, keys.Timestamp); by != "" {
		k, exists := columns[by]
		if !exists {
			return c.refuse(fmt.Sprintf("has no column %q", by),
				"set snapshot.order_by to the column with the time of the insert")
		}
		if by != keys.ID {
			c.order, c.Order = &k, Order{Column: by}
		}
		return nil
	}
	if slices.Contains([]string{"smallint", "integer", "bigint"}, columns[keys.ID].typ) {
		return nil
	}
	tracked, err := postgres.One[bool](ctx, conn,
		`SELECT pg_catalog.current_setting('track_commit_timestamp')::boolean`)
	if err != nil {
		return fmt.Errorf("read setting track_commit_timestamp: %w", err)
	}
	if !tracked {
		c.Order = Order{Random: true}
		return nil
	}
	c.Order = Order{Commit: true}
	c.order = &key{sql: "pg_catalog.pg_xact_commit_timestamp(xmin)", typ: "timestamp with time zone",
		nullable: true}
	return nil
}

// Position is the sort key of a row. Reading resumes after it.
type Position struct {
	// nil: NULL, or the rows are sorted only by the unique columns
	Order *string  `json:"order,omitempty"`
	Key   []string `json:"key"`
}

// conditionAfter returns the condition for rows after a position. Rows with NULL come first: a
// comparison with NULL is not true, so they are not repeated.
func (c *TableReader) conditionAfter(after *Position) string {
	keys, values := c.unique, after.Key
	isNull := c.order != nil && after.Order == nil
	if c.order != nil && !isNull {
		keys, values = c.keys(), append([]string{*after.Order}, values...)
	}
	var left, right []string
	for i, k := range keys {
		left = append(left, k.sql)
		right = append(right, postgres.QuoteText(values[i])+"::"+k.typ)
	}
	larger := "ROW(" + strings.Join(left, ", ") + ") > ROW(" + strings.Join(right, ", ") + ")"
	if isNull {
		return "(" + c.order.sql + " IS NOT NULL OR " + larger + ")"
	}
	return larger
}
