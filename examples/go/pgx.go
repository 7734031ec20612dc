package examples

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/outbox"
)

// PlaceWithPgx works with a pgxpool.Pool in the place of the connection, too.
func PlaceWithPgx(ctx context.Context, conn *pgx.Conn, o Order) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, insertOrder, o.ID, o.Total); err != nil {
			return err
		}
		return outbox.Emit(ctx, tx, o.created())
	})
}
