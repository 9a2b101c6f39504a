package jqpgx_test

import (
	"context"
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

// An order, its job and the schedule of the nightly report stand or fall together.
func ExampleTx() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	dsn := pgtest.DSN(noTest{})
	schema := pgtest.NewSchema()
	defer func() { _ = pgtest.Drop(dsn, schema) }()
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, `
		CREATE TABLE orders (
			id bigint GENERATED ALWAYS AS IDENTITY,
			item text,
			shipped boolean DEFAULT false
		)`); err != nil {
		log.Fatal(err)
	}
	defer func() { _, _ = pool.Exec(context.Background(), `DROP TABLE orders`) }()
	store, err := jqpgx.Open(ctx, pool, &postgres.Options{Schema: schema})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	client := jq.NewClient(store, nil)

	order := func(item string) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			var id int64
			if err := tx.QueryRow(ctx, `INSERT INTO orders (item) VALUES ($1) RETURNING id`, item).Scan(&id); err != nil {
				return err
			}
			if _, err := client.EnqueueTx(ctx, jqpgx.Tx(tx), Ship{Order: id}, nil); err != nil {
				return err
			}
			report, err := client.NewJob(Report{}, nil)
			if err != nil {
				return err
			}
			nightly := jq.Schedule{Name: "report", Cron: "0 2 * * *", Timezone: "Europe/Berlin", Job: report, Owner: "shop", Version: 1}
			if _, err := client.PutScheduleTx(ctx, jqpgx.Tx(tx), nightly); err != nil {
				return err
			}
			if item == "" {
				return fmt.Errorf("order %d names no item", id) // rolls back all three
			}
			return nil
		})
	}
	fmt.Println(order(""))
	_, err = client.Schedule(ctx, "report")
	fmt.Println(err)
	fmt.Println(order("a kettle"))

	var handlers jq.Handlers
	jq.Handle(&handlers, func(ctx context.Context, run *jq.Run, s Ship) error {
		defer stop()
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			var item string
			if err := tx.QueryRow(ctx, `UPDATE orders SET shipped = true WHERE id = $1 RETURNING item`, s.Order).Scan(&item); err != nil {
				return err
			}
			fmt.Printf("shipping %s (order %d)\n", item, s.Order)
			return run.FinishTx(ctx, jqpgx.Tx(tx))
		})
	})
	server, err := jq.NewServer(store, &handlers, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := server.Run(ctx); err != nil {
		log.Fatal(err)
	}
	counts, err := client.Count(context.Background(), jq.Filter{})
	if err != nil {
		log.Fatal(err)
	}
	for _, q := range counts.Queues {
		fmt.Println(q.Jobs[jq.Succeeded], "job succeeded")
	}
	// Output:
	// order 1 names no item
	// jq: there is no schedule "report"
	// <nil>
	// shipping a kettle (order 2)
	// 1 job succeeded
}
