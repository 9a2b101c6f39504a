// Package withsqlc places orders through code that sqlc generates for pgx.
package withsqlc

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/examples/orm/internal/shop"
	"github.com/seed-ed332417/jq/examples/orm/withsqlc/orders"
	"github.com/seed-ed332417/jq/jqpgx"
)

//go:generate go run github.com/sqlc-dev/sqlc/cmd/sqlc@v1.31.1 generate

// Place writes an order, enqueues the job that ships it, and takes the item from the stock. If one of them fails, none is done.
func Place(ctx context.Context, pool *pgxpool.Pool, client *jq.Client, item string) (order orders.Order, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		queries := orders.New(tx)
		if order, err = queries.CreateOrder(ctx, item); err != nil {
			return err
		}
		if _, err := client.EnqueueTx(ctx, jqpgx.Tx(tx), shop.Ship{Order: order.ID}, nil); err != nil {
			return err
		}
		taken, err := queries.TakeItem(ctx, item)
		if err == nil && taken == 0 {
			return shop.ErrSoldOut
		}
		return err
	})
	return order, err
}
