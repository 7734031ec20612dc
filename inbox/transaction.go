package inbox

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// transaction is what this package does with one.
type transaction interface {
	mark(ctx context.Context, statement string, args ...any) (fresh bool, err error)
	commit(context.Context) error
	rollback(context.Context) error
}

// rollback ends a transaction after an error, also once ctx has ended. Where the server does not
// answer, the driver closes the connection, which ends the transaction too.
func rollback(ctx context.Context, t transaction) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = t.rollback(ctx)
}

// transactionOf refuses what is no transaction by what it can do: connections and pools can begin
// one, and have nothing to commit.
func transactionOf(tx any) (transaction, error) {
	switch tx := tx.(type) {
	case pgxMethods:
		return pgxTransaction{tx}, nil
	case sqlMethods:
		return sqlTransaction{tx}, nil
	}
	return nil, fmt.Errorf("inbox: %T is no transaction: pass a pgx.Tx or a *sql.Tx, in which the "+
		"handler also writes", tx)
}

// pgxMethods are those of a pgx.Tx that are needed.
type pgxMethods interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Commit(context.Context) error
	Rollback(context.Context) error
}

type pgxTransaction struct{ tx pgxMethods }

func (t pgxTransaction) mark(ctx context.Context, statement string, args ...any) (fresh bool,
	err error) {
	err = t.tx.QueryRow(ctx, statement, args...).Scan(&fresh)
	return fresh, err
}

func (t pgxTransaction) commit(ctx context.Context) error   { return t.tx.Commit(ctx) }
func (t pgxTransaction) rollback(ctx context.Context) error { return t.tx.Rollback(ctx) }

// sqlMethods are those of a *sql.Tx that are needed.
type sqlMethods interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	Commit() error
	Rollback() error
}

type sqlTransaction struct{ tx sqlMethods }

func (t sqlTransaction) mark(ctx context.Context, statement string, args ...any) (fresh bool,
	err error) {
	err = t.tx.QueryRowContext(ctx, statement, args...).Scan(&fresh)
	return fresh, err
}

func (t sqlTransaction) commit(context.Context) error   { return t.tx.Commit() }
func (t sqlTransaction) rollback(context.Context) error { return t.tx.Rollback() }
