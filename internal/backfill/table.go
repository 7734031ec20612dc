package backfill

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

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

// InsteadNoData ends the advice of errors about a table that cannot be read for a snapshot.
const InsteadNoData = "; or set snapshot.mode = \"no_data\""

// NewTableReader describes a table of a publication without its partitions that are among tables,
// those of which all rows are read. Errors: ErrNoSnapshot if its rows cannot be read in an order,
// postgres.ErrPermission if they cannot be read at all.
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
	c.filter = and(c.filter, "tableoid <> ALL ('{"+strings.Join(others, ",")+"}'::pg_catalog.oid[])")
	return nil
}

// probe has the server check rights and types, without reading a row.
func (c *TableReader) probe(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.PgConn().Exec(ctx, c.sql(nil)+" LIMIT 0").ReadAll()
	switch postgres.SQLState(err) {
	case "42501": // insufficient_privilege, also row security
		to := " TO " + postgres.QuoteName(conn.Config().User)
		return &slot.Error{
			Err: fmt.Errorf("read table %s: %w: %w", c.Name, postgres.ErrPermission, err),
			WAL: "nothing is kept for the relay before the slot exists",
			Fix: "GRANT SELECT ON " + slot.QuoteTable(c.Name) + to + "; GRANT USAGE ON SCHEMA " +
				postgres.QuoteName(c.Relation.Namespace) + to + InsteadNoData,
		}
	case "42883", "42P22": // undefined_function: no ordering; indeterminate_collation
		return c.refuse("cannot be sorted by "+c.Order.String()+": "+err.Error(),
			"set snapshot.order_by to a column that can be sorted by, like a timestamp")
	}
	return postgres.Wrap(err, "read table %s", c.Name)
}

func (c *TableReader) refuse(problem, fix string) error {
	return &slot.Error{Err: fmt.Errorf("table %s %s: %w", c.Name, problem, slot.ErrNoSnapshot),
		Fix: fix}
}

// EstimateRows is what the planner expects, which takes the table's size on disk into account.
func (c *TableReader) EstimateRows(ctx context.Context, conn *pgx.Conn) (int64, error) {
	document, err := postgres.One[[]byte](ctx, conn, "EXPLAIN (FORMAT JSON) SELECT FROM "+c.from+
		where(c.filter, ""), pgx.QueryExecModeSimpleProtocol)
	var plans [1]struct {
		Plan struct {
			Rows float64 `json:"Plan Rows"`
		} `json:"Plan"`
	}
	if err == nil {
		err = json.Unmarshal(document, &plans)
	}
	return int64(plans[0].Plan.Rows), postgres.Wrap(err, "estimate the rows of table %s", c.Name)
}

// sql reads all rows after a position: the relation's columns, then what the position consists of.
func (c *TableReader) sql(after *Position) string {
	var columns, sorted []string
	for _, column := range c.Relation.Columns {
		columns = append(columns, postgres.QuoteName(column.Name))
	}
	for _, k := range c.keys() {
		columns = append(columns, k.sql)
		if k.nullable {
			k.sql += " NULLS FIRST"
		}
		sorted = append(sorted, k.sql)
	}
	condition := ""
	if after != nil {
		condition = c.beyond(after)
	}
	return "SELECT " + strings.Join(columns, ", ") + " FROM " + c.from + where(c.filter, condition) +
		" ORDER BY " + strings.Join(sorted, ", ")
}

// keys are those that rows are sorted by. Only the first may have NULLs.
func (c *TableReader) keys() []key {
	if c.order == nil {
		return c.unique
	}
	return append([]key{*c.order}, c.unique...)
}

// and joins a filter, which may be empty, and a condition.
func and(filter, condition string) string {
	if filter == "" {
		return condition
	}
	return "(" + filter + ") AND " + condition
}

// where joins a filter and a condition, either of which may be empty.
func where(filter, condition string) string {
	switch {
	case filter == "" && condition == "":
		return ""
	case condition == "":
		return " WHERE (" + filter + ")"
	}
	return " WHERE " + and(filter, condition)
}

// Selection is which rows a Recovery looks for in the topics. Its zero value: all that the slot
// cannot have delivered, as far as its catalog_xmin shows, else all.
type Selection struct {
	// FromXmin leaves out rows that were written by older transactions: with the catalog_xmin of a
	// slot that was lost, none of those that it did not deliver.
	FromXmin   uint32
	Since      time.Time // of TimeColumn, inclusive
	Until      time.Time // of TimeColumn, exclusive
	TimeColumn string    // for Since and Until; empty: found
	IDs        []string  // in text form
	// Partial takes no account of records that the topics have lost: what is not in them is
	// published.
	Partial bool
	// SkipRefused leaves out rows that the router refuses.
	SkipRefused bool
}

// closing reports whether all rows of the gap are selected, so that the slot can be recreated.
func (s Selection) closing() bool { return len(s.IDs) == 0 && s.Until.IsZero() }

// Select is the table with only the rows of a Selection, which names the time column. c stays as
// it is.
func (c *TableReader) Select(s Selection) *TableReader {
	var conditions []string
	if c.filter != "" {
		conditions = append(conditions, "("+c.filter+")")
	}
	if s.FromXmin != 0 {
		conditions = append(conditions, slot.FromXminSQL(s.FromXmin))
	}
	column := postgres.QuoteName(s.TimeColumn)
	if !s.Since.IsZero() {
		conditions = append(conditions, column+" >= "+quoteTime(s.Since))
	}
	if !s.Until.IsZero() {
		conditions = append(conditions, column+" < "+quoteTime(s.Until))
	}
	if len(s.IDs) > 0 {
		ids := make([]string, len(s.IDs))
		for i, id := range s.IDs {
			ids[i] = postgres.QuoteText(id)
		}
		conditions = append(conditions, "("+c.unique[0].sql+")::text IN ("+strings.Join(ids, ", ")+")")
	}
	selected := *c
	selected.filter = strings.Join(conditions, " AND ")
	return &selected
}

func quoteTime(t time.Time) string {
	return "'" + t.UTC().Format("2006-01-02 15:04:05.999999Z07:00") + "'::pg_catalog.timestamptz"
}

// InWrittenOrder is the table in the order of the transactions that wrote the rows last, and of
// the rows within one, if there is no better order. It is no order of commits: transactions that
// write the same key at once can change places. It is of no use for Rows after a Position.
func (c *TableReader) InWrittenOrder() *TableReader {
	if !c.Order.Random {
		return c
	}
	ordered := *c
	ordered.Order = Order{Written: true}
	ordered.order = &key{sql: "ROW(-pg_catalog.age(xmin), ctid)"}
	return &ordered
}

// TimeColumn finds the column with the time of a row's insert: wanted, or the one that rows are
// ordered by, or created_at, or the only one with a time; empty: none. The error is about wanted.
func (c *TableReader) TimeColumn(wanted string) (string, error) {
	var all, moments []string
	for _, column := range c.Relation.Columns {
		all = append(all, column.Name)
		if slot.HoldsTime(column) {
			moments = append(moments, column.Name)
		}
	}
	for _, name := range []string{wanted, c.Order.Column, "created_at"} {
		switch {
		case slices.Contains(moments, name):
			return name, nil
		case name != wanted || wanted == "":
		case !slices.Contains(all, wanted):
			return "", fmt.Errorf("table %s publishes no column %q", c.Name, wanted)
		default:
			return "", fmt.Errorf("column %q of table %s is of no type with a time: timestamptz, "+
				"timestamp or date", wanted, c.Name)
		}
	}
	if len(moments) == 1 {
		return moments[0], nil
	}
	return "", nil
}
