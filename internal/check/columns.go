package check

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/backfill"
	"github.com/postrider/postrider/internal/catalog"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/slot"
)

// tableCheck checks the columns of a table that is published.
type tableCheck struct {
	conn  *pgx.Conn
	cfg   config.Config
	table slot.Table
	rel   *replication.Relation
	seen  *samples
}

// run has the router judge the columns of the table, and adds the topics of its newest rows to
// seen, if the login may read them.
func (c tableCheck) run(ctx context.Context) []Finding {
	var err error
	name := c.table.Name
	if c.rel, err = c.table.Relation(ctx, c.conn); err != nil {
		return []Finding{errorFinding("columns", name, err)}
	}
	r, err := router.New(c.cfg.Router, c.cfg.Format, router.Options{
		Tables: c.cfg.Replication.Tables, MessagePrefixes: c.cfg.Replication.Messages,
		OwnTopics: c.cfg.OwnTopics(),
		Describe: func(oid, _ uint32) (*router.Table, error) {
			return catalog.Describe(ctx, c.conn, oid)
		},
	})
	if err == nil {
		err = r.Check(c.rel)
	}
	if err != nil {
		f := found("columns", name, err).fail("the columns that the router is to use, of types that "+
			"it can", "postrider config validate")
		if shape := new(router.ShapeError); errors.As(err, &shape) {
			f.Observed = strings.TrimPrefix(err.Error(), name+" cannot be routed: ")
			f.Fix = shape.Hint
		}
		return []Finding{f}
	}
	fs := findings{found("columns", name, "fit the router")}
	fs.add(c.nullable(ctx)...)
	if c.cfg.Snapshot.On() {
		fs.add(c.snapshot(ctx))
	}
	fs.add(c.rows(ctx, r)...)
	return fs
}

// nullable finds columns of topic and key that may be NULL: a row without one halts the relay.
func (c tableCheck) nullable(ctx context.Context) []Finding {
	rule, ok := c.cfg.Rule(c.table.Name)
	if !ok {
		return nil
	}
	// first is the first name that is a column of the table, "" if none is.
	first := func(names ...string) string {
		for _, name := range names {
			isName := func(column replication.Column) bool { return column.Name == name }
			if slices.ContainsFunc(c.rel.Columns, isName) {
				return name
			}
		}
		return ""
	}
	needed := []string{first(rule.RouteByField, "aggregate_type", "aggregatetype")}
	if rule.NullKey == "refuse" && !strings.Contains(rule.AdditionalPlacement, ":partition") {
		needed = append(needed, first(rule.FieldKey, "aggregate_id", "aggregateid"))
	}
	rows, err := c.conn.Query(ctx, `
		SELECT attname::text FROM pg_catalog.pg_attribute WHERE attrelid = $1 AND attname = ANY ($2) AND NOT attnotnull ORDER BY attnum`,
		c.rel.OID, needed)
	var nullable []string
	if err == nil {
		nullable, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		return []Finding{errorFinding("columns_nullable", c.table.Name, postgres.Error(err))}
	}
	if len(nullable) == 0 {
		return nil
	}
	set, null := make([]string, len(nullable)), make([]string, len(nullable))
	for i, name := range nullable {
		column := postgres.QuoteName(name)
		set[i], null[i] = "ALTER COLUMN "+column+" SET NOT NULL", column+" IS NULL"
	}
	table := slot.QuoteTable(c.table.Name)
	f := found("columns_nullable", c.table.Name, strings.Join(nullable, ", ")+" may be NULL")
	return []Finding{f.warn(
		"NOT NULL: a row without its topic or its key cannot be published, and halts the relay",
		"SELECT * FROM "+table+" WHERE "+strings.Join(null, " OR ")+
			"; -- rows that have to be corrected or deleted first\n"+
			"ALTER TABLE "+table+" "+strings.Join(set, ", ")+";")}
}

// snapshot finds out whether the rows of the table can be published, and in which order.
func (c tableCheck) snapshot(ctx context.Context) Finding {
	name := c.table.Name
	reader, err := backfill.NewTableReader(ctx, c.conn, c.table, c.cfg.Replication.Tables,
		c.cfg.KeyColumns(name))
	if err != nil {
		return errorFinding("snapshot", name, err)
	}
	order := reader.Order
	f := found("snapshot", name,
		"rows already in the table are published in the order of "+order.String())
	if order.Random {
		return f.warn("an order that keeps the rows of a key in the order of their inserts",
			"if ids are random: set snapshot.order_by to a column with the time of the insert")
	}
	return f
}
