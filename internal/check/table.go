package check

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

// keys looks at what identifies a row, and at columns that are not sent.
func (c *serverCheck) keys(ctx context.Context, p *slot.Publication, t slot.Table) error {
	var unique bool
	var identity string
	var generated []string
	err := c.conn.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid),
		  CASE WHEN c.relreplident = 'd' AND NOT EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND i.indisvalid) THEN 'n'
		       WHEN c.relreplident = 'i' AND NOT EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisreplident) THEN 'n'
		       ELSE c.relreplident::text END,
		  ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
		        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated <> '' ORDER BY a.attnum)
		FROM pg_catalog.pg_class c WHERE c.oid = $1`, t.OID).Scan(&unique, &identity, &generated)
	if err != nil {
		return fmt.Errorf("read keys of table %s: %w", t.Name, postgres.Error(err))
	}
	if !unique {
		c.add(Finding{
			Severity: SeverityInfo, Code: "primary_key", Subject: t.Name, Observed: "no unique index",
			Required: "one on the id: consumers recognise an event that comes twice by it, and nothing " +
				"keeps two rows from having the same",
			Fix: "ALTER TABLE " + slot.QuoteTable(t.Name) + " ADD PRIMARY KEY (id); -- or the " +
				"column that router.table.field.event.id names",
		})
	}
	if identity == "n" && (p.Update || p.Delete) {
		c.add(Finding{
			Severity: SeverityWarning, Code: "replica_identity", Subject: t.Name,
			Observed: "none, and the publication publishes updates or deletes",
			Required: "inserts only, or a primary key: as it is, UPDATE and DELETE on the table fail, " +
				"and with them the clean-up",
			Fix: "ALTER PUBLICATION " + postgres.QuoteName(p.Name) + " SET (publish = 'insert');",
		})
	}
	// From 18 on a publication can send them.
	generated = slices.DeleteFunc(generated,
		func(name string) bool { return slices.Contains(t.ColumnNames, name) })
	if len(generated) > 0 {
		c.add(generatedColumns(t, generated))
	}
	return nil
}

func generatedColumns(t slot.Table, generated []string) Finding {
	return Finding{
		Severity: SeverityInfo, Code: "generated_columns", Subject: t.Name,
		Observed: strings.Join(generated, ", ") + ": generated, and not sent",
		Required: "columns that are not generated, where the router needs them",
		Fix: "if such a column is needed, make it an ordinary one that a trigger or the application " +
			"fills: ALTER TABLE " + slot.QuoteTable(t.Name) +
			" ALTER COLUMN NAME DROP EXPRESSION;",
	}
}

// From when on the size of an outbox is worth a word. The relay reads none of it, so what hurts is
// the database: its disk, its backups, and the vacuum after a clean-up that comes late.
const (
	manyRows  = 1_000_000
	largeSize = 10 << 30
	// a fifth of the rows that live is when autovacuum begins; twice as many means that it does not
	// keep up
	deadRows = 100_000
)

// growth is what the statistics say of a table with all its partitions.
type growth struct {
	Size          int64 // bytes, indexes and TOAST included
	Rows          int64 // estimated
	Dead          int64
	Deleted       int64      // since the statistics were reset
	Partitioned   bool       //
	Vacuumed      *time.Time // last; nil: never
	AutovacuumOff []string   // partitions, or the table itself, that autovacuum leaves alone
	Oldest        *time.Time // of a row among the first of the table; nil: not known
	TimestampedBy string     // column of Oldest
}

const selectGrowth = `
WITH leaves AS (
  SELECT c.* FROM pg_catalog.pg_class c WHERE c.oid = $1 AND c.relkind = 'r'
  UNION ALL
  SELECT c.* FROM pg_catalog.pg_partition_tree($1::oid::regclass) p JOIN pg_catalog.pg_class c ON c.oid = p.relid::oid WHERE p.isleaf AND c.relkind = 'r' AND c.oid <> $1
)
SELECT coalesce(pg_catalog.sum(pg_catalog.pg_total_relation_size(l.oid)), 0)::bigint, coalesce(pg_catalog.sum(greatest(l.reltuples, s.n_live_tup, 0)), 0)::bigint,
  coalesce(pg_catalog.sum(s.n_dead_tup), 0)::bigint, coalesce(pg_catalog.sum(s.n_tup_del), 0)::bigint, pg_catalog.max(greatest(s.last_vacuum, s.last_autovacuum)),
  coalesce(pg_catalog.array_agg(l.oid::regclass::text ORDER BY l.oid) FILTER (WHERE 'autovacuum_enabled=false' = ANY (l.reloptions) OR 'autovacuum_enabled=off' = ANY (l.reloptions)), '{}'),
  (SELECT r.relkind = 'p' FROM pg_catalog.pg_class r WHERE r.oid = $1)
FROM leaves l LEFT JOIN pg_catalog.pg_stat_all_tables s ON s.relid = l.oid`

// growth says how large an outbox has become, and whether anything makes it smaller.
func (c *serverCheck) growth(ctx context.Context, t slot.Table) error {
	var g growth
	err := c.conn.QueryRow(ctx, selectGrowth, t.OID).
		Scan(&g.Size, &g.Rows, &g.Dead, &g.Deleted, &g.Vacuumed, &g.AutovacuumOff, &g.Partitioned)
	if err != nil {
		return fmt.Errorf("read the size of table %s: %w", t.Name, postgres.Error(err))
	}
	whyNot, err := slot.MayRead(ctx, c.conn, t.OID, !c.Beside || c.Snapshot)
	if err != nil {
		return err
	}
	if whyNot == "" {
		if err := c.oldest(ctx, t, &g); err != nil {
			return err
		}
	}
	for _, f := range g.judge(t.Name) {
		c.add(f)
	}
	return nil
}

// oldest asks the first rows that the server finds, which are mostly the oldest: that costs it
// nothing.
func (c *serverCheck) oldest(ctx context.Context, t slot.Table, g *growth) error {
	err := c.conn.QueryRow(ctx, `
		SELECT coalesce((SELECT a.attname::text FROM pg_catalog.pg_attribute a
			WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped AND a.attnotnull AND a.atttypid = 'pg_catalog.timestamptz'::pg_catalog.regtype::oid
			ORDER BY a.attname <> 'created_at', a.attnum LIMIT 1), '')`, t.OID).Scan(&g.TimestampedBy)
	if err != nil || g.TimestampedBy == "" {
		return err
	}
	column := postgres.QuoteName(g.TimestampedBy)
	err = c.conn.QueryRow(ctx, "SELECT pg_catalog.min("+column+") FROM (SELECT "+column+" FROM "+
		slot.QuoteTable(t.Name)+" LIMIT 100) AS first WHERE pg_catalog.isfinite("+column+
		")").Scan(&g.Oldest)
	if err != nil {
		return fmt.Errorf("look for the oldest row of table %s: %w", t.Name, postgres.Error(err))
	}
	return nil
}

func (g growth) String() string {
	text := fmt.Sprintf("%d MB, about %d rows, %d dead", g.Size>>20, g.Rows, g.Dead)
	if g.Partitioned {
		text += ", partitioned"
	}
	if g.Vacuumed != nil {
		text += ", vacuumed " + g.Vacuumed.UTC().Format(time.RFC3339)
	}
	if g.Oldest != nil {
		text += ", oldest row about " + g.Oldest.UTC().Format(time.RFC3339)
	}
	return text
}

func (g growth) judge(table string) []Finding {
	f := okFinding("outbox_size", table, g)
	if g.Size >= largeSize || g.Rows >= manyRows && g.Deleted == 0 && !g.Partitioned {
		f.Severity, f.Required = SeverityInfo, "a clean-up: nothing of what is published is needed in "+
			"the table, but for the days in which a lost slot can be repaired with it"
		if g.Size >= largeSize {
			f.Severity = SeverityWarning
		}
		f.Fix = g.cleanUp(table)
	}
	findings := []Finding{f}
	if g.Dead >= deadRows && g.Dead > 2*g.Rows {
		findings = append(findings, Finding{
			Severity: SeverityWarning, Code: "outbox_dead_rows", Subject: table,
			Observed: fmt.Sprintf("%d dead rows, %d that live", g.Dead, g.Rows),
			Required: "a vacuum that keeps up with the deletes; a long transaction, anybody's, keeps it " +
				"from removing them",
			Fix: "VACUUM (ANALYZE) " + slot.QuoteTable(table) + ";",
		})
	}
	if len(g.AutovacuumOff) > 0 {
		list := strings.Join(g.AutovacuumOff, ", ")
		fix := ""
		for _, leaf := range g.AutovacuumOff {
			fix += "ALTER TABLE " + leaf + " RESET (autovacuum_enabled); "
		}
		findings = append(findings, Finding{
			Severity: SeverityWarning, Code: "outbox_autovacuum", Subject: table, Observed: "off for " +
				list,
			Required: "on: deleted rows stay on the disk, and the table's transaction ids age until the " +
				"server stops for them", Fix: strings.TrimSpace(fix),
		})
	}
	return findings
}

func (g growth) cleanUp(table string) string {
	partitions := "; a table with a partition for each day, which is dropped as a whole, costs " +
		"nothing: postrider init --preset partitioned --print-sql"
	switch {
	case g.Partitioned:
		return "drop the partitions whose rows are published and old: DROP TABLE ...; with " +
			"sql/outbox_partitioned.sql: SELECT public.outbox_maintain(7, interval '7 days');"
	case g.TimestampedBy == "":
		return "delete what is published and old, a few thousand rows at a time" + partitions
	}
	return fmt.Sprintf("DELETE FROM %s WHERE ctid IN (SELECT ctid FROM %s WHERE %s < now() - "+
		"interval '7 days' LIMIT 10000); -- again and again, once the rows are published%s",
		slot.QuoteTable(table), slot.QuoteTable(table), postgres.QuoteName(g.TimestampedBy), partitions)
}
