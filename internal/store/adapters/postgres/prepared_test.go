package postgres

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// addsInTx adds a job in a transaction of its own, and returns which session it was on, and how many statements that has prepared.
func addsInTx(t *testing.T, s *Store, change ...func(tx *sql.Tx)) (pid, prepared int) {
	t.Helper()
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { assert.NoError(t, tx.Commit()) }()
	for _, f := range change {
		f(tx)
	}
	enqueue(t, s.InTx(tx), 1)
	require.NoError(t, tx.QueryRow(`SELECT pg_backend_pid(), count(*) FROM pg_prepared_statements`).Scan(&pid, &prepared))
	return pid, prepared
}

// What begins a call is prepared, and what inserts jobs. Other statements of the store would need the settings of its own sessions, and
// those of callers may differ each time.
func TestStatementsInCallersTransactionsArePrepared(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{MaxConns: MinConns}, {MaxConns: MinConns, Pooled: true}} {
		s := openStore(t, o)
		s.DB().SetMaxOpenConns(1)
		for _, want := range []int{1, 2, 2} { // the first transaction begins two calls
			if o.Pooled {
				want = 0
			}
			_, prepared := addsInTx(t, s, func(tx *sql.Tx) {
				_, err := tx.Exec(`SELECT $1::int`, 1)
				require.NoError(t, err)
				_, err = s.InTx(tx).Ack(t.Context(), []store.Ack{{Lease: store.Lease{ID: 1, Token: 1}}})
				require.Error(t, err, "nobody has that lease")
			})
			assert.Equal(t, want, prepared, "pooled: %v", o.Pooled)
		}
		assert.Equal(t, int64(3), countIn(t, s, store.Ready))
	}
}

// The request to cancel may reach the server when the connection is at something else.
func TestAConnectionIsNotUsedAgainAfterAnInsertWasCancelled(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	s.DB().SetMaxOpenConns(1)
	first, _ := addsInTx(t, s)
	same, prepared := addsInTx(t, s)
	require.Equal(t, first, same)
	require.Equal(t, 2, prepared)

	blocker, err := s.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = blocker.Rollback() }()
	_, err = blocker.Exec(s.sql(`LOCK TABLE {schema}.jobs IN EXCLUSIVE MODE`))
	require.NoError(t, err)
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	s.DB().SetMaxOpenConns(2) // another one watches, and the pool has room for both
	s.DB().SetMaxIdleConns(2)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := behind(t, func(context.Context) ([]store.Enqueued, error) {
		return s.InTx(tx).Enqueue(ctx, store.EnqueueRequest{Jobs: benchJobs(1)})
	})
	awaitWaiting(t, s, 1, time.Minute)
	cancel()
	require.ErrorIs(t, (<-ended).err, context.Canceled)
	require.NoError(t, tx.Rollback())
	require.NoError(t, blocker.Rollback())

	require.Eventually(t, func() bool {
		return number(t, s, `SELECT count(*) FROM pg_stat_activity WHERE pid = $1`, first) == 0
	}, time.Minute, time.Millisecond, "the connection is kept")
	addsInTx(t, s)
	assert.Equal(t, int64(3), countIn(t, s, store.Ready))
}

// DISCARD ALL and DEALLOCATE ALL fail one more transaction, and not all that come on the connection.
func TestForgottenStatementsFailOneTransaction(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	s.DB().SetMaxOpenConns(1)
	for range 2 {
		addsInTx(t, s)
	}
	_, err := s.DB().Exec(`DISCARD ALL`)
	require.NoError(t, err)
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = s.InTx(tx).Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
	require.Error(t, err)
	require.NoError(t, tx.Rollback())
	addsInTx(t, s)
	assert.Equal(t, int64(3), countIn(t, s, store.Ready))
}
