package examples

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/outbox"
)

// PlaceWithPgxBatch sends the order and its event in one round trip.
func PlaceWithPgxBatch(ctx context.Context, conn *pgx.Conn, o Order) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		batch.Queue(insertOrder, o.ID, o.Total)
		if err := outbox.Emit(ctx, batch, o.created()); err != nil {
			return err
		}
		return tx.SendBatch(ctx, batch).Close()
	})
}
