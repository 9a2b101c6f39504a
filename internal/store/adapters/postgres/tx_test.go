package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

// acquainted lets the store ask which server it is on, and note it. What comes first in a caller's transaction would be the question.
func acquainted(t testing.TB, s *Store) *Store {
	t.Helper()
	for range 2 {
		require.NoError(t, s.SetPaused(t.Context(), "other", true)) // this tells nobody of jobs
	}
	return s
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
	s := acquainted(t, openStore(t, Options{}))
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
	for what, tx := range all { // the insert comes first
		refuses(t, s, tx, what)
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

// TestFirstStatementOfATransaction is the case in which the opening row does not prove that it is one: nothing was written in it before.
func TestFirstStatementOfATransaction(t *testing.T) {
	s := acquainted(t, openStore(t, Options{}))
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

// TestWhatProvesATransaction: the opening row, where the caller has written something, or an insert of jobs alone. Other statements are
// preceded by a question.
func TestWhatProvesATransaction(t *testing.T) {
	s := acquainted(t, openStore(t, Options{NotifyEvery: time.Hour})) // it looks for nothing meanwhile
	adds := func(w store.Writer) error {
		_, err := w.Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
		return err
	}
	acks := func(w store.Writer) error {
		_, err := w.Ack(t.Context(), []store.Ack{{Lease: store.Lease{ID: 1, Token: 1}}})
		assert.Error(t, err, "nobody has that lease")
		return nil
	}
	acksNothing := func(w store.Writer) error {
		_, err := w.Ack(t.Context(), nil)
		return err
	}
	const write, read = `CREATE TEMPORARY TABLE orders ()`, `SELECT 1`
	const row, ask, insert, looks = 1, 1, 1, 2 // an insert also notifies
	for _, c := range []struct {
		before   string
		call     func(w store.Writer) error
		messages int64
	}{
		{read, adds, row + insert},
		{write, adds, row + insert},
		{read, acks, row + ask + looks},
		{write, acks, row + looks},
		{read, acksNothing, row + ask},
		{write, acksNothing, row},
	} {
		tx, err := s.DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.Exec(c.before)
		require.NoError(t, err)
		spent := spentBy(t, s, func() { require.NoError(t, c.call(s.InTx(tx))) })
		assert.Equal(t, c.messages, spent["round trips"], "%+v", c)
		require.NoError(t, tx.Rollback())
	}
}

// TestATransactionThatTheDatabaseHasEnded is about a *sql.Tx that is one no more, of which database/sql does not know.
func TestATransactionThatTheDatabaseHasEnded(t *testing.T) {
	s := acquainted(t, openStore(t, Options{}))
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

// The other server has a database of the same name with jobs. The store must refuse the transaction, and go on with its own server, which it
// may not have met yet. The other one may be a copy of that, which was restored to a later timeline or not.
func TestTransactionOnAnotherServer(t *testing.T) {
	t.Parallel()
	mine := ownServer(t, lasting)
	require.NoError(t, openOn(t, mine.DSN, "first").SetPaused(t.Context(), "other", true)) // which notes who the server is
	later := standbyOf(t, mine)
	require.NoError(t, later.Promote(t.Context()))
	for what, other := range map[string]*pgtest.Cluster{"another one": ownServer(t, lasting), "a copy": later} {
		there := acquainted(t, openOn(t, other.DSN, "there"))
		for _, met := range []bool{false, true} {
			s := openOn(t, mine.DSN, "s")
			if met {
				acquainted(t, s)
			}
			for range 2 {
				tx, err := there.DB().BeginTx(t.Context(), nil)
				require.NoError(t, err)
				refuses(t, s, tx, what)
				require.NoError(t, tx.Rollback())
				enqueue(t, s, 1)
				tx, err = s.DB().BeginTx(t.Context(), nil)
				require.NoError(t, err)
				enqueue(t, s.InTx(tx), 1)
				require.NoError(t, tx.Commit())
			}
		}
		assert.Zero(t, countIn(t, there, store.Ready))
	}
}
