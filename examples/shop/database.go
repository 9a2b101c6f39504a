package main

import (
	"context"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/postgres"
	"github.com/seed-ed332417/jq/sqlite"
)

// A database has the jobs, and the shop's own table beside them. One transaction can write to both.
type database interface {
	jq.Store
	DB() *sqlx.DB
}

// open opens the database, and makes what is missing in it.
func open(ctx context.Context, where string) (database, error) {
	if strings.HasPrefix(where, "postgres://") {
		store, err := postgres.Open(ctx, where, nil)
		if err != nil {
			return nil, err
		}
		return withOrders(ctx, store, "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY")
	}
	store, err := sqlite.Open(ctx, where, nil)
	if err != nil {
		return nil, err
	}
	return withOrders(ctx, store, "INTEGER PRIMARY KEY AUTOINCREMENT")
}

func withOrders(ctx context.Context, db database, id string) (database, error) {
	_, err := db.DB().ExecContext(ctx, `
		CREATE TABLE IF NOT EXISTS orders (
			id        `+id+`,
			customer  TEXT   NOT NULL,
			item      TEXT   NOT NULL,
			cents     BIGINT NOT NULL,
			state     TEXT   NOT NULL,
			parcel    TEXT   NOT NULL DEFAULT '',
			invoice   TEXT   NOT NULL DEFAULT '',
			placed_at BIGINT NOT NULL -- milliseconds since 1970, the same on SQLite and Postgres
		)`)
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	return db, nil
}

// An order is a row of the table.
type order struct {
	ID       int64  `json:"order" db:"id"`
	Customer string `json:"customer" db:"customer"`
	Item     string `json:"item" db:"item"`
	Cents    int64  `json:"cents" db:"cents"`
	State    string `json:"state" db:"state"`
	Parcel   string `json:"parcel,omitempty" db:"parcel"`
	Invoice  string `json:"invoice,omitempty" db:"invoice"`
}

// The states of an order.
const (
	placed  = "placed"
	paid    = "paid"
	refused = "refused"
	shipped = "shipped"
)

// A table is the table of the orders.
type table struct{ *sqlx.DB }

func (t *table) get(ctx context.Context, id int64) (o order, err error) {
	err = t.GetContext(ctx, &o, t.Rebind(`
		SELECT id, customer, item, cents, state, parcel, invoice FROM orders WHERE id = ?`), id)
	return o, err
}

// insert adds the order in a transaction, and gives it its number.
func (t *table) insert(ctx context.Context, tx *sqlx.Tx, o *order) error {
	return tx.GetContext(ctx, &o.ID, t.Rebind(`
		INSERT INTO orders (customer, item, cents, state, placed_at) VALUES (?, ?, ?, ?, ?) RETURNING id`),
		o.Customer, o.Item, o.Cents, o.State, time.Now().UnixMilli())
}

// finish writes what a job has done for an order, and ends the job: both, or neither. If another run has the job by now, nothing is
// written.
func (t *table) finish(ctx context.Context, run *jq.Run, done order) error {
	tx, err := t.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after the commit
	_, err = tx.ExecContext(ctx, t.Rebind(`UPDATE orders SET state = ?, parcel = ?, invoice = ? WHERE id = ?`),
		done.State, done.Parcel, done.Invoice, done.ID)
	if err != nil {
		return err
	}
	if err := run.FinishTx(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

// refuse ends an order that was not paid.
func (t *table) refuse(ctx context.Context, id int64) error {
	_, err := t.ExecContext(ctx, t.Rebind(`UPDATE orders SET state = ? WHERE id = ? AND state = ?`), refused, id, placed)
	return err
}

// sales is what the nightly report says.
type sales struct {
	Orders int64 `json:"orders" db:"orders"`
	Cents  int64 `json:"cents" db:"cents"`
}

// sold adds up the orders from one time until before another, without those that were refused.
func (t *table) sold(ctx context.Context, from, until time.Time) (s sales, err error) {
	err = t.GetContext(ctx, &s, t.Rebind(`
		SELECT count(*) AS orders, coalesce(sum(cents), 0) AS cents FROM orders
		WHERE placed_at >= ? AND placed_at < ? AND state <> ?`), from.UnixMilli(), until.UnixMilli(), refused)
	return s, err
}
