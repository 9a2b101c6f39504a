package jqpgx_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/jqpgx"
	"github.com/seed-ed332417/jq/postgres"
)

// Ship is the payload of a job for an order.
type Ship struct{ Order int64 }

func (Ship) Kind() string { return "ship-order" }

// Report is the payload of the job that runs each night.
type Report struct{}

func (Report) Kind() string { return "report" }

// An example has no testing.T.
type noTest struct{}

func (noTest) Helper()           {}
func (noTest) Fatal(args ...any) { log.Fatal(args...) }
func (noTest) Cleanup(func())    {}

// The jobs are on the connections of the application's own pool.
func Example() {
	ctx := context.Background()
	dsn := pgtest.DSN(noTest{}) // postgres://user:password@host/database
	schema := pgtest.NewSchema()
	defer func() { _ = pgtest.Drop(dsn, schema) }()
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	store, err := jqpgx.Open(ctx, pool, &postgres.Options{Schema: schema})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = store.Close() }() // before the pool

	client := jq.NewClient(store, nil)
	added, err := client.Enqueue(ctx, Ship{Order: 17}, nil)
	if err != nil {
		log.Fatal(err)
	}
	job, err := client.Get(ctx, added.ID)
	fmt.Println(job.State, string(job.Payload), err)
	// Output: ready {"Order":17} <nil>
}

// A Shop keeps its orders and its jobs in one database.
type Shop struct {
	Pool *pgxpool.Pool
	Jobs *jq.Client
}

// Place adds an order and the job that ships it, or neither of them.
func (s *Shop) Place(ctx context.Context, item string) error {
	return pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
		var id int64
		if err := tx.QueryRow(ctx, `INSERT INTO orders (item) VALUES ($1) RETURNING id`, item).Scan(&id); err != nil {
			return err
		}
		_, err := s.Jobs.EnqueueTx(ctx, jqpgx.Tx(tx), Ship{Order: id}, nil)
		return err
	})
}

// Ship is the handler. It writes to the order and finishes the job in one transaction.
func (s *Shop) Ship(ctx context.Context, run *jq.Run, job Ship) error {
	return pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE orders SET shipped = shipped + 1 WHERE id = $1`, job.Order); err != nil {
			return err
		}
		return run.FinishTx(ctx, jqpgx.Tx(tx))
	})
}

// openShop opens a shop in a new schema.
func openShop(ctx context.Context) (shop *Shop, store jq.Store, closeAll func()) {
	dsn, schema := pgtest.DSN(noTest{}), pgtest.NewSchema()
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		log.Fatal(err)
	}
	opened, err := jqpgx.Open(ctx, pool, &postgres.Options{Schema: schema})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := pool.Exec(ctx, `
		CREATE TABLE orders (
			id bigint GENERATED ALWAYS AS IDENTITY,
			item text,
			shipped int DEFAULT 0
		)`); err != nil {
		log.Fatal(err)
	}
	return &Shop{pool, jq.NewClient(opened, nil)}, opened, func() {
		_, _ = pool.Exec(context.Background(), `DROP TABLE orders`)
		_ = opened.Close() // before the pool
		pool.Close()
		_ = pgtest.Drop(dsn, schema)
	}
}

// An order and its job stand or fall together, and so do what the job does and its end.
func ExampleTx() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	shop, store, closeAll := openShop(ctx)
	defer closeAll()
	if err := shop.Place(ctx, "a kettle"); err != nil {
		log.Fatal(err)
	}

	var handlers jq.Handlers
	jq.Handle(&handlers, func(ctx context.Context, run *jq.Run, job Ship) error {
		defer stop()
		return shop.Ship(ctx, run, job)
	})
	server, err := jq.NewServer(store, &handlers, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := server.Run(ctx); err != nil {
		log.Fatal(err)
	}

	var item string
	var shipped int
	err = shop.Pool.QueryRow(context.Background(), `SELECT item, shipped FROM orders`).Scan(&item, &shipped)
	fmt.Println(item, "was shipped", shipped, "time", err)
	job, err := shop.Jobs.Get(context.Background(), 1)
	fmt.Println(job.State, err)
	// Output:
	// a kettle was shipped 1 time <nil>
	// succeeded <nil>
}

// What was added in a transaction that is rolled back is not there.
func ExampleTx_rollback() {
	ctx := context.Background()
	shop, _, closeAll := openShop(ctx)
	defer closeAll()
	report, err := shop.Jobs.NewJob(Report{}, nil)
	if err != nil {
		log.Fatal(err)
	}
	err = pgx.BeginFunc(ctx, shop.Pool, func(tx pgx.Tx) error {
		if _, err := shop.Jobs.EnqueueTx(ctx, jqpgx.Tx(tx), Ship{Order: 17}, nil); err != nil {
			return err
		}
		nightly := jq.Schedule{Name: "report", Cron: "0 2 * * *", Timezone: "Europe/Berlin", Job: report, Owner: "shop", Version: 1}
		if _, err := shop.Jobs.PutScheduleTx(ctx, jqpgx.Tx(tx), nightly); err != nil {
			return err
		}
		return errors.New("order 17 was taken back")
	})
	fmt.Println(err)
	_, err = shop.Jobs.Get(ctx, 1)
	fmt.Println(err)
	_, err = shop.Jobs.Schedule(ctx, "report")
	fmt.Println(err)
	// Output:
	// order 17 was taken back
	// jq: no such job
	// jq: there is no schedule "report"
}
