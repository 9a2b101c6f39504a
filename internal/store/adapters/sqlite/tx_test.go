package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// A querier is a caller's type around a pool or a transaction, as sqlc makes them.
type querier struct{ store.Tx }

// refuses asks for an Enqueue that must be refused for its transaction.
func refuses(t *testing.T, s *Store, tx store.Tx, what string) {
	t.Helper()
	_, err := s.InTx(tx).Enqueue(t.Context(), newJobs(1))
	var invalid *store.InvalidError
	if assert.ErrorAs(t, err, &invalid, what) {
		assert.Equal(t, "tx", invalid.Field, what)
	}
}

// Each statement was committed by itself, and 300 calls for 10 unique keys made 97 jobs.
func TestAPoolInPlaceOfATransactionBreaksNoUniqueness(t *testing.T) {
	s := newStore(t)
	conn, err := s.DB().Connx(t.Context())
	require.NoError(t, err)
	for what, tx := range map[string]store.Tx{
		"*sqlx.DB": s.DB(), "*sql.DB": s.DB().DB, "*sqlx.Conn": conn, "*sql.Conn": conn.Conn,
		"a type around a pool": querier{s.DB()}, "a type around a connection": &querier{conn},
	} {
		var refused atomic.Int64
		var calls sync.WaitGroup
		for i := range 50 {
			calls.Go(func() {
				req := newJobs(1)
				req.Jobs[0].UniqueKey = fmt.Sprint(i % 10)
				if _, err := s.InTx(tx).Enqueue(context.Background(), req); assert.ErrorIs(t, err, store.ErrInvalid, what) {
					refused.Add(1)
				}
			})
		}
		calls.Wait()
		assert.EqualValues(t, 50, refused.Load(), what)
	}
	assert.Zero(t, countIn(t, s, store.Ready))
	_, err = s.InTx(querier{s.DB()}).Enqueue(t.Context(), newJobs(1))
	assert.EqualError(t, err, "jq: invalid: tx must be an open transaction, and sqlite.querier is in none: begin one with BeginTx, and hand that over")
	_, err = s.InTx(s.DB()).Enqueue(t.Context(), newJobs(1))
	assert.EqualError(t, err, "jq: invalid: tx must be an open transaction, and not a *sqlx.DB: begin one with BeginTxx, and hand that over")
	require.NoError(t, conn.Close())
}

// FinishTx by a pool left the job succeeded although its handler then failed.
func TestAPoolInPlaceOfATransactionFinishesNothing(t *testing.T) {
	s := newStore(t)
	enqueue(t, s, 1)
	held, err := s.FetchAndClaim(t.Context(), claimOf(1))
	require.NoError(t, err)
	_, err = s.InTx(querier{s.DB()}).Ack(t.Context(), acksOf(held))
	assert.ErrorIs(t, err, store.ErrInvalid)
	assert.Equal(t, int64(1), countIn(t, s, store.InFlight))
}

// TestATransactionThatTheDatabaseHasEnded is about a *sql.Tx that is one no more, of which database/sql does not know.
func TestATransactionThatTheDatabaseHasEnded(t *testing.T) {
	s := newStore(t)
	_, err := s.DB().Exec(`CREATE TABLE orders (id INTEGER PRIMARY KEY)`)
	require.NoError(t, err)
	for _, end := range []string{`COMMIT`, `ROLLBACK`, `INSERT OR ROLLBACK INTO orders VALUES (1), (1)`} {
		tx := hold(t, s)
		_, err := s.InTx(tx).Enqueue(t.Context(), newJobs(1))
		require.NoError(t, err, "while it is open")
		_, _ = tx.Exec(end) // the last one fails, which is why it rolls back
		refuses(t, s, tx, end)
		refuses(t, s, querier{tx}, end)
		assert.Error(t, tx.Commit(), end)
	}
	assert.Equal(t, int64(1), countIn(t, s, store.Ready), "what was committed by hand")
}

func TestCallInASavepoint(t *testing.T) {
	s := newStore(t)
	tx := hold(t, s)
	_, err := tx.Exec(`SAVEPOINT a`)
	require.NoError(t, err)
	lost, err := s.InTx(tx).Enqueue(t.Context(), newJobs(1))
	require.NoError(t, err)
	_, err = tx.Exec(`ROLLBACK TO a`)
	require.NoError(t, err)
	kept, err := s.InTx(querier{tx}).Enqueue(t.Context(), newJobs(1))
	require.NoError(t, err)
	_, err = tx.Exec(`RELEASE a`)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	assert.Equal(t, lost[0].ID, kept[0].ID, "the id of a job that never was")
	assert.Equal(t, int64(1), countIn(t, s, store.Ready))

	conn, err := s.DB().Conn(t.Context())
	require.NoError(t, err)
	defer func() { assert.NoError(t, conn.Close()) }()
	_, err = conn.ExecContext(t.Context(), `SAVEPOINT b`) // which is a transaction of its own
	require.NoError(t, err)
	_, err = s.InTx(querier{conn}).Enqueue(t.Context(), newJobs(1))
	require.NoError(t, err)
	_, err = conn.ExecContext(t.Context(), `ROLLBACK`)
	require.NoError(t, err)
	assert.Equal(t, int64(1), countIn(t, s, store.Ready))
}

// The question leaves the transaction and the connection as they were.
func TestAskingWhetherATransactionIsOpenChangesNothing(t *testing.T) {
	s := newStore(t)
	settings := func(tx store.Tx) string {
		var synchronous, temp, deferred int
		require.NoError(t, tx.QueryRowContext(t.Context(), `
			SELECT synchronous, temp_store, defer_foreign_keys
			FROM pragma_synchronous, pragma_temp_store, pragma_defer_foreign_keys`).Scan(&synchronous, &temp, &deferred))
		return fmt.Sprint(synchronous, temp, deferred)
	}
	conn, err := s.DB().Conn(t.Context())
	require.NoError(t, err)
	defer func() { assert.NoError(t, conn.Close()) }()
	before := settings(conn)
	refuses(t, s, querier{conn}, "a connection")
	assert.Equal(t, before, settings(conn))
	tx, err := conn.BeginTx(t.Context(), &sql.TxOptions{})
	require.NoError(t, err)
	_, err = s.InTx(tx).Enqueue(t.Context(), newJobs(1))
	require.NoError(t, err)
	assert.Equal(t, before, settings(tx))
	require.NoError(t, tx.Commit())
	assert.Equal(t, before, settings(conn))
	assert.Equal(t, int64(1), countIn(t, s, store.Ready))
}

// Jobs would have gone to the other file, and been answered for by this one.
func TestTransactionOnAnotherFile(t *testing.T) {
	s, other := newStore(t), newStore(t)
	tx := hold(t, other)
	refuses(t, s, tx, "a transaction on another store's file")
	require.NoError(t, tx.Commit())
	assert.Zero(t, countIn(t, other, store.Ready))
	assert.Zero(t, countIn(t, s, store.Ready))
}

// An uncoded transaction is one by another driver: its errors have codes of another type.
type uncoded struct{ store.Tx }

func (u uncoded) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	result, err := u.Tx.ExecContext(ctx, query, args...)
	if codeOf(err) != 0 {
		err = errors.New(err.Error())
	}
	return result, err
}

func TestTransactionOfAnotherDriver(t *testing.T) {
	s := newStore(t)
	refuses(t, s, uncoded{s.DB()}, "a type around a pool")
	tx := hold(t, s)
	_, err := s.InTx(uncoded{tx}).Enqueue(t.Context(), newJobs(1))
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	refuses(t, s, uncoded{tx}, "a transaction that has ended")
	assert.Equal(t, int64(1), countIn(t, s, store.Ready))
}
