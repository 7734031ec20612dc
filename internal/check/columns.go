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

// checkTable has the router judge the columns of a table, and adds the topics of its newest rows
// to seen, if the login may read them.
func checkTable(
	ctx context.Context, conn *pgx.Conn, cfg config.Config, t slot.Table, seen *samples,
) []Finding {
	rel, err := t.Relation(ctx, conn)
	if err != nil {
		return []Finding{errorFinding("columns", t.Name, err)}
	}
	r, err := router.New(cfg.Router, cfg.Format, router.Options{
		Tables: cfg.Replication.Tables, MessagePrefixes: cfg.Replication.Messages,
		OwnTopics: cfg.OwnTopics(),
		Describe: func(oid, _ uint32) (*router.Table, error) {
			return catalog.Describe(ctx, conn, oid)
		},
	})
	if err == nil {
		err = r.Check(rel)
	}
	if err != nil {
		f := found("columns", t.Name, err).fail("the columns that the router is to use, of types that "+
			"it can", "postrider config validate")
		if shape := new(router.ShapeError); errors.As(err, &shape) {
			f.Observed = strings.TrimPrefix(err.Error(), t.Name+" cannot be routed: ")
			f.Fix = shape.Hint
		}
		return []Finding{f}
	}
	fs := findings{found("columns", t.Name, "fit the router")}
	fs.add(checkNullable(ctx, conn, cfg, t, rel)...)
	if cfg.Snapshot.On() {
		fs.add(checkSnapshot(ctx, conn, cfg, t))
	}
	fs.add(seen.table(ctx, conn, r, t, rel)...)
	return fs
}

// checkNullable finds columns of topic and key that may be NULL: a row without one halts the
// relay.
func checkNullable(
	ctx context.Context, conn *pgx.Conn, cfg config.Config, t slot.Table, rel *replication.Relation,
) []Finding {
	rule, ok := cfg.Rule(t.Name)
	if !ok {
		return nil
	}
	// first is the first name that is a column of the table, "" if none is.
	first := func(names ...string) string {
		for _, name := range names {
			isName := func(c replication.Column) bool { return c.Name == name }
			if slices.ContainsFunc(rel.Columns, isName) {
				return name
			}
		}
		return ""
	}
	needed := []string{first(rule.RouteByField, "aggregate_type", "aggregatetype")}
	if rule.NullKey == "refuse" && !strings.Contains(rule.AdditionalPlacement, ":partition") {
		needed = append(needed, first(rule.FieldKey, "aggregate_id", "aggregateid"))
	}
	rows, err := conn.Query(ctx, `
		SELECT attname::text FROM pg_catalog.pg_attribute WHERE attrelid = $1 AND attname = ANY ($2) AND NOT attnotnull ORDER BY attnum`,
		rel.OID, needed)
	var nullable []string
	if err == nil {
		nullable, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		return []Finding{errorFinding("columns_nullable", t.Name, postgres.Error(err))}
	}
	if len(nullable) == 0 {
		return nil
	}
	set, null := make([]string, len(nullable)), make([]string, len(nullable))
	for i, name := range nullable {
		column := postgres.QuoteName(name)
		set[i], null[i] = "ALTER COLUMN "+column+" SET NOT NULL", column+" IS NULL"
	}
	table := slot.QuoteTable(t.Name)
	f := found("columns_nullable", t.Name, strings.Join(nullable, ", ")+" may be NULL")
	return []Finding{f.warn(
		"NOT NULL: a row without its topic or its key cannot be published, and halts the relay",
		"SELECT * FROM "+table+" WHERE "+strings.Join(null, " OR ")+
			"; -- rows that have to be corrected or deleted first\n"+
			"ALTER TABLE "+table+" "+strings.Join(set, ", ")+";")}
}

// checkSnapshot finds out whether the rows of a table can be published, and in which order.
func checkSnapshot(
	ctx context.Context, conn *pgx.Conn, cfg config.Config, t slot.Table,
) Finding {
	c, err := backfill.NewTableReader(ctx, conn, t, cfg.Replication.Tables, cfg.KeyColumns(t.Name))
	if err != nil {
		return errorFinding("snapshot", t.Name, err)
	}
	f := found("snapshot", t.Name,
		"rows already in the table are published in the order of "+c.Order.String())
	if c.Order.Random {
		return f.warn("an order that keeps the rows of a key in the order of their inserts",
			"if ids are random: set snapshot.order_by to a column with the time of the insert")
	}
	return f
}
