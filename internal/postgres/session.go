package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgconn"
)

// pinned are settings that every session of ours makes before its first query, whatever the
// database, the role or the connection string set. With this search_path a name without a schema
// is that of pg_catalog: an operator or a function of the same name in public or in "$user" would
// run with our rights.
//
// It is a statement and not parameters of the startup packet: some poolers refuse parameters that
// they do not know, and others ignore them in silence. TestConnect_PinsTheSession
const pinned = `SET quote_all_identifiers = off;
SET search_path = pg_catalog, pg_temp;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SET row_security = off;
SELECT pg_catalog.set_config('restrict_nonsystem_relation_kind', 'view, foreign-table', false)
	WHERE pg_catalog.current_setting('restrict_nonsystem_relation_kind', true) IS NOT NULL`

// pin sends pinned before validate asks whether the server is the wanted one of several hosts.
func pin(validate pgconn.ValidateConnectFunc) pgconn.ValidateConnectFunc {
	return func(ctx context.Context, conn *pgconn.PgConn) error {
		_, err := conn.Exec(ctx, pinned).ReadAll()
		if err != nil || validate == nil {
			return err
		}
		return validate(ctx, conn)
	}
}
