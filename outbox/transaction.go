package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// exec sends a statement in the transaction of the caller. A pool, and a connection of pgx that is
// in no transaction, are refused: there the events would be committed by themselves, also when the
// change is rolled back. Of a *sql.Conn that cannot be seen.
func exec(ctx context.Context, tx any, query string, args ...any) error {
	const pool = "%T is a pool of connections, not a transaction: pass what its Begin returns, so " +
		"that the events are committed with the change, or not at all"
	if idle(tx) {
		return fmt.Errorf("%T is in no transaction: begin one, so that the events are committed "+
			"with the change, or not at all", tx)
	}
	var err error
	switch tx := tx.(type) {
	case interface{ SetMaxOpenConns(int) }: // sql.DB, and what embeds it
		return fmt.Errorf(pool, tx)
	case interface { // pgxpool.Pool, and that of GORM with prepared statements
		Reset()
		Close()
	}:
		return fmt.Errorf(pool, tx)
	case *pgx.Batch:
		tx.Queue(query, args...)
	case interface {
		Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
	}:
		_, err = tx.Exec(ctx, query, args...)
	case interface {
		ExecContext(context.Context, string, ...any) (sql.Result, error)
	}:
		_, err = tx.ExecContext(ctx, query, args...)
	case nil:
		return errors.New("the transaction is nil")
	default:
		return fmt.Errorf("%T is no transaction that events can be written with: pass a pgx.Tx, a "+
			"*pgx.Batch, a *sql.Tx, or what has its ExecContext (sqlx: the *sqlx.Tx; GORM: "+
			"tx.Statement.ConnPool; Bun: tx.Tx; ent: the transaction of its driver, or that of a "+
			"client with the feature sql/execquery)", tx)
	}
	return err
}

// idle reports whether this is a connection of pgx on which no transaction has begun.
func idle(tx any) bool {
	conn, ok := tx.(*pgx.Conn)
	if of, pooled := tx.(interface{ Conn() *pgx.Conn }); pooled && !ok {
		conn = of.Conn() // of a pgxpool.Conn, or of a transaction, which is not idle
	}
	return conn != nil && conn.PgConn().TxStatus() == 'I'
}
