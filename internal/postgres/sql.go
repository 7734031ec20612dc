package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
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

// ParseLSN reads PostgreSQL's text form of an LSN, as 16/B374D848, and nothing else.
// pglogrepl.ParseLSN also accepts 16/B374D848x and 16/B374D8480, and a slot that is advanced to a
// mistyped position loses what is between.
func ParseLSN(text string) (pglogrepl.LSN, error) {
	high, low, found := strings.Cut(text, "/")
	h, err := strconv.ParseUint(high, 16, 32)
	l, err2 := strconv.ParseUint(low, 16, 32)
	if !found || err != nil || err2 != nil || len(high) > 8 || len(low) > 8 {
		return 0, fmt.Errorf("%.40q is not an LSN as 16/B374D848", text)
	}
	return pglogrepl.LSN(h<<32 | l), nil
}

// TextLSN is an LSN that JSON has in PostgreSQL's text form; zero for null and an empty text.
type TextLSN pglogrepl.LSN

// MarshalText implements encoding.TextMarshaler.
func (l TextLSN) MarshalText() ([]byte, error) { return []byte(pglogrepl.LSN(l).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *TextLSN) UnmarshalText(text []byte) (err error) {
	var lsn pglogrepl.LSN
	if len(text) > 0 {
		lsn, err = ParseLSN(string(text))
	}
	*l = TextLSN(lsn)
	return err
}

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
