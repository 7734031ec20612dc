package examples

import (
	"context"

	"github.com/jmoiron/sqlx"

	"github.com/postrider/postrider/outbox"
)

// PlaceWithSqlx passes the *sqlx.Tx itself.
func PlaceWithSqlx(ctx context.Context, db *sqlx.DB, o Order) error {
	tx, err := db.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	const insert = "INSERT INTO orders (id, total) VALUES (:id, :total)"
	if _, err := tx.NamedExecContext(ctx, insert, o); err != nil {
		return err
	}
	if err := outbox.Emit(ctx, tx, o.created()); err != nil {
		return err
	}
	return tx.Commit()
}
