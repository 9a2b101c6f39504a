package jqpgx_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/jqpgx"
	"github.com/seed-ed332417/jq/postgres"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Tests{M: m}) }

type ship struct{ Order int }

func (ship) Kind() string { return "ship" }

// opened is a client of an empty store, and the pool of the application that it is on.
func opened(t *testing.T) (*jq.Client, *pgxpool.Pool) {
	t.Helper()
	dsn := pgtest.DSN(t)
	pool := open(t, dsn)
	return jq.NewClient(onPool(t, dsn, pool, postgres.Options{}), nil), pool
}

func begin(t *testing.T, pool *pgxpool.Pool, o pgx.TxOptions) pgx.Tx {
	t.Helper()
	tx, err := pool.BeginTx(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// refused asserts that the client refuses the transaction, says why, and adds no job.
func refused(t *testing.T, client *jq.Client, tx jq.Tx, why string) {
	t.Helper()
	before := count(t, client)
	_, err := client.EnqueueTx(t.Context(), tx, ship{1}, nil)
	var invalid *jq.InvalidError
	if assert.ErrorAs(t, err, &invalid, why) {
		assert.Equal(t, "tx", invalid.Field, why)
		assert.ErrorContains(t, err, why)
	}
	assert.Equal(t, before, count(t, client), why)
}

// count is how many jobs have been committed.
func count(t *testing.T, client *jq.Client) int {
	t.Helper()
	page, err := client.List(t.Context(), jq.Filter{}, jq.Page{Limit: 10})
	require.NoError(t, err)
	return len(page.Jobs)
}

func TestWhatIsNoOpenTransactionIsRefused(t *testing.T) {
	client, pool := opened(t)
	refused(t, client, jqpgx.Tx(nil), "not nil")
	refused(t, client, jqpgx.Tx((*pgxpool.Tx)(nil)), "not nil")
	refused(t, client, jqpgx.Tx(pretended{pool: pool}), "jqpgx.transaction is in none")

	committed, rolledBack := begin(t, pool, pgx.TxOptions{}), begin(t, pool, pgx.TxOptions{})
	require.NoError(t, committed.Commit(t.Context()))
	require.NoError(t, rolledBack.Rollback(t.Context()))
	refused(t, client, jqpgx.Tx(committed), "this one has ended: begin another")
	refused(t, client, jqpgx.Tx(rolledBack), "this one has ended: begin another")

	failed := begin(t, pool, pgx.TxOptions{})
	_, err := failed.Exec(t.Context(), `SELECT 1 / 0`)
	require.Error(t, err)
	refused(t, client, jqpgx.Tx(failed), "this one has failed: roll it back")

	lost := begin(t, pool, pgx.TxOptions{})
	require.NoError(t, lost.Conn().Close(t.Context()))
	refused(t, client, jqpgx.Tx(lost), "this one has ended: begin another")
}

func TestATransactionOfAnotherDatabaseIsRefused(t *testing.T) {
	client, pool := opened(t)
	_, err := pool.Exec(t.Context(), `CREATE DATABASE jqpgx_other`)
	require.NoError(t, err)
	config := pool.Config()
	config.ConnConfig.Database = "jqpgx_other"
	other, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() {
		other.Close()
		_, err := pool.Exec(context.Background(), `DROP DATABASE jqpgx_other WITH (FORCE)`)
		assert.NoError(t, err)
	})
	var name string
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT current_database()`).Scan(&name))
	tx := begin(t, other, pgx.TxOptions{})
	refused(t, client, jqpgx.Tx(tx), "a transaction on the store's database, "+name+", and is one on jqpgx_other")
	require.NoError(t, tx.Commit(t.Context()), "the transaction itself goes on")
}

func TestAReadOnlyTransactionIsDenied(t *testing.T) {
	client, pool := opened(t)
	tx := begin(t, pool, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	_, err := client.EnqueueTx(t.Context(), jqpgx.Tx(tx), ship{1}, nil)
	require.ErrorIs(t, err, jq.ErrDenied)
}

func TestANestedTransactionIsTakenBackAlone(t *testing.T) {
	client, pool := opened(t)
	tx := begin(t, pool, pgx.TxOptions{})
	kept, err := client.EnqueueTx(t.Context(), jqpgx.Tx(tx), ship{1}, nil)
	require.NoError(t, err)
	nested, err := tx.Begin(t.Context())
	require.NoError(t, err)
	gone, err := client.EnqueueTx(t.Context(), jqpgx.Tx(nested), ship{2}, nil)
	require.NoError(t, err)
	require.NoError(t, nested.Rollback(t.Context()))
	refused(t, client, jqpgx.Tx(nested), "this one has ended: begin another")
	require.NoError(t, tx.Commit(t.Context()))
	_, err = client.Get(t.Context(), kept.ID)
	require.NoError(t, err)
	_, err = client.Get(t.Context(), gone.ID)
	require.ErrorIs(t, err, jq.ErrNotFound)
}

// A call that waits for a lock is broken off: pgx then closes the connection.
func TestTheEndOfAContextLosesTheTransaction(t *testing.T) {
	client, pool := opened(t)
	holder, waiter := begin(t, pool, pgx.TxOptions{}), begin(t, pool, pgx.TxOptions{})
	key := &jq.EnqueueOptions{UniqueKey: "order 1"}
	_, err := client.EnqueueTx(t.Context(), jqpgx.Tx(holder), ship{1}, key)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = client.EnqueueTx(ctx, jqpgx.Tx(waiter), ship{1}, key)
	require.ErrorIs(t, err, jq.ErrUnavailable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	refused(t, client, jqpgx.Tx(waiter), "this one has ended: begin another")
	require.NoError(t, holder.Rollback(t.Context()))
}

// Each way in which pgx sends statements has its own formats of arguments and of results.
func TestValuesArriveInEveryMode(t *testing.T) {
	dsn := pgtest.DSN(t)
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			config, err := pgxpool.ParseConfig(dsn)
			require.NoError(t, err)
			config.ConnConfig.DefaultQueryExecMode = mode
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			tx := jqpgx.Tx(begin(t, pool, pgx.TxOptions{}))
			rows, err := tx.QueryContext(t.Context(), `
				SELECT $1::boolean, $2::smallint, $3::integer, $4::bigint, $5::real, $6::double precision, $7::text, $8::bytea,
					$9::jsonb, $10::timestamptz, $11::bigint[], NULL::bigint, 'infinity'::timestamptz, DATE '2026-01-02',
					TIMESTAMP '2026-01-02 03:04:05.000006'
				FROM generate_series(1, 2)`,
				true, 2, 3, 4, 1.5, 2.5, "text", []byte{0, 255}, `{"a": 1}`, at, `{1,2}`)
			require.NoError(t, err)
			columns, err := rows.Columns()
			require.NoError(t, err)
			assert.Equal(t, "bool", columns[0])
			count := 0
			for rows.Next() {
				count++
				got := make([]any, len(columns))
				into := make([]any, len(columns))
				for i := range got {
					into[i] = &got[i]
				}
				require.NoError(t, rows.Scan(into...))
				got[9] = got[9].(time.Time).UTC()
				assert.Equal(t, []any{
					true, int64(2), int64(3), int64(4), 1.5, 2.5, "text", []byte{0, 255}, `{"a": 1}`, at, `{1,2}`, nil, "infinity",
					time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), at,
				}, got)
			}
			require.NoError(t, rows.Err())
			assert.Equal(t, 2, count)

			var n int
			require.NoError(t, tx.QueryRowContext(t.Context(), `SELECT $1::int`, 5).Scan(&n))
			assert.Equal(t, 5, n)
			_, err = tx.ExecContext(t.Context(), `CREATE TEMPORARY TABLE orders (id int)`)
			require.NoError(t, err)
			result, err := tx.ExecContext(t.Context(), `INSERT INTO orders VALUES (1), (2)`)
			require.NoError(t, err)
			changed, err := result.RowsAffected()
			require.NoError(t, err)
			assert.EqualValues(t, 2, changed)
		})
	}
}
