package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
)

// alone is a store with one connection for its calls.
func alone(t *testing.T) *Store {
	t.Helper()
	dsn := pgtest.DSN(t)
	s, err := Open(t.Context(), dsn, &Options{Schema: pgtest.Schema(t, dsn), MaxConns: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// prepared is how many statements the store's connection has prepared.
func prepared(t *testing.T, s *Store) (n int) {
	t.Helper()
	conn, err := s.db.Connx(t.Context())
	require.NoError(t, err)
	require.NoError(t, conn.GetContext(t.Context(), &n, `SELECT count(*) FROM pg_prepared_statements`))
	require.NoError(t, conn.Close())
	return n
}

func TestStatementsArePreparedWhenTheyComeAgain(t *testing.T) {
	t.Parallel()
	s := alone(t)
	for _, want := range []int{0, 1, 1} {
		_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
		require.NoError(t, err)
		assert.Equal(t, want, prepared(t, s))
	}
	// What is made for a filter has endless forms.
	for range 2 {
		_, err := s.List(t.Context(), store.Filter{Queue: "q"}, store.Page{Limit: 1})
		require.NoError(t, err)
	}
	assert.Equal(t, 1, prepared(t, s))
}

// A newer version changes tables while this one is at work.
func TestPreparedStatementsOutliveAMigration(t *testing.T) {
	t.Parallel()
	s := alone(t)
	round := func() {
		t.Helper()
		added, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
		require.NoError(t, err)
		claimed, err := s.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: "q", Limit: 1, Worker: "w", TTL: time.Minute})
		require.NoError(t, err)
		require.Len(t, claimed, 1)
		_, err = s.Ack(t.Context(), acksOf(claimed))
		require.NoError(t, err)
		detail, err := s.Get(t.Context(), added[0].ID)
		require.NoError(t, err)
		require.Equal(t, store.Succeeded, detail.Job.State)
	}
	round()
	round()
	require.NotZero(t, prepared(t, s))
	for _, change := range []string{
		`ALTER TABLE {schema}.jobs ADD COLUMN more text`,
		`ALTER TABLE {schema}.jobs ALTER COLUMN priority TYPE integer`,
		`ALTER TABLE {schema}.jobs ALTER COLUMN priority TYPE smallint`,
		`ALTER TABLE {schema}.jobs DROP COLUMN more`,
	} {
		_, err := s.DB().ExecContext(t.Context(), s.sql(change))
		require.NoError(t, err)
		round()
		round()
	}
}

// A caller leaves while a prepared statement waits. The server is then listened to for a little while only, which is not to
// break off the call of somebody else.
func TestWhoLeavesAPreparedStatementHarmsNoOtherCall(t *testing.T) {
	t.Parallel()
	s := alone(t)
	_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
	require.NoError(t, err)
	claimed, err := s.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: "q", Limit: 1, Worker: "w", TTL: time.Minute})
	require.NoError(t, err)
	save := func(ctx context.Context) error {
		_, err := s.Save(ctx, []store.Save{{Lease: claimed[0].Lease(), Progress: []byte(`1`)}})
		return err
	}
	for range 2 {
		require.NoError(t, save(t.Context()))
	}
	require.NotZero(t, prepared(t, s))

	lock, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = lock.ExecContext(t.Context(), s.sql(`LOCK TABLE {schema}.jobs`))
	require.NoError(t, err)
	ctx, leave := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer leave()
	require.ErrorIs(t, save(ctx), store.ErrUnavailable)
	require.NoError(t, lock.Rollback())

	_, err = s.db.ExecContext(t.Context(), `SELECT pg_sleep($1)`, (patience + patience/5).Seconds())
	require.NoError(t, err, "a call that lasts longer")
}

// Whoever forgets to say that a proxy stands in between is told, before settings of a session could become everybody's.
func TestAProxyIsNotMistakenForTheServer(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	_, err := Open(t.Context(), pgtest.Bouncer(t, dsn), &Options{Schema: pgtest.Schema(t, dsn)})
	require.Error(t, err)
	assert.Contains(t, err.Error(), "if a pooling proxy stands in between, say so (Options.Pooled, or pooled=true in the URL)")
	assert.NotContains(t, err.Error(), "\n")
}
