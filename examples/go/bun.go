package examples

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/postrider/postrider/outbox"
)

// PlaceWithBun passes the *sql.Tx in bun.Tx, since Bun itself would replace parameters.
func PlaceWithBun(ctx context.Context, db *bun.DB, o Order) error {
	return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewInsert().Model(&o).Exec(ctx); err != nil {
			return err
		}
		return outbox.Emit(ctx, tx.Tx, o.created())
	})
}
