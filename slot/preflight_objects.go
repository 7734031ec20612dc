package slot

import (
	"context"
	"fmt"
	"strings"

	"postrider/postgres"
)

func (c *checker) publication(ctx context.Context) error {
	p, err := Inspect(ctx, c.conn, c.Need.Publication, c.Need.Tables)
	if err != nil {
		return err
	}
	bad := map[string]bool{}
	for _, problem := range p.Problems() {
		bad[problem.Table] = true
		f := ErrorFinding("publication", p.Name, problem)
		if problem.Table != "" {
			f.Code, f.Subject = "table", problem.Table
		}
		f.Observed, f.Required = problem.Problem, "every row of the outbox in the stream, under its table's name"
		c.add(f)
	}
	if p.Exists && !bad[""] {
		c.add(okFinding("publication", p.Name, fmt.Sprintf("publishes inserts of %s", strings.Join(p.names(), ", "))))
	}
	for _, t := range p.Tables {
		if !bad[t.Name] && t.Published {
			c.table(ctx, p, t)
		}
	}
	c.surplus(p)
	return nil
}

func (c *checker) table(ctx context.Context, p *Publication, t Table) {
	c.add(okFinding("table", t.Name, "published"))
	if t.Partitions {
		c.add(Finding{
			Severity: SeverityWarning, Code: "partitions", Subject: t.Name, Observed: "rows come under the names of its partitions; the relay routes them all the same",
			Required: "rows under the name of the table: a partition that is detached before its rows are delivered cannot be told from another table",
			Fix:      "ALTER PUBLICATION " + quoteName(p.Name) + " SET (publish_via_partition_root = true);",
		})
	}
	if t.RowFilter != "" {
		c.add(Finding{
			Severity: SeverityWarning, Code: "row_filter", Subject: t.Name, Observed: "WHERE " + t.RowFilter, Required: "no row filter",
			Fix: "rows that do not match are never sent; if that is not meant: " + resetSQL(p, t),
		})
	}
	if !t.AllColumns {
		c.add(Finding{Severity: SeverityInfo, Code: "column_list", Subject: t.Name, Observed: strings.Join(t.ColumnNames, ", ")})
	}
	if c.Table != nil {
		for _, f := range c.Table(ctx, c.conn, t) {
			c.add(f)
		}
	}
}

// resetSQL takes filter and column list away. SET TABLE would throw the other tables out.
func resetSQL(p *Publication, t Table) string {
	return "ALTER PUBLICATION " + quoteName(p.Name) + " DROP TABLE " + quoteTable(t.Name) +
		", ADD TABLE " + quoteTable(t.Name) + ";"
}

// surplus reports what the publication sends beyond what is needed.
func (c *checker) surplus(p *Publication) {
	if len(p.Others) > 0 {
		observed := strings.Join(p.Others, ", ")
		if p.More > 0 {
			observed += fmt.Sprintf(" and %d more", p.More)
		}
		fix := "ALTER PUBLICATION " + quoteName(p.Name) + " SET TABLE " + quoteTables(p.names()) + ";"
		if p.AllTables {
			fix = "DROP PUBLICATION " + quoteName(p.Name) + "; " + CreatePublicationSQL(p.Name, p.names()) + " -- while the relay is stopped and nothing is written"
		}
		c.add(Finding{
			Severity: SeverityWarning, Code: "publication_tables", Subject: p.Name, Observed: observed,
			Required: "only " + strings.Join(p.names(), ", ") + ": other rows are read, decoded and thrown away. Leave them while Debezium, or whoever " +
				"else, reads from the publication", Fix: fix,
		})
	}
	if p.Exists && p.Insert && (p.Update || p.Delete || p.Truncate) {
		c.add(Finding{
			Severity: SeverityWarning, Code: "publication_publish", Subject: p.Name, Observed: "publishes updates, deletes or truncates",
			Required: "publish = 'insert': else a DELETE fails on a table without a replica identity, and updates are handled as " +
				"router.table.op.invalid.behavior says. Leave it while Debezium, or whoever else, reads from the publication",
			Fix: "ALTER PUBLICATION " + quoteName(p.Name) + " SET (publish = 'insert');",
		})
	}
}

func (c *checker) settings(ctx context.Context) error {
	keep, err := c.setting(ctx, "max_slot_wal_keep_size")
	if err != nil {
		return err
	}
	f := okFinding("max_slot_wal_keep_size", "max_slot_wal_keep_size", keep)
	if keep == "-1" {
		f.Severity, f.Required = SeverityWarning, "a limit below the free space of the disk"
		f.Fix = "without one, a relay that is stopped for long fills the database's disk: ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'; SELECT pg_reload_conf();"
	}
	c.add(f)

	names, err := c.setting(ctx, "synchronous_standby_names")
	if err != nil {
		return err
	}
	if strings.Contains(names, "*") {
		c.add(Finding{
			Severity: SeverityWarning, Code: "synchronous_standby_names", Subject: "synchronous_standby_names", Observed: names,
			Required: "the standbys by name: with * the relay becomes a synchronous standby, and commits wait for it",
			Fix:      "ALTER SYSTEM SET synchronous_standby_names = 'NAME, ...'; SELECT pg_reload_conf();",
		})
	}

	idle, err := c.setting(ctx, "idle_replication_slot_timeout") // from 18
	if err != nil {
		return err
	}
	if idle != "" && idle != "0" {
		c.add(Finding{
			Severity: SeverityWarning, Code: "idle_replication_slot_timeout", Subject: "idle_replication_slot_timeout", Observed: idle,
			Required: "0, or longer than the relay is ever stopped: after it the slot is lost",
			Fix:      "ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf();",
		})
	}
	return nil
}

// messages reports who may forge events: everyone may emit logical messages unless that was revoked.
func (c *checker) messages(ctx context.Context) error {
	if !c.Messages {
		return nil
	}
	var open []string
	err := c.conn.QueryRow(ctx, `
		SELECT coalesce(array_agg('pg_catalog.' || p.oid::regprocedure::text), '{}') FROM pg_catalog.pg_proc p
		WHERE p.proname = 'pg_logical_emit_message' AND p.pronamespace = 'pg_catalog'::regnamespace
		  AND pg_catalog.has_function_privilege('public', p.oid, 'EXECUTE')`).Scan(&open)
	if err != nil {
		return fmt.Errorf("read rights on pg_logical_emit_message: %w", postgres.Error(err))
	}
	f := okFinding("emit_message", "pg_logical_emit_message", "not executable by PUBLIC")
	if len(open) > 0 {
		f.Severity, f.Observed, f.Required = SeverityWarning, "executable by PUBLIC", "executable by the application alone: whoever may call it can forge events"
		f.Fix = "REVOKE EXECUTE ON FUNCTION " + strings.Join(open, ", ") + " FROM PUBLIC; -- then GRANT it to the application's role"
	}
	c.add(f)
	return nil
}
