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

// TableReader reads the rows of a table in an order.
type TableReader struct {
	Name     string // schema.name, as configured
	Relation *replication.Relation
	Order    Order

	columns KeyColumns
	from    string // of the SELECT
	filter  string // of the publication; empty: none
	order   *key   // nil: by unique alone
	unique  []key  // of a unique index, the id first: make the order total
}

// insteadNoData ends the advice of errors about a table that cannot be read for a snapshot.
const insteadNoData = "; or set snapshot.mode = \"no_data\""

// NewTableReader describes a table of a publication. If it is partitioned, its partitions among
// tables, which are read by themselves, are excluded. Errors: slot.ErrNoSnapshot if its rows
// cannot be read in an order, postgres.ErrPermission if they cannot be read at all.
func NewTableReader(ctx context.Context, conn *pgx.Conn, t slot.Table, tables []string,
	keys KeyColumns) (*TableReader, error) {
	rel, err := t.Relation(ctx, conn)
	if err != nil {
		return nil, err
	}
	c := &TableReader{Name: t.Name, Relation: rel, columns: keys, from: slot.QuoteTable(t.Name),
		filter: t.RowFilter}
	if t.Kind != "p" {
		c.from = "ONLY " + c.from // rows of tables that inherit from it are streamed under their names
	} else if err := c.excludePartitions(ctx, conn, tables); err != nil {
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

// excludePartitions excludes the partitions that belong to another of the tables.
func (c *TableReader) excludePartitions(ctx context.Context, conn *pgx.Conn,
	tables []string) error {
	own, err := slot.OIDs(ctx, conn, []string{c.Name})
	if err != nil {
		return err
	}
	tableOf, err := slot.OIDs(ctx, conn, tables)
	if err != nil {
		return err
	}
	var others []string
	for oid := range own {
		if table, known := tableOf[oid]; known && table != c.Name {
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

// probe makes the server check rights and types, without reading a row.
func (c *TableReader) probe(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.PgConn().Exec(ctx, c.sql(nil)+" LIMIT 0").ReadAll()
	switch postgres.SQLState(err) {
	case "42501": // insufficient_privilege, also row security
		to := " TO " + postgres.QuoteName(conn.Config().User)
		return &slot.Error{
			Err: fmt.Errorf("read table %s: %w: %w", c.Name, postgres.ErrPermission, err),
			WAL: "nothing is kept for the relay before the slot exists",
			Fix: "GRANT SELECT ON " + slot.QuoteTable(c.Name) + to + "; GRANT USAGE ON SCHEMA " +
				postgres.QuoteName(c.Relation.Namespace) + to + insteadNoData,
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

// estimateRows returns the planner's estimate, which considers the table's size on disk.
func (c *TableReader) estimateRows(ctx context.Context, conn *pgx.Conn) (int64, error) {
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
	err = slot.Locked(postgres.Wrap(err, "estimate the rows of table %s", c.Name))
	return int64(plans[0].Plan.Rows), err
}

// sql returns the SELECT of all rows after a position: the relation's columns, then the sort keys.
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
		condition = c.conditionAfter(after)
	}
	return "SELECT " + strings.Join(columns, ", ") + " FROM " + c.from + where(c.filter, condition) +
		" ORDER BY " + strings.Join(sorted, ", ")
}

// keys returns the sort keys. Only the first may have NULLs.
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

// Selection selects the rows that a Recovery looks for in the topics. The zero value selects all
// that the lost slot may not have delivered by its catalog_xmin, or all if there is no lost slot.
type Selection struct {
	// FromXmin excludes rows written by older transactions. Those older than the catalog_xmin of a
	// lost slot were delivered.
	FromXmin   uint32
	Since      time.Time // of TimeColumn, inclusive; without Until also rows without a time
	Until      time.Time // of TimeColumn, exclusive
	TimeColumn string    // for Since and Until; empty: see timeColumn
	IDs        []string  // in text form
	// Partial publishes every row that is not in the topics, also if they have lost records.
	Partial bool
	// SkipRefused skips rows that the router refuses.
	SkipRefused bool
}

// byTime reports whether rows are selected by the time of their insert.
func (s Selection) byTime() bool { return !s.Since.IsZero() || !s.Until.IsZero() }

// coversGap reports whether all rows of the gap are selected, so that the slot can be recreated.
func (s Selection) coversGap() bool { return len(s.IDs) == 0 && s.Until.IsZero() }

// recordsSince is slot.RecordsSince of the rows of a Selection, with its TimeColumn set.
func (c *TableReader) recordsSince(s Selection) time.Time {
	if s.Since.IsZero() {
		return time.Time{}
	}
	i := slices.IndexFunc(c.Relation.Columns,
		func(column replication.Column) bool { return column.Name == s.TimeColumn })
	return slot.RecordsSince(s.Since.Add(-readMargin), c.Relation.Columns[i], c.columns.Timestamp)
}

// selectRows returns a copy of c that reads only the rows of a Selection with its TimeColumn set.
func (c *TableReader) selectRows(s Selection) *TableReader {
	var conditions []string
	if c.filter != "" {
		conditions = append(conditions, "("+c.filter+")")
	}
	if s.FromXmin != 0 {
		conditions = append(conditions, slot.FromXminSQL(s.FromXmin))
	}
	column := postgres.QuoteName(s.TimeColumn)
	if !s.Since.IsZero() {
		since := column + " >= " + quoteTime(s.Since)
		if s.Until.IsZero() {
			since = "(" + since + " OR " + column + " IS NULL)"
		}
		conditions = append(conditions, since)
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

// inWrittenOrder returns c if it has an order in time. Else it returns a copy in the order of the
// transactions that wrote the rows last, and of the rows within one. That is not the commit order:
// concurrent transactions that write a key can be swapped. Rows cannot resume in it.
func (c *TableReader) inWrittenOrder() *TableReader {
	if !c.Order.Random {
		return c
	}
	ordered := *c
	ordered.Order = Order{Written: true}
	ordered.order = &key{sql: "ROW(-pg_catalog.age(xmin), ctid)"}
	return &ordered
}

// timeColumn returns the column with the time of a row's insert. Rows are selected by the one that
// the user names, or that of snapshot.order_by, or created_at, and by no other: the time of the
// record often is that of the event, by which a row that was inserted late would be left out. A
// column that is only shown can also be the one that rows are ordered by, or the only one with a
// time; empty: none.
func (c *TableReader) timeColumn(s Selection) (string, error) {
	first, holds, types := c.Order.Column, slot.HoldsTime, "timestamptz, timestamp or date"
	if s.byTime() {
		first, holds, types = c.columns.OrderBy, slot.HoldsInstant, "timestamptz or timestamp"
	}
	candidates := []string{first, "created_at", "createdAt"}
	var all, timed []string
	for _, column := range c.Relation.Columns {
		all = append(all, column.Name)
		if holds(column) {
			timed = append(timed, column.Name)
		}
	}
	if s.TimeColumn != "" {
		candidates = []string{s.TimeColumn}
	}
	for _, name := range candidates {
		if slices.Contains(timed, name) {
			return name, nil
		}
	}
	switch {
	case s.TimeColumn != "" && !slices.Contains(all, s.TimeColumn):
		return "", fmt.Errorf("table %s publishes no column %q", c.Name, s.TimeColumn)
	case s.TimeColumn != "":
		return "", fmt.Errorf("column %q of table %s is not a %s", s.TimeColumn, c.Name, types)
	case s.byTime():
		return "", fmt.Errorf("table %s has no column created_at of type %s: name the column that "+
			"says when a row was inserted, not when its event happened, with --time-column", c.Name,
			types)
	case len(timed) == 1:
		return timed[0], nil
	}
	return "", nil
}
