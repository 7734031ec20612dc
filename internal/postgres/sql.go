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
	if pe, ok := errors.AsType[*pgconn.PgError](err); ok {
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

// OnStandby reports whether the server of a connection is a standby, as of its last answer.
func OnStandby(conn *pgx.Conn) bool {
	return conn.PgConn().ParameterStatus("in_hot_standby") == "on"
}

// SetTimeout sets one of the server's timeouts for the session.
func SetTimeout(ctx context.Context, conn *pgx.Conn, name string, d time.Duration) error {
	_, err := conn.Exec(ctx, `SELECT pg_catalog.set_config($1, $2, false)`, name,
		fmt.Sprintf("%dms", d.Milliseconds()))
	return Wrap(err, "set %s", name)
}

// One returns the only column of the only row of a query. The error is that of Error, or
// pgx.ErrNoRows.
func One[T any](ctx context.Context, conn *pgx.Conn, sql string, args ...any) (value T,
	err error) {
	err = conn.QueryRow(ctx, sql, args...).Scan(&value)
	return value, Error(err)
}

// Collect returns the rows of a query, each read by row. The error is that of Error.
func Collect[T any](ctx context.Context, conn *pgx.Conn, row pgx.RowToFunc[T], sql string,
	args ...any) ([]T, error) {
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return nil, Error(err)
	}
	found, err := pgx.CollectRows(rows, row)
	return found, Error(err)
}

// QuoteName is an identifier in SQL.
func QuoteName(name string) string { return pgx.Identifier{name}.Sanitize() }

// QuoteText is a string in SQL.
func QuoteText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// Poll calls check until it returns true or an error, for at most limit; zero: without limit. It
// returns the last result of check, or the cause for which ctx has ended.
func Poll(ctx context.Context, interval, limit time.Duration,
	check func() (bool, error)) (bool, error) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for began := time.Now(); ; {
		done, err := check()
		if done || err != nil || limit > 0 && time.Since(began) > limit {
			return done, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}
