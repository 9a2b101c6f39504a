package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
)

// A querier is a caller's type around a pool or a transaction, as sqlc makes them.
type querier struct{ store.Tx }

// A listening transaction notes the arguments of its statements.
type listening struct {
	store.Tx
	args []any
}

func (l *listening) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	l.args = append(l.args, args...)
	return l.Tx.ExecContext(ctx, query, args...)
}

func (l *listening) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	l.args = append(l.args, args...)
	return l.Tx.QueryContext(ctx, query, args...)
}

// pgx would read each array from its text, and write it again.
func TestDriversOfCallersGetArraysAsTexts(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { assert.NoError(t, tx.Commit()) }()
	l := &listening{Tx: tx}
	jobs := benchJobs(2)
	jobs[1].UniqueKey = "k"
	enqueue := store.EnqueueRequest{Jobs: jobs}
	_, err = s.InTx(l).Enqueue(t.Context(), enqueue)
	require.NoError(t, err)
	assert.Contains(t, l.args, `{"k","k"}`, "the kinds")
	for _, arg := range l.args {
		_, isArray := arg.(*array)
		assert.False(t, isArray, arg)
	}
}

// refuses asks for an Enqueue that must be refused for its transaction.
func refuses(t *testing.T, s *Store, tx store.Tx, what string) {
	t.Helper()
	_, err := s.InTx(tx).Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
	var invalid *store.InvalidError
	if assert.ErrorAs(t, err, &invalid, what) {
		assert.Equal(t, "tx", invalid.Field, what)
	}
}

// otherDrivers are pools of pgx, one for each way in which it sends statements.
func otherDrivers(t *testing.T) map[string]*sql.DB {
	t.Helper()
	pools := map[string]*sql.DB{}
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		config, err := pgx.ParseConfig(pgtest.DSN(t))
		require.NoError(t, err)
		config.DefaultQueryExecMode = mode
		db := stdlib.OpenDB(*config)
		t.Cleanup(func() { assert.NoError(t, db.Close()) })
		pools["pgx, "+mode.String()] = db
	}
	return pools
}

// Each statement was committed by itself, and 300 calls for 10 unique keys made 97 jobs.
func TestAPoolInPlaceOfATransactionBreaksNoUniqueness(t *testing.T) {
	s := openStore(t, Options{})
	conn, err := s.DB().Connx(t.Context())
	require.NoError(t, err)
	defer func() { assert.NoError(t, conn.Close()) }()
	all := map[string]store.Tx{
		"*sqlx.DB": s.DB(), "*sql.DB": s.DB().DB, "*sqlx.Conn": conn, "*sql.Conn": conn.Conn,
		"a type around a pool": querier{s.DB()},
	}
	for name, db := range otherDrivers(t) {
		db.SetMaxOpenConns(5)
		all["a type around a pool of "+name] = querier{db}
	}
	for what, tx := range all {
		var refused atomic.Int64
		var calls sync.WaitGroup
		for i := range 50 {
			calls.Go(func() {
				jobs := benchJobs(1)
				jobs[0].UniqueKey = fmt.Sprint(i % 10)
				if _, err := s.InTx(tx).Enqueue(context.Background(), store.EnqueueRequest{Jobs: jobs}); assert.ErrorIs(t, err, store.ErrInvalid, what) {
					refused.Add(1)
				}
			})
		}
		calls.Wait()
		assert.EqualValues(t, 50, refused.Load(), what)
	}
	refuses(t, s, &querier{conn}, "a type around a connection")
	assert.Zero(t, countIn(t, s, store.Ready))
	_, err = s.InTx(querier{s.DB()}).Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
	assert.EqualError(t, err, "jq: invalid: tx must be an open transaction, and postgres.querier is in none: begin one with BeginTx, and hand that over")
	_, err = s.InTx(s.DB()).Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
	assert.EqualError(t, err, "jq: invalid: tx must be an open transaction, and not a *sqlx.DB: begin one with BeginTxx, and hand that over")
}

// FinishTx by a pool left the job succeeded although its handler then failed.
func TestAPoolInPlaceOfATransactionFinishesNothing(t *testing.T) {
	s := openStore(t, Options{})
	enqueue(t, s, 1)
	_, err := s.InTx(querier{s.DB()}).Ack(t.Context(), acksOf(claimN(t, s, 1)))
	assert.ErrorIs(t, err, store.ErrInvalid)
	assert.Equal(t, int64(1), countIn(t, s, store.InFlight))
}

// TestFirstStatementOfATransaction is the case in which the opening row does not tell: nothing was written in it before.
func TestFirstStatementOfATransaction(t *testing.T) {
	s := openStore(t, Options{})
	pools := otherDrivers(t)
	pools["lib/pq"] = s.DB().DB
	for name, db := range pools {
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
			for _, before := range []string{``, `SELECT 1`, `SELECT pg_current_xact_id()`, `SAVEPOINT a`} {
				tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
				require.NoError(t, err)
				if before != `` {
					_, err = tx.Exec(before)
					require.NoError(t, err)
				}
				_, err = s.InTx(querier{tx}).Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
				assert.NoError(t, err, "%s, %v, after %q", name, level, before)
				require.NoError(t, tx.Rollback())
			}
		}
	}
	assert.Zero(t, countIn(t, s, store.Ready))
}

// TestAskingCostsNothingAfterAWrite: where the caller has written something, the opening row tells that the transaction is one.
func TestAskingCostsNothingAfterAWrite(t *testing.T) {
	s := openStore(t, Options{})
	messages := func(before string) int64 {
		tx, err := s.DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, tx.Rollback()) }()
		_, err = tx.Exec(before)
		require.NoError(t, err)
		return spentBy(t, s, func() { enqueue(t, s.InTx(tx), 1) })["round trips"]
	}
	for range 2 { // the first calls ask which server it is, and note it; these tell nobody of jobs
		require.NoError(t, s.SetPaused(t.Context(), "other", true))
	}
	const row, insert = 1, 1 // which also notifies
	assert.EqualValues(t, row+insert, messages(`CREATE TEMPORARY TABLE orders ()`), "after a write")
	assert.EqualValues(t, row+1+insert, messages(`SELECT 1`), "after a read")
}

// TestATransactionThatTheDatabaseHasEnded is about a *sql.Tx that is one no more, of which database/sql does not know.
func TestATransactionThatTheDatabaseHasEnded(t *testing.T) {
	s := openStore(t, Options{})
	for _, end := range []string{`COMMIT`, `ROLLBACK`} {
		tx, err := s.DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		enqueue(t, s.InTx(tx), 1)
		_, err = tx.Exec(end)
		require.NoError(t, err)
		refuses(t, s, tx, end)
		refuses(t, s, querier{tx}, end)
		_ = tx.Rollback()
	}
	assert.Equal(t, int64(1), countIn(t, s, store.Ready), "what was committed by hand")
}

// After an error the server refuses whatever comes in the transaction, so to repeat the call in it is of no use.
func TestATransactionThatHasFailed(t *testing.T) {
	s := openStore(t, Options{})
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.Exec(`SELECT 1 / 0`)
	require.Error(t, err)
	refuses(t, s, tx, "a failed transaction")
	require.NoError(t, tx.Rollback())
}

func TestCallInASavepoint(t *testing.T) {
	s := openStore(t, Options{})
	tx, err := s.DB().Beginx()
	require.NoError(t, err)
	say := func(statement string) {
		t.Helper()
		_, err := tx.Exec(statement)
		require.NoError(t, err)
	}
	say(`SAVEPOINT a`)
	enqueue(t, s.InTx(tx), 1)
	say(`ROLLBACK TO a`)
	enqueue(t, s.InTx(querier{tx}), 1)
	_, err = tx.Exec(`SELECT 1 / 0`)
	require.Error(t, err)
	say(`ROLLBACK TO a`)
	kept := enqueue(t, s.InTx(tx), 1)
	say(`RELEASE a`)
	require.NoError(t, tx.Commit())
	assert.Equal(t, int64(1), countIn(t, s, store.Ready))
	_, err = s.Get(t.Context(), kept[0])
	assert.NoError(t, err)
}

// Jobs would have gone to the other database, and been answered for by this one.
func TestTransactionOnAnotherDatabase(t *testing.T) {
	s := openStore(t, Options{})
	name := "other_" + s.options.Schema
	_, err := s.DB().Exec(`CREATE DATABASE ` + pq.QuoteIdentifier(name))
	require.NoError(t, err)
	config, err := pgx.ParseConfig(pgtest.DSN(t))
	require.NoError(t, err)
	config.Database = name
	db := sqlx.NewDb(stdlib.OpenDB(*config), "pgx")
	t.Cleanup(func() {
		assert.NoError(t, db.Close())
		_, err := s.DB().Exec(`DROP DATABASE ` + pq.QuoteIdentifier(name))
		assert.NoError(t, err)
	})
	tx, err := db.Beginx()
	require.NoError(t, err)
	refuses(t, s, tx, "a transaction on another database")
	require.NoError(t, tx.Rollback())
}
