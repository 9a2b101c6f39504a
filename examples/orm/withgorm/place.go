// Package withgorm places orders through GORM.
package withgorm

import (
	"context"

	"gorm.io/gorm"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/examples/orm/internal/shop"
)

// An Order is a row of the table orders.
type Order struct {
	ID   int64
	Item string
}

// An Item is a row of the table items.
type Item struct {
	Name  string `gorm:"primaryKey"`
	Stock int64
}

// Place writes an order, enqueues the job that ships it, and takes the item from the stock. If one of them fails, none is done.
func Place(ctx context.Context, db *gorm.DB, client *jq.Client, item string) (Order, error) {
	order := Order{Item: item}
	err := db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(&order).Error; err != nil {
			return err
		}
		// Within Transaction, ConnPool is the transaction.
		if _, err := client.EnqueueTx(ctx, tx.Statement.ConnPool, shop.Ship{Order: order.ID}, nil); err != nil {
			return err
		}
		taken := tx.Model(&Item{}).Where("name = ? AND stock > 0", item).Update("stock", gorm.Expr("stock - 1"))
		if taken.Error == nil && taken.RowsAffected == 0 {
			return shop.ErrSoldOut
		}
		return taken.Error
	})
	return order, err
}
