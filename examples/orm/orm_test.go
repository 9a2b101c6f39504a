package orm_test

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	driver "gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/examples/orm/internal/shop"
	"github.com/seed-ed332417/jq/examples/orm/withbun"
	"github.com/seed-ed332417/jq/examples/orm/withgorm"
	"github.com/seed-ed332417/jq/examples/orm/withsqlc"
	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/jqpgx"
	"github.com/seed-ed332417/jq/postgres"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// A place places an order and returns its number.
type place func(ctx context.Context, client *jq.Client, item string) (int64, error)

// libraries returns how each example places orders through a pool.
var libraries = map[string]func(t *testing.T, pool *pgxpool.Pool) place{
	"GORM": func(t *testing.T, pool *pgxpool.Pool) place { return throughGORM(t, pool, &gorm.Config{}) },
	"GORM that prepares statements": func(t *testing.T, pool *pgxpool.Pool) place {
		return throughGORM(t, pool, &gorm.Config{PrepareStmt: true})
	},
	"bun": func(t *testing.T, pool *pgxpool.Pool) place {
		db := bun.NewDB(stdlib.OpenDBFromPool(pool), pgdialect.New())
		t.Cleanup(func() { assert.NoError(t, db.Close()) })
		return func(ctx context.Context, client *jq.Client, item string) (int64, error) {
			order, err := withbun.Place(ctx, db, client, item)
			return order.ID, err
		}
	},
	"sqlc": func(_ *testing.T, pool *pgxpool.Pool) place {
		return func(ctx context.Context, client *jq.Client, item string) (int64, error) {
			order, err := withsqlc.Place(ctx, pool, client, item)
			return order.ID, err
		}
	},
}

func throughGORM(t *testing.T, pool *pgxpool.Pool, config *gorm.Config) place {
	db := gormOn(t, pool, config)
	return func(ctx context.Context, client *jq.Client, item string) (int64, error) {
		order, err := withgorm.Place(ctx, db, client, item)
		return order.ID, err
	}
}

func gormOn(t *testing.T, pool *pgxpool.Pool, config *gorm.Config) *gorm.DB {
	t.Helper()
	within := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { assert.NoError(t, within.Close()) })
	db, err := gorm.Open(driver.New(driver.Config{Conn: within}), config)
	require.NoError(t, err)
	return db
}

func TestAnOrderAndItsJobStandOrFallTogether(t *testing.T) {
	for name, open := range libraries {
		t.Run(name, func(t *testing.T) {
			pool := opened(t)
			client := jq.NewClient(jobsOn(t, pool), nil)
			place := open(t, pool)

			order, err := place(t.Context(), client, "kettle")
			require.NoError(t, err)
			assert.Equal(t, []int64{order}, orders(t, pool))
			assert.Equal(t, []shop.Ship{{Order: order}}, jobs(t, client))

			_, err = place(t.Context(), client, "kettle") // the last one is sold
			require.ErrorIs(t, err, shop.ErrSoldOut)
			assert.Equal(t, []int64{order}, orders(t, pool), "orders after a rollback")
			assert.Equal(t, []shop.Ship{{Order: order}}, jobs(t, client), "jobs after a rollback")
		})
	}
}

// What is no open transaction is refused.
func TestGORMOutsideOfATransactionIsRefused(t *testing.T) {
	pool := opened(t)
	client := jq.NewClient(jobsOn(t, pool), nil)
	db := gormOn(t, pool, &gorm.Config{})
	_, err := client.EnqueueTx(t.Context(), db.Statement.ConnPool, shop.Ship{Order: 1}, nil)
	require.ErrorIs(t, err, jq.ErrInvalid)
	assert.Empty(t, jobs(t, client))
}

// opened returns a pool on a shop that has one kettle.
func opened(t *testing.T) *pgxpool.Pool {
	t.Helper()
	dsn := pgtest.DSN(t)
	schema := pgtest.Schema(t, dsn)
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	quoted := pgx.Identifier{schema}.Sanitize()
	config.ConnConfig.RuntimeParams["search_path"] = quoted
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	for _, text := range []string{`CREATE SCHEMA ` + quoted, shop.Schema, `INSERT INTO items VALUES ('kettle', 1)`} {
		_, err = pool.Exec(t.Context(), text)
		require.NoError(t, err)
	}
	return pool
}

// jobsOn opens a store on the pool.
func jobsOn(t *testing.T, pool *pgxpool.Pool) *postgres.Store {
	t.Helper()
	store, err := jqpgx.Open(t.Context(), pool, &postgres.Options{Schema: pgtest.Schema(t, pgtest.DSN(t))})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, store.Close()) })
	return store
}

func orders(t *testing.T, pool *pgxpool.Pool) []int64 {
	t.Helper()
	rows, err := pool.Query(t.Context(), `SELECT id FROM orders ORDER BY id`)
	require.NoError(t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(t, err)
	return ids
}

// jobs returns the payloads of all jobs.
func jobs(t *testing.T, client *jq.Client) (all []shop.Ship) {
	t.Helper()
	page, err := client.List(t.Context(), jq.Filter{}, jq.Page{Limit: 10})
	require.NoError(t, err)
	for _, job := range page.Jobs {
		var ship shop.Ship
		require.NoError(t, json.Unmarshal(job.Payload, &ship))
		all = append(all, ship)
	}
	return all
}

// What README.md shows of each example stands in it.
func TestTheReadmeShowsTheExamples(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	shown := regexp.MustCompile("(?m)^\\| .*\\]\\((.*)\\).* \\| `(.*)` \\|").FindAllStringSubmatch(string(readme), -1)
	require.Len(t, shown, 3)
	for _, row := range shown {
		text, err := os.ReadFile(row[1])
		require.NoError(t, err)
		assert.Contains(t, string(text), row[2], row[1])
	}
}
