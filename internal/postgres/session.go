package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgconn"
)

// pinned is what every session of ours is set to before anything else is asked, whatever the database, the role or the connection string
// say. Names without a schema mean those of pg_catalog: an operator or a function of the same name that somebody made in public or in
// "$user" would run with our rights.
//
// SET and not a parameter of the startup packet, since poolers refuse those that they do not know, and some ignore them in silence.
// TestConnect_PinsTheSession
const pinned = `SET quote_all_identifiers = off;
SET search_path = pg_catalog, pg_temp;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SET row_security = off;
SELECT pg_catalog.set_config('restrict_nonsystem_relation_kind', 'view, foreign-table', false)
	WHERE pg_catalog.current_setting('restrict_nonsystem_relation_kind', true) IS NOT NULL`

// pin has a session set to what is pinned before the server is asked whether it is the wanted one of several.
func pin(validate pgconn.ValidateConnectFunc) pgconn.ValidateConnectFunc {
	return func(ctx context.Context, conn *pgconn.PgConn) error {
		if _, err := conn.Exec(ctx, pinned).ReadAll(); err != nil {
			return err
		}
		if validate == nil {
			return nil
		}
		return validate(ctx, conn)
	}
}
