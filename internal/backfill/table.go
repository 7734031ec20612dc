package backfill

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/slot"
)

// TableReader is a table whose rows are to be read, with the order in which they are.
type TableReader struct {
	Name     string // schema.name, as configured
	Relation *replication.Relation
	Order    Order

	from   string // of the SELECT
	filter string // of the publication; empty: none
	order  *key   // nil: by the id alone
	unique []key  // of a unique index, the id first: makes the order total
}

// Order says by what rows are sorted before their id.
type Order struct {
	Column string // empty: none
	Commit bool   // by the commit time of the transaction that wrote the row last
	Random bool   // by nothing but an id that says nothing about time
	// Written: by the transaction that wrote the row last; see InWrittenOrder.
	Written bool
}

// String is the order for logs, and for recognising that it was changed.
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
// their operators, and functions that cast them, belong to the maker of the type.
type key struct {
	column   string
	sql      string
	typ      string // for literals
	nullable bool
}

// KeyColumns are the columns of a table that decide the order of its rows.
type KeyColumns struct {
	ID        string // unique
	OrderBy   string // snapshot.order_by; empty: found
	Timestamp string // time of the record; empty: none
}

// InsteadNoData ends the advice of errors about a table that cannot be read, for those who read it
// for a snapshot.
const InsteadNoData = "; or set snapshot.mode = \"no_data\""

// NewTableReader looks at a table of a publication. Its partitions that are among tables, those of
// which all rows are read, are left to themselves. The error is an Error with ErrNoSnapshot if its
// rows cannot be read in an order, or one with postgres.ErrPermission if they cannot be read at
// all.
func NewTableReader(ctx context.Context, conn *pgx.Conn, t slot.Table, tables []string,
	keys KeyColumns) (*TableReader, error) {
	rel, err := t.Relation(ctx, conn)
	if err != nil {
		return nil, err
	}
	c := &TableReader{Name: t.Name, Relation: rel, from: slot.QuoteTable(t.Name), filter: t.RowFilter}
	if t.Kind != "p" {
		c.from = "ONLY " + c.from // rows of tables that inherit from it come under their own names
	} else if err := c.leave(ctx, conn, tables); err != nil {
		return nil, err
	}
	columns, err := readKeys(ctx, conn, t.OID)
	if err != nil {
		return nil, fmt.Errorf("describe table %s: %w", t.Name, err)
	}
	if err := c.findUnique(ctx, conn, columns, keys.ID); err != nil {
		return nil, err
	}
	if err := c.findOrder(ctx, conn, columns, keys); err != nil {
		return nil, err
	}
	return c, c.probe(ctx, conn)
}

// leave leaves out the partitions that belong to another of the tables.
func (c *TableReader) leave(ctx context.Context, conn *pgx.Conn, tables []string) error {
	below, err := slot.OIDs(ctx, conn, []string{c.Name})
	if err != nil {
		return err
	}
	owner, err := slot.OIDs(ctx, conn, tables)
	if err != nil {
		return err
	}
	var others []string
	for oid := range below {
		if table, known := owner[oid]; known && table != c.Name {
			others = append(others, strconv.FormatUint(uint64(oid), 10))
		}
	}
	if len(others) == 0 {
		return nil
	}
	slices.Sort(others)
	without := "tableoid <> ALL ('{" + strings.Join(others, ",") + "}'::pg_catalog.oid[])"
	if c.filter != "" {
		without = "(" + c.filter + ") AND " + without
	}
	c.filter = without
	return nil
}

func readKeys(ctx context.Context, conn *pgx.Conn, table uint32) (map[string]key, error) {
	rows, err := conn.Query(ctx, `
		SELECT a.attname, NOT a.attnotnull, CASE WHEN t.typnamespace =
		'pg_catalog'::pg_catalog.regnamespace::oid AND t.typtype = 'b'
			THEN pg_catalog.format_type(t.oid, NULL) ELSE '' END
		FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
		WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped`, table)
	if err != nil {
		return nil, postgres.Error(err)
	}
	keys := map[string]key{}
	var k key
	_, err = pgx.ForEachRow(rows, []any{&k.column, &k.nullable, &k.typ}, func() error {
		k.sql = postgres.QuoteName(k.column)
		if k.typ == "" {
			k.sql, k.typ = slot.WrittenSQL(k.sql), "text"
		}
		keys[k.column] = k
		return nil
	})
	return keys, postgres.Error(err)
}

// findUnique finds what tells rows apart and contains the id: a partitioned table's unique indexes
// have more columns than that.
func (c *TableReader) findUnique(ctx context.Context, conn *pgx.Conn, columns map[string]key,
	id string) error {
	if _, exists := columns[id]; !exists {
		return c.refuse(fmt.Sprintf("has no column %q", id),
			"set router.table.field.event.id to the column with the id")
	}
	rows, err := conn.Query(ctx, `
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
	indexes, err := pgx.CollectRows(rows, pgx.RowTo[[]string])
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
	return c.refuse(fmt.Sprintf("has no unique index on %q without NULLs: rows could not be told "+
		"apart after an interruption", id),
		"ALTER TABLE "+slot.QuoteTable(c.Name)+" ADD PRIMARY KEY ("+postgres.QuoteName(id)+")"+
			InsteadNoData)
}

// findOrder decides by what rows are sorted. Integer ids are taken for a sequence.
func (c *TableReader) findOrder(ctx context.Context, conn *pgx.Conn, columns map[string]key,
	keys KeyColumns) error {
	by := keys.OrderBy
	if by == "" {
		by = keys.Timestamp
	}
	if by != "" {
		k, exists := columns[by]
		if !exists {
			return c.refuse(fmt.Sprintf("has no column %q", by),
				"set snapshot.order_by to the column that tells when a row was inserted")
		}
		if by != keys.ID {
			c.order, c.Order = &k, Order{Column: by}
		}
		return nil
	}
	if slices.Contains([]string{"smallint", "integer", "bigint"}, columns[keys.ID].typ) {
		return nil
	}
	var tracked bool
	if err := conn.QueryRow(ctx, `SELECT pg_catalog.current_setting('track_commit_timestamp')::boolean`).Scan(&tracked); err != nil {
		return fmt.Errorf("read setting track_commit_timestamp: %w", postgres.Error(err))
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

// probe has the server check rights and types, without reading a row.
func (c *TableReader) probe(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.PgConn().Exec(ctx, c.sql(nil)+" LIMIT 0").ReadAll()
	switch postgres.SQLState(err) {
	case "42501": // insufficient_privilege, also row security
		return &slot.Error{
			Err: fmt.Errorf("read table %s: %w: %w", c.Name, postgres.ErrPermission, err),
			WAL: "nothing is kept for the relay before the slot exists",
			Fix: "GRANT SELECT ON " + slot.QuoteTable(c.Name) + " TO " + postgres.QuoteName(conn.Config().
				User) +
				"; GRANT USAGE ON SCHEMA " + postgres.QuoteName(c.Relation.Namespace) + " TO " +
				postgres.QuoteName(conn.Config().User) +
				InsteadNoData,
		}
	case "42883", "42P22": // undefined_function: no ordering; indeterminate_collation
		return c.refuse("cannot be sorted by "+c.Order.String()+": "+err.Error(),
			"set snapshot.order_by to a column that can be sorted by, like a timestamp")
	}
	if err != nil {
		return fmt.Errorf("read table %s: %w", c.Name, postgres.Error(err))
	}
	return nil
}

func (c *TableReader) refuse(problem, fix string) error {
	return &slot.Error{
		Err: fmt.Errorf("table %s %s: %w", c.Name, problem, slot.ErrNoSnapshot),
		Fix: fix,
	}
}

// EstimateRows is what the planner expects, which takes the table's size on disk into account.
func (c *TableReader) EstimateRows(ctx context.Context, conn *pgx.Conn) (int64, error) {
	var document []byte
	if err := conn.QueryRow(ctx, "EXPLAIN (FORMAT JSON) SELECT FROM "+c.from+c.where(""),
		pgx.QueryExecModeSimpleProtocol).Scan(&document); err != nil {
		return 0, fmt.Errorf("estimate the rows of table %s: %w", c.Name, postgres.Error(err))
	}
	var plans []struct {
		Plan struct {
			Rows float64 `json:"Plan Rows"`
		} `json:"Plan"`
	}
	if err := json.Unmarshal(document, &plans); err != nil || len(plans) == 0 {
		return 0, fmt.Errorf("estimate the rows of table %s: %w", c.Name, err)
	}
	return int64(plans[0].Plan.Rows), nil
}

// Position is a place in the order of a table's rows: that of the last row before it.
type Position struct {
	// nil: NULL, or the order has no column beside the unique ones
	Order *string  `json:"order,omitempty"`
	Key   []string `json:"key"`
}

// sql reads all rows after a position: the relation's columns, then what the position consists of.
func (c *TableReader) sql(after *Position) string {
	var columns, sorted []string
	for _, column := range c.Relation.Columns {
		columns = append(columns, postgres.QuoteName(column.Name))
	}
	if c.order != nil {
		columns = append(columns, c.order.sql)
		if c.order.nullable {
			sorted = append(sorted, c.order.sql+" NULLS FIRST")
		} else {
			sorted = append(sorted, c.order.sql)
		}
	}
	for _, k := range c.unique {
		columns = append(columns, k.sql)
		sorted = append(sorted, k.sql)
	}
	condition := ""
	if after != nil {
		condition = c.beyond(after)
	}
	return "SELECT " + strings.Join(columns, ", ") + " FROM " + c.from + c.where(condition) +
		" ORDER BY " + strings.Join(sorted, ", ")
}

// where joins the publication's row filter and a condition, which may be empty both.
func (c *TableReader) where(condition string) string {
	switch {
	case c.filter == "" && condition == "":
		return ""
	case c.filter == "":
		return " WHERE " + condition
	case condition == "":
		return " WHERE (" + c.filter + ")"
	}
	return " WHERE (" + c.filter + ") AND " + condition
}

// beyond is the condition for rows after a position. A comparison with a NULL in it is not true,
// so what stands first is not repeated.
func (c *TableReader) beyond(after *Position) string {
	keys := c.unique
	values := after.Key
	isNull := c.order != nil && after.Order == nil
	if c.order != nil && !isNull {
		keys = append([]key{*c.order}, keys...)
		values = append([]string{*after.Order}, values...)
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
