// Package withbun places orders through bun.
package withbun

import (
	"cmp"
	"context"

	"github.com/uptrace/bun"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/examples/orm/internal/shop"
)

// An Order is a row of the table orders.
type Order struct {
	ID   int64 `bun:",pk,autoincrement"`
	Item string
}

// An Item is a row of the table items.
type Item struct {
	Name  string `bun:",pk"`
	Stock int64
}

// Place writes an order, enqueues the job that ships it, and takes the item from the stock. If one of them fails, none is done.
func Place(ctx context.Context, db *bun.DB, client *jq.Client, item string) (Order, error) {
	order := Order{Item: item}
	err := db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewInsert().Model(&order).Exec(ctx); err != nil {
			return err
		}
		// The *sql.Tx within: bun.Tx itself would read statements of jq as its own.
		if _, err := client.EnqueueTx(ctx, tx.Tx, shop.Ship{Order: order.ID}, nil); err != nil {
			return err
		}
		taken, err := tx.NewUpdate().Model((*Item)(nil)).Set("stock = stock - 1").Where("name = ? AND stock > 0", item).Exec(ctx)
		if err != nil {
			return err
		}
		if n, err := taken.RowsAffected(); err != nil || n == 0 {
			return cmp.Or(err, shop.ErrSoldOut)
		}
		return nil
	})
	return order, err
}
