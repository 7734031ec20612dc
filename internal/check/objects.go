package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

const whileShared = "Leave it while Debezium, or another client, reads from the publication"

func (c *serverCheck) publication(ctx context.Context) error {
	p, err := slot.Inspect(ctx, c.conn, c.Need.Publication, c.Need.Tables)
	if err != nil {
		return err
	}
	bad := map[string]bool{}
	for _, problem := range p.Problems() {
		bad[problem.Table] = true
		problem.NoSlot = c.status == nil
		f := errorFinding("publication", p.Name, problem)
		if problem.Table != "" {
			f.Code, f.Subject = "table", problem.Table
		}
		f.Observed = problem.Problem
		f.Required = "every row of the outbox in the stream, under its table's name"
		c.add(f)
	}
	if p.Exists && !bad[""] {
		c.add(found("publication", p.Name, "publishes inserts of "+strings.Join(p.Names(), ", ")))
	}
	if err := c.surplus(ctx, p); err != nil {
		return err
	}
	for _, t := range p.Tables {
		if bad[t.Name] || !t.Published {
			continue
		}
		err := c.step(ctx, 1, func(ctx context.Context) error { return c.table(ctx, p, t) })
		switch {
		case c.conn.IsClosed():
			return err
		case err != nil:
			c.add(unknownOrError("table", t.Name, err, c.conn.Config().User))
		}
	}
	return nil
}

func (c *serverCheck) table(ctx context.Context, p *slot.Publication, t slot.Table) error {
	c.add(found("table", t.Name, "published"))
	if t.Partitions {
		c.add(found("partitions", t.Name, "rows come under the names of its partitions; the relay "+
			"routes them nevertheless").warn(
			"rows under the name of the table: the relay halts in front of rows of a partition that "+
				"was detached or dropped before they were delivered, if it cannot know what they are",
			"ALTER PUBLICATION "+postgres.QuoteName(p.Name)+" SET (publish_via_partition_root = true); "+
				"-- "+slot.RestartAfter))
	}
	if t.RowFilter != "" {
		c.add(found("row_filter", t.Name, "WHERE "+t.RowFilter).warn(
			"no row filter: rows that do not match are never sent",
			slot.ResetSQL(p, t)+" -- unless that is meant; "+slot.RestartAfter))
	}
	if !t.AllColumns {
		c.add(found("column_list", t.Name, "only "+strings.Join(t.ColumnNames, ", ")+" are sent").info(
			"every column that the router uses, which is looked at next",
			slot.ResetSQL(p, t)+" -- if others are wanted, too; "+slot.RestartAfter))
	}
	if c.Table != nil {
		c.add(c.Table(ctx, c.conn, t)...)
	}
	if c.conn.IsClosed() {
		return nil // Table has reported it
	}
	if err := c.keys(ctx, p, t); err != nil {
		return err
	}
	return c.growth(ctx, t)
}

// surplus reports what the publication sends beyond what is needed.
func (c *serverCheck) surplus(ctx context.Context, p *slot.Publication) error {
	name, tables := postgres.QuoteName(p.Name), p.Names()
	others, more, err := p.Others(ctx, c.conn)
	if err != nil {
		return err
	}
	if len(others) > 0 {
		observed := strings.Join(others, ", ")
		if more > 0 {
			observed += fmt.Sprintf(" and %d more", more)
		}
		foreign := func(t slot.Table) bool { return !t.Published && p.Foreign(t) }
		fix := "ALTER PUBLICATION " + name + " SET TABLE " + slot.QuoteTables(tables) + ";"
		switch {
		case p.AllTables:
			fix = "DROP PUBLICATION " + name + "; " + slot.CreatePublicationSQL(p.Name, tables) +
				" -- while the relay is stopped and nothing is written"
		case slices.ContainsFunc(p.Tables, foreign):
			fix = p.TakeSQL(fix)
		}
		c.add(found("publication_tables", p.Name, observed).warn("only "+strings.Join(tables, ", ")+
			": other rows are read, decoded and thrown away. "+whileShared, fix))
	}
	if p.Exists && p.Insert && (p.Update || p.Delete || p.Truncate) {
		c.add(found("publication_publish", p.Name, "publishes updates, deletes or truncates").warn(
			"publish = 'insert': else a DELETE fails on a table without a replica identity, and updates "+
				"are handled as router.table.op.invalid.behavior says. "+whileShared,
			"ALTER PUBLICATION "+name+" SET (publish = 'insert'); -- "+slot.RestartAfter))
	}
	return nil
}
