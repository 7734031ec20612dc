package slot

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

// MayRead says why the rows of a table must not be read by SELECT; empty: they may be. The server
// plans a SELECT with code of the table's owner and the rights of the reader
// (docs/THREAT-MODEL.md). The owner grants the right to SELECT, so that is no consent: consented
// is, by the configuration or a command. A role may always read its own tables.
func MayRead(ctx context.Context, conn *pgx.Conn, oid uint32,
	consented bool) (whyNot string, err error) {
	var granted, table, own bool
	err = conn.QueryRow(ctx, `
		SELECT pg_catalog.has_table_privilege(c.oid, 'SELECT'), c.relkind IN ('r'::"char", 'p'::"char"),
		NOT EXISTS (
			SELECT FROM pg_catalog.pg_class t WHERE t.relowner <> me.oid
			  AND (t.oid = c.oid OR t.oid IN (SELECT p.relid::oid FROM
			  pg_catalog.pg_partition_tree(c.oid::regclass) p)))
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_roles me ON me.rolname = current_user WHERE c.oid =
		$1::oid`, oid).Scan(&granted, &table, &own)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "there is no such table", nil
	case err != nil:
		return "", fmt.Errorf("read who may read relation %d: %w", oid, postgres.Error(err))
	case !table:
		return "it is no table", nil
	case !granted:
		return "it takes SELECT on the table", nil
	case !own && !consented:
		return "it belongs to another role, and snapshot.mode is off", nil
	}
	return "", nil
}
