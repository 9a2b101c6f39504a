package postgres

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
)

// A store checks for longer than an hour: the row of the leases is wanted anew by who has the turn.
func TestSweepsGoOnAfterAnHour(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	s.sweeper.pace(never)
	require.Empty(t, claimN(t, s, 1))
	_, err := s.check(t.Context())
	require.NoError(t, err)
	_, err = s.callers.ExecContext(t.Context(), s.sql(`
		UPDATE {schema}.sweeps
		SET wanted_at = wanted_at - interval '2 hours', swept_at = swept_at - interval '9 years', turn_at = turn_at - interval '9 years'`))
	require.NoError(t, err)
	for range 3 {
		_, err = s.check(t.Context())
		assert.NoError(t, err)
	}
}

// Calls in a transaction that had its number before are no sign of a server that has gone back.
func TestCallsInCallersTransactionsForgetNothing(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	s.sweeper.pace(never)
	enqueue(t, s, 1)
	require.Len(t, claimN(t, s, 1), 1)
	before := s.cursors.Get(cursor.Leases).Age
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	enqueue(t, s.InTx(tx), 1)
	enqueue(t, s.InTx(tx), 1)
	after := s.cursors.Get(cursor.Leases).Age
	assert.Equal(t, before, after, "all places are forgotten by the second call in a transaction")
	enqueue(t, s, 1)
	enqueue(t, s.InTx(tx), 1)
	after = s.cursors.Get(cursor.Leases).Age
	assert.Equal(t, before, after, "all places are forgotten by a call in a transaction that is older than another")
	require.NoError(t, tx.Commit())
	enqueue(t, s, 1)
	after = s.cursors.Get(cursor.Leases).Age
	assert.Equal(t, before, after)
}

// A caller's transaction that notices another server lasts. Nobody waits for it.
func TestACallersTransactionThatNoticesHoldsUpNobody(t *testing.T) {
	t.Parallel()
	first := openStore(t, Options{})
	enqueue(t, first, 2)
	_, err := first.callers.ExecContext(t.Context(), first.sql(`UPDATE {schema}.fence SET timeline = timeline + 1`))
	require.NoError(t, err)
	s := openStore(t, Options{Schema: first.options.Schema, LockTimeout: time.Second})
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	require.Greater(t, enqueue(t, s.InTx(tx), 1)[0], store.Floor(1))
	_, err = s.FetchAndClaim(t.Context(), claimOf(1))
	assert.NoError(t, err)
	_, err = s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
	assert.NoError(t, err)
}

// All busy queues have many dead entries before their first job: each of them has its turn, and so has one that has none.
func TestEachSlowQueueHasItsTurn(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	s.sweeper.pace(never)
	release := holdSnapshot(t, s)
	defer release()
	slow := []string{"q0", "q1", "q2", "q3", "q4"}
	for _, q := range slow {
		crowd{queue: q, state: store.Ready, due: "-400 days"}.add(t, s, 60_000)
	}
	_, err := s.callers.ExecContext(t.Context(), s.sql(`UPDATE {schema}.jobs SET unleased_state = 'succeeded', finished_at = run_at`))
	require.NoError(t, err)
	for _, q := range append(slow, "z") {
		_, err := s.callers.ExecContext(t.Context(), s.sql(`INSERT INTO {schema}.sweeps (queue, wanted_at) VALUES ($1, now())`), q)
		require.NoError(t, err)
	}
	checked(t, s)
	s.sweeper.limit = 30 * time.Millisecond
	for range 40 { // each turn is as if it was due
		_, err := s.callers.ExecContext(t.Context(), s.sql(`UPDATE {schema}.sweeps SET swept_at = swept_at - interval '9 years', turn_at = NULL`))
		require.NoError(t, err)
		_, err = s.check(t.Context())
		require.NoError(t, err)
	}
	var never []string
	require.NoError(t, s.callers.SelectContext(t.Context(), &never, s.sql(`SELECT queue || ' ' || place FROM {schema}.sweeps WHERE swept_at IS NULL ORDER BY queue`)))
	assert.Empty(t, never, "never swept")
}

// The data went on with a standby that was promoted, and was lost with it. An older copy was restored, which has a later timeline. It
// must give no token and no id that the lost branch has given.
func TestBranchesOfTheSameDataHaveEpochsOfTheirOwn(t *testing.T) {
	t.Parallel()
	first := openStore(t, Options{})
	id := enqueue(t, first, 1)[0]
	branch := func(later int) (token, next int64) { // the server's timeline is so many later than that of the copy
		_, err := first.callers.ExecContext(t.Context(), first.sql(`UPDATE {schema}.fence SET epoch = 0, timeline = 1 - $1::bigint`), later)
		require.NoError(t, err)
		_, err = first.callers.ExecContext(t.Context(), first.sql(`UPDATE {schema}.jobs SET unleased_state = 'ready', token = 0, attempts = 0, lease_expires_at = NULL, claim_token = 0, claimed_at = NULL`))
		require.NoError(t, err)
		_, err = first.callers.ExecContext(t.Context(), first.sql(`SELECT setval(pg_get_serial_sequence('{schema}.jobs', 'id'), 1)`))
		require.NoError(t, err)
		s := openStore(t, Options{Schema: first.options.Schema})
		jobs := claimN(t, s, 1)
		require.Len(t, jobs, 1)
		require.Equal(t, id, jobs[0].ID)
		next = enqueue(t, s, 1)[0]
		_, err = first.callers.ExecContext(t.Context(), first.sql(`DELETE FROM {schema}.jobs WHERE id = $1`), next)
		require.NoError(t, err)
		return jobs[0].Token, next
	}
	token, next := branch(1)
	againToken, againNext := branch(2)
	assert.NotEqual(t, token, againToken, "a pair of id and token is given twice")
	assert.NotEqual(t, next, againNext, "an id is given twice")
}
