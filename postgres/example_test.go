package postgres_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"testing"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/postgres"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// An example has no testing.T.
type noTest struct{}

func (noTest) Helper()           {}
func (noTest) Fatal(args ...any) { log.Fatal(args...) }
func (noTest) Cleanup(func())    {}

// Order is the payload of a job.
type Order struct{ Number int64 }

func (Order) Kind() string { return "order" }

// An order and its job are committed together, or neither of them is.
func Example() {
	ctx := context.Background()
	dsn := pgtest.DSN(noTest{}) // postgres://user:password@host/database
	schema := pgtest.NewSchema()
	defer func() { _ = pgtest.Drop(dsn, schema) }()
	store, err := postgres.Open(ctx, dsn, &postgres.Options{Schema: schema})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	client := jq.NewClient(store, nil)

	tx, err := store.DB().BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after the commit
	if _, err := tx.ExecContext(ctx, `CREATE TEMPORARY TABLE orders AS SELECT 17 AS number`); err != nil {
		log.Fatal(err)
	}
	added, err := client.EnqueueTx(ctx, tx, Order{Number: 17}, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err) // perhaps jq.ErrInDoubt: look whether the order is there
	}

	job, err := client.Get(ctx, added.ID)
	fmt.Println(job.State, string(job.Payload), err)
	// Output: ready {"Number":17} <nil>
}
