package prune

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

// partman is what pg_partman is configured to do with a table.
type partman struct {
	schema    string // of the extension
	managed   bool   // it creates partitions of the table
	retention string // it removes them after that; empty: it does not
}

// selectPartman finds the table of the extension: another one of the name is not it.
const selectPartman = `SELECT n.nspname FROM pg_catalog.pg_extension e
	JOIN pg_catalog.pg_depend d ON d.refobjid = e.oid AND d.deptype = 'e'
	  AND d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass::pg_catalog.oid
	  AND d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid
	JOIN pg_catalog.pg_class c ON c.oid = d.objid AND c.relkind = 'r' AND c.relname = 'part_config'
	JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
	WHERE e.extname = 'pg_partman'`

func readPartman(ctx context.Context, conn *pgx.Conn, t *partitionedTable) (p partman, err error) {
	p.schema, err = postgres.One[string](ctx, conn, selectPartman)
	if err == nil {
		err = conn.QueryRow(ctx, "SELECT coalesce(c.retention, '') FROM "+
			pgx.Identifier{p.schema, "part_config"}.Sanitize()+" c WHERE c.parent_table = $1::text",
			t.Schema+"."+t.Name).Scan(&p.retention)
		p.managed = err == nil
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return p, nil
	}
	return p, postgres.Wrap(err, "read the configuration of pg_partman; GRANT USAGE ON SCHEMA %[1]s "+
		"TO %[2]s; GRANT SELECT ON %[1]s.part_config TO %[2]s", postgres.QuoteName(p.schema),
		postgres.QuoteName(t.Role))
}

// refuses returns why postrider removes nothing beside pg_partman, and what to type; empty: it
// may.
func (p partman) refuses(t *partitionedTable) (problem, fix string) {
	if p.retention == "" {
		return "", ""
	}
	return "is pruned by pg_partman, which removes partitions after " + p.retention +
			", whether their rows are delivered or not",
		fmt.Sprintf("UPDATE %s.part_config SET retention = NULL WHERE parent_table = %s; -- and "+
			"postrider removes them", postgres.QuoteName(p.schema),
			postgres.QuoteText(t.Schema+"."+t.Name))
}
