package postgres

import (
	"context"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
)

const closeTimeout = time.Second

// Close closes a connection of pgx or pgconn within a second, also after the caller's context has
// ended. Errors have no consequence: the connection is closed.
func Close(conn interface{ Close(context.Context) error }) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = conn.Close(ctx)
}

// CloseBoth is Close, and waits within a second until the server has closed the connection too.
func CloseBoth(conn *pgx.Conn) {
	c, err := conn.PgConn().Hijack()
	if err != nil {
		Close(conn)
		return
	}
	defer c.Conn.Close() //nolint:errcheck // it is closed whatever the error
	c.Frontend.Send(&pgproto3.Terminate{})
	if c.Conn.SetDeadline(time.Now().Add(closeTimeout)) == nil && c.Frontend.Flush() == nil {
		_, _ = io.Copy(io.Discard, c.Conn)
	}
}
