package examples

import (
	"context"
	"database/sql"

	"github.com/postrider/postrider/outbox"
)

// PlaceWithDatabaseSQL takes a pool of any driver of PostgreSQL.
func PlaceWithDatabaseSQL(ctx context.Context, db *sql.DB, o Order) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if _, err := tx.ExecContext(ctx, insertOrder, o.ID, o.Total); err != nil {
		return err
	}
	if err := outbox.Emit(ctx, tx, o.created()); err != nil {
		return err
	}
	return tx.Commit()
}
