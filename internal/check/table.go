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
	err := c.row(ctx, "read keys of table "+t.Name, `
		SELECT EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid),
		  CASE WHEN c.relreplident = 'd' AND NOT EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND i.indisvalid) THEN 'n'
		       WHEN c.relreplident = 'i' AND NOT EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisreplident) THEN 'n'
		       ELSE c.relreplident::text END,
		  ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
		        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated <> '' ORDER BY a.attnum)
		FROM pg_catalog.pg_class c WHERE c.oid = $1`, t.OID).Scan(&unique, &identity, &generated)
	if err != nil {
		return err
	}
	if !unique {
		c.add(found("primary_key", t.Name, "no unique index").info(
			"one on the id: consumers recognise an event that comes twice by it, and nothing else keeps "+
				"two rows from having the same",
			"ALTER TABLE "+slot.QuoteTable(t.Name)+" ADD PRIMARY KEY (id); -- or the column that "+
				"router.table.field.event.id names"))
	}
	if identity == "n" && (p.Update || p.Delete) {
		c.add(found("replica_identity", t.Name,
			"none, and the publication publishes updates or deletes").warn(
			"inserts only, or a primary key: as it is, UPDATE and DELETE on the table fail, and with "+
				"them the clean-up",
			"ALTER PUBLICATION "+postgres.QuoteName(p.Name)+" SET (publish = 'insert'); -- "+
				slot.RestartAfter))
	}
	// From 18 on a publication can send them.
	generated = slices.DeleteFunc(generated,
		func(name string) bool { return slices.Contains(t.ColumnNames, name) })
	if len(generated) > 0 {
		c.add(found("generated_columns", t.Name,
			printableNames(generated)+": generated, and not sent").info(
			"columns that are not generated, where the router needs them",
			"if such a column is needed, make it an ordinary one that a trigger or the application "+
				"fills: ALTER TABLE "+slot.QuoteTable(t.Name)+" ALTER COLUMN NAME DROP EXPRESSION;"))
	}
	return nil
}

// The sizes of an outbox that are reported. The relay reads none of it, so the database suffers:
// its disk, its backups, and the vacuum after a late clean-up.
const (
	manyRows  = 1_000_000
	largeSize = 10 << 30
	deadRows  = 100_000 // and twice the live rows: autovacuum begins at a fifth of them
)

// growth is what the statistics say of a table with all its partitions.
type growth struct {
	Size          int64 // bytes, indexes and TOAST included
	Rows          int64 // estimated
	Dead          int64
	Deleted       int64 // since the statistics were reset
	Partitioned   bool
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

// growth reports how large an outbox has become, and whether anything makes it smaller.
func (c *serverCheck) growth(ctx context.Context, t slot.Table) error {
	var g growth
	err := c.row(ctx, "read the size of table "+t.Name, selectGrowth, t.OID).
		Scan(&g.Size, &g.Rows, &g.Dead, &g.Deleted, &g.Vacuumed, &g.AutovacuumOff, &g.Partitioned)
	if err != nil {
		return err
	}
	whyNot, err := slot.MayRead(ctx, c.conn, t.OID, !c.Beside || c.Snapshot)
	if err == nil && whyNot == "" {
		err = c.oldest(ctx, t, &g)
	}
	if err == nil {
		c.add(g.judge(t.Name)...)
	}
	return err
}

// oldest reads the first rows that the server finds, which are mostly the oldest: that costs it
// nothing.
func (c *serverCheck) oldest(ctx context.Context, t slot.Table, g *growth) error {
	doing := "look for the oldest row of table " + t.Name
	err := c.row(ctx, doing, `
		SELECT coalesce((SELECT a.attname::text FROM pg_catalog.pg_attribute a
			WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped AND a.attnotnull AND a.atttypid = 'pg_catalog.timestamptz'::pg_catalog.regtype::oid
			ORDER BY a.attname <> 'created_at', a.attnum LIMIT 1), '')`, t.OID).Scan(&g.TimestampedBy)
	if err != nil || g.TimestampedBy == "" {
		return err
	}
	return c.row(ctx, doing, fmt.Sprintf(`
		SELECT pg_catalog.min(%[1]s) FROM (SELECT %[1]s FROM %[2]s LIMIT 100) AS first
		WHERE pg_catalog.isfinite(%[1]s)`, postgres.QuoteName(g.TimestampedBy),
		slot.QuoteTable(t.Name))).Scan(&g.Oldest)
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
	f := found("outbox_size", table, g)
	const cleanUp = "a clean-up: nothing of what is published is needed in the table, but for the " +
		"days in which a lost slot can be repaired with it"
	switch {
	case g.Size >= largeSize:
		f = f.warn(cleanUp, g.cleanUp())
	case g.Rows >= manyRows && g.Deleted == 0 && !g.Partitioned:
		f = f.info(cleanUp, g.cleanUp())
	}
	fs := findings{f}
	if g.Dead >= deadRows && g.Dead > 2*g.Rows {
		fs.add(found("outbox_dead_rows", table,
			fmt.Sprintf("%d dead rows, %d that live", g.Dead, g.Rows)).warn(
			"a vacuum that keeps up with the deletes; a long transaction of any session keeps it from "+
				"removing them",
			"VACUUM (ANALYZE) "+slot.QuoteTable(table)+";"))
	}
	if len(g.AutovacuumOff) > 0 {
		var fixes []string
		for _, leaf := range g.AutovacuumOff {
			if slot.Printable(leaf) == leaf {
				fixes = append(fixes, "ALTER TABLE "+leaf+" RESET (autovacuum_enabled);")
			}
		}
		if n := len(g.AutovacuumOff) - len(fixes); n > 0 {
			fixes = append(fixes, fmt.Sprintf("-- %d with a name that cannot be shown as it is: look "+
				"at it first (SELECT relname FROM pg_class), and ask who made it", n))
		}
		fs.add(found("outbox_autovacuum", table,
			"off for "+printableNames(g.AutovacuumOff)).warn(
			"on: deleted rows stay on the disk, and the table's transaction ids age until the server "+
				"stops for them", strings.Join(fixes, " ")))
	}
	return fs
}

// printableNames lists names that the owner of a table has given.
func printableNames(names []string) string { return slot.Printable(strings.Join(names, ", ")) }

// cleanUp returns the command that removes what is delivered. Age is no sign of that: a DELETE or
// DROP by time alone also removes what a relay that was down, or a lost slot, has not delivered.
func (g growth) cleanUp() string {
	const enable = "postrider prune --dry-run   # then set prune.enabled = true: it removes only "
	if g.Partitioned {
		return enable + "partitions whose rows are all proven to be delivered (docs/PRUNING.md)"
	}
	return enable + "rows whose delivery is proven (docs/PRUNING.md); a table with a partition for " +
		"each day costs less: postrider init --preset partitioned --print-sql"
}
