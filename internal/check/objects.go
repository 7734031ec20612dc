package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

func (c *serverCheck) publication(ctx context.Context) error {
	p, err := slot.Inspect(ctx, c.conn, c.Need.Publication, c.Need.Tables)
	if err != nil {
		return err
	}
	bad := map[string]bool{}
	for _, problem := range p.Problems() {
		bad[problem.Table] = true
		problem.NoSlot = c.status == nil
		f := ErrorFinding("publication", p.Name, problem)
		if problem.Table != "" {
			f.Code, f.Subject = "table", problem.Table
		}
		f.Observed, f.Required = problem.Problem, "every row of the outbox in the stream, under its "+
			"table's name"
		c.add(f)
	}
	if p.Exists && !bad[""] {
		c.add(okFinding("publication", p.Name, fmt.Sprintf("publishes inserts of %s",
			strings.Join(p.Names(), ", "))))
	}
	c.surplus(p)
	for _, t := range p.Tables {
		if bad[t.Name] || !t.Published {
			continue
		}
		err := c.step(ctx, 1, func(ctx context.Context) error { return c.table(ctx, p, t) })
		switch {
		case c.conn.IsClosed():
			return err
		case err != nil:
			f := unknownOrError("table", err, c.conn.Config().User)
			f.Subject = t.Name
			c.add(f)
		}
	}
	return nil
}

func (c *serverCheck) table(ctx context.Context, p *slot.Publication, t slot.Table) error {
	c.add(okFinding("table", t.Name, "published"))
	if t.Partitions {
		c.add(Finding{
			Severity: SeverityWarning, Code: "partitions", Subject: t.Name,
			Observed: "rows come under the names of its partitions; the relay routes them all the same",
			Required: "rows under the name of the table: the relay halts in front of rows of a partition " +
				"that was detached or dropped before they were delivered, if it cannot know what they are",
			Fix: "ALTER PUBLICATION " + postgres.QuoteName(p.Name) +
				" SET (publish_via_partition_root = true); -- a relay that runs stops at the change, start " +
				"it again",
		})
	}
	if t.RowFilter != "" {
		c.add(Finding{
			Severity: SeverityWarning, Code: "row_filter", Subject: t.Name, Observed: "WHERE " +
				t.RowFilter,
			Required: "no row filter: rows that do not match are never sent", Fix: slot.ResetSQL(p, t) +
				" -- unless that is meant; a relay that runs stops at the change, start it again",
		})
	}
	if !t.AllColumns {
		c.add(Finding{
			Severity: SeverityInfo, Code: "column_list", Subject: t.Name, Observed: "only " +
				strings.Join(t.ColumnNames, ", ") + " are sent",
			Required: "every column that the router uses, which is looked at next", Fix: slot.ResetSQL(p,
				t) + " -- if others are wanted, too; a relay that runs stops at the change, start it again",
		})
	}
	if c.Table != nil {
		for _, f := range c.Table(ctx, c.conn, t) {
			c.add(f)
		}
	}
	if c.conn.IsClosed() {
		return nil // and said there
	}
	if err := c.keys(ctx, p, t); err != nil {
		return err
	}
	return c.growth(ctx, t)
}

// surplus reports what the publication sends beyond what is needed.
func (c *serverCheck) surplus(p *slot.Publication) {
	if len(p.Others) > 0 {
		observed := strings.Join(p.Others, ", ")
		if p.More > 0 {
			observed += fmt.Sprintf(" and %d more", p.More)
		}
		fix := "ALTER PUBLICATION " + postgres.QuoteName(p.Name) + " SET TABLE " +
			slot.QuoteTables(p.Names()) + ";"
		if slices.ContainsFunc(p.Tables, func(t slot.Table) bool {
			return !t.Published &&
				p.Foreign(t)
		}) {
			fix = p.TakeSQL() + " " + fix + p.Caution()
		}
		if p.AllTables {
			fix = "DROP PUBLICATION " + postgres.QuoteName(p.Name) + "; " +
				slot.CreatePublicationSQL(p.Name, p.Names()) + " -- while the relay is stopped and nothing " +
				"is written"
		}
		c.add(Finding{
			Severity: SeverityWarning, Code: "publication_tables", Subject: p.Name, Observed: observed,
			Required: "only " + strings.Join(p.Names(), ", ") + ": other rows are read, decoded and " +
				"thrown away. Leave them while Debezium, or whoever " +
				"else, reads from the publication", Fix: fix,
		})
	}
	if p.Exists && p.Insert && (p.Update || p.Delete || p.Truncate) {
		c.add(Finding{
			Severity: SeverityWarning, Code: "publication_publish", Subject: p.Name,
			Observed: "publishes updates, deletes or truncates",
			Required: "publish = 'insert': else a DELETE fails on a table without a replica identity, " +
				"and updates are handled as " +
				"router.table.op.invalid.behavior says. Leave it while Debezium, or whoever else, reads " +
				"from the publication",
			Fix: "ALTER PUBLICATION " + postgres.QuoteName(p.Name) + " SET (publish = 'insert');",
		})
	}
}
