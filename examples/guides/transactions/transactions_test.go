// Package transactions has the code of the guide docs/guides/transactions.md.
package transactions

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/postgres"
	"github.com/seed-ed332417/jq/sqlite"
)

// Ship is the payload of the job that ships an order.
type Ship struct{ Order int64 }

func (Ship) Kind() string { return "ship" }

// A Shop keeps its orders and its jobs in one database.
type Shop struct {
	DB   *sql.DB
	Jobs *jq.Client
}

// Place adds an order and the job that ships it, or neither of them.
func (s *Shop) Place(ctx context.Context, item string) (id int64, err error) {
	tx, err := s.DB.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback() // does nothing after the commit
	if err := tx.QueryRowContext(ctx, `INSERT INTO orders (item) VALUES ($1) RETURNING id`, item).Scan(&id); err != nil {
		return 0, err
	}
	if _, err := s.Jobs.EnqueueTx(ctx, tx, Ship{Order: id}, nil); err != nil {
		return 0, err
	}
	return id, tx.Commit()
}

// Ship is the handler. It writes to the order and finishes the job in one transaction.
func (s *Shop) Ship(ctx context.Context, run *jq.Run, job Ship) error {
	tx, err := s.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, `UPDATE orders SET shipped = shipped + 1 WHERE id = $1`, job.Order); err != nil {
		return err
	}
	if err := run.FinishTx(ctx, tx); err != nil {
		return err // ErrStaleLease: another run has the job now, and does the work
	}
	return tx.Commit()
}

// openSQLite is what a program does once, when it starts.
func openSQLite(ctx context.Context, path string) (*sqlite.Store, *Shop, error) {
	store, err := sqlite.Open(ctx, path, &sqlite.Options{Shared: true}) // the file also has tables of ours
	if err != nil {
		return nil, nil, err
	}
	return store, &Shop{DB: store.DB().DB, Jobs: jq.NewClient(store, nil)}, nil
}

func openPostgres(ctx context.Context, db *sql.DB, options *postgres.Options) (*postgres.Store, *Shop, error) {
	store, err := postgres.OpenDB(ctx, db, options)
	if err != nil {
		return nil, nil, err
	}
	return store, &Shop{DB: db, Jobs: jq.NewClient(store, nil)}, nil
}

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// onEachStore runs the test on a shop on SQLite and on one on Postgres.
func onEachStore(t *testing.T, test func(t *testing.T, store jq.Store, shop *Shop)) {
	t.Run("sqlite", func(t *testing.T) {
		store, shop, err := openSQLite(t.Context(), filepath.Join(t.TempDir(), "shop.db"))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, store.Close()) })
		_, err = shop.DB.ExecContext(t.Context(), `CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, shipped INTEGER NOT NULL DEFAULT 0)`)
		require.NoError(t, err)
		test(t, store, shop)
	})
	t.Run("postgres", func(t *testing.T) {
		dsn := pgtest.DSN(t)
		ours := pq.QuoteIdentifier(pgtest.Schema(t, dsn))
		db, err := sql.Open("postgres", dsn+" search_path='"+ours+"'")
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, db.Close()) })
		_, err = db.ExecContext(t.Context(), `CREATE SCHEMA `+ours)
		require.NoError(t, err)
		store, shop, err := openPostgres(t.Context(), db, &postgres.Options{Schema: pgtest.Schema(t, dsn)})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, store.Close()) })
		_, err = db.ExecContext(t.Context(), `CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY, item text, shipped int NOT NULL DEFAULT 0)`)
		require.NoError(t, err)
		test(t, store, shop)
	})
}

func TestOrderAndJobStandOrFallTogether(t *testing.T) {
	onEachStore(t, func(t *testing.T, store jq.Store, shop *Shop) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		id, err := shop.Place(ctx, "kettle")
		require.NoError(t, err)

		var handlers jq.Handlers
		jq.Handle(&handlers, shop.Ship)
		server, err := jq.NewServer(store, &handlers, nil)
		require.NoError(t, err)
		require.NoError(t, server.Start(ctx))
		job, err := shop.Jobs.Wait(ctx, 1)
		require.NoError(t, err)
		require.NoError(t, server.Stop(ctx))
		assert.Equal(t, jq.Succeeded, job.State)
		assert.Equal(t, 1, shipped(t, shop, id))
	})
}

// A run that has lost its lease writes nothing: neither the end of the job nor what else is in its transaction.
func TestLateRunWritesNothing(t *testing.T) {
	onEachStore(t, func(t *testing.T, store jq.Store, shop *Shop) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		id, err := shop.Place(ctx, "kettle")
		require.NoError(t, err)

		refused := make(chan error, 1)
		var handlers jq.Handlers
		jq.Handle(&handlers, func(_ context.Context, run *jq.Run, job Ship) error {
			if err := shop.Jobs.Cancel(ctx, run.ID); err != nil {
				return err
			}
			err := shop.Ship(ctx, run, job)
			refused <- err
			return err
		})
		server, err := jq.NewServer(store, &handlers, nil)
		require.NoError(t, err)
		require.NoError(t, server.Start(ctx))
		select {
		case err := <-refused:
			require.ErrorIs(t, err, jq.ErrStaleLease)
		case <-ctx.Done():
			t.Fatal("the handler did not run within a minute")
		}
		require.NoError(t, server.Stop(ctx))
		assert.Zero(t, shipped(t, shop, id))
	})
}

// What is no transaction would be committed at once, so it is refused.
func TestDatabaseInPlaceOfATransactionIsRefused(t *testing.T) {
	onEachStore(t, func(t *testing.T, _ jq.Store, shop *Shop) {
		_, err := shop.Jobs.EnqueueTx(t.Context(), shop.DB, Ship{Order: 1}, nil)
		require.ErrorIs(t, err, jq.ErrInvalid)
		t.Log(err)
	})
}

func shipped(t *testing.T, shop *Shop, id int64) (n int) {
	t.Helper()
	require.NoError(t, shop.DB.QueryRowContext(t.Context(), `SELECT shipped FROM orders WHERE id = $1`, id).Scan(&n))
	return n
}
