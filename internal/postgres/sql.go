package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// SQLState is the server's error code, or empty.
func SQLState(err error) string {
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		return pe.Code
	}
	return ""
}

// Major is the server's major version as it introduced itself; zero if it did not.
func Major(conn *pgx.Conn) int {
	n := 0
	for _, c := range strings.TrimSpace(conn.PgConn().ParameterStatus("server_version")) {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + int(c-'0')
	}
	return n
}

// SetTimeout sets one of the server's timeouts for the session.
func SetTimeout(ctx context.Context, conn *pgx.Conn, name string, d time.Duration) error {
	_, err := conn.Exec(ctx, `SELECT pg_catalog.set_config($1, $2, false)`, name,
		fmt.Sprintf("%dms", d.Milliseconds()))
	if err != nil {
		return fmt.Errorf("set %s: %w", name, Error(err))
	}
	return nil
}

// QuoteName is an identifier in SQL.
func QuoteName(name string) string { return pgx.Identifier{name}.Sanitize() }

// QuoteText is a string in SQL.
func QuoteText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
