package examples

import (
	"context"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/postrider/postrider/outbox"
)

// PlaceWithEnt uses the driver of an ent client. The transaction of a client that was generated
// with --feature sql/execquery can be passed in the same way.
func PlaceWithEnt(ctx context.Context, driver *entsql.Driver, o Order) error {
	tx, err := driver.Tx(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	insert, args := entsql.Dialect(dialect.Postgres).Insert("orders").Columns("id", "total").
		Values(o.ID, o.Total).Query()
	if err := tx.Exec(ctx, insert, args, nil); err != nil {
		return err
	}
	if err := outbox.Emit(ctx, tx, o.created()); err != nil {
		return err
	}
	return tx.Commit()
}
