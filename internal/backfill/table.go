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
