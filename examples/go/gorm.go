package examples

import (
	"context"

	"gorm.io/gorm"

	"github.com/postrider/postrider/outbox"
)

// PlaceWithGORM passes the connection of GORM's transaction.
func PlaceWithGORM(ctx context.Context, db *gorm.DB, o Order) error {
	return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(&o).Error; err != nil {
			return err
		}
		return outbox.Emit(ctx, tx.Statement.ConnPool, o.created())
	})
}
