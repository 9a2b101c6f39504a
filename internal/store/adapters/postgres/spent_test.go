package postgres

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

func spentBy(t *testing.T, s *Store, call func()) map[string]int64 {
	t.Helper()
	before, err := s.Spent(t.Context())
	require.NoError(t, err)
	call()
	after, err := s.Spent(t.Context())
	require.NoError(t, err)
	require.Len(t, after, len(before))
	costs := map[string]int64{}
	for i, c := range after {
		assert.Equal(t, before[i].Name, c.Name)
		costs[c.Name] = c.Total - before[i].Total
	}
	return costs
}

// What a call has cost is known right after it, although sessions of the server tell of their rows only now and then.
func TestSpentCountsWhatCallsCost(t *testing.T) {
	s := openStore(t, Options{})
	enqueue(t, s, 10)
	costs := spentBy(t, s, func() {
		jobs := claimN(t, s, 10)
		require.Len(t, jobs, 10)
		_, err := s.Ack(t.Context(), acksOf(jobs))
		require.NoError(t, err)
	})
	assert.EqualValues(t, 2, costs["transactions"], "a claim and an ack")
	assert.GreaterOrEqual(t, costs["round trips"], int64(6), "each begins, does something and commits")
	assert.GreaterOrEqual(t, costs["dead rows"], int64(20), "one a job and change")
	assert.Positive(t, costs["WAL"])
}

func TestHoldSnapshotHoldsOneUntilItIsReleased(t *testing.T) {
	s := openStore(t, Options{})
	held := func() (n int) {
		require.NoError(t, s.callers.GetContext(t.Context(), &n, `
			SELECT count(*)
			FROM pg_stat_activity
			WHERE state = 'idle in transaction' AND backend_xmin IS NOT NULL AND application_name = $1`,
			s.options.Schema))
		return n
	}
	release, err := s.HoldSnapshot(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, held())
	require.NoError(t, release())
	assert.Equal(t, 0, held())
}

func TestClosedStoreHasNothingToMeasure(t *testing.T) {
	s := openStore(t, Options{})
	require.NoError(t, s.Close())
	_, err := s.Spent(t.Context())
	assert.ErrorIs(t, err, store.ErrClosed)
	_, err = s.HoldSnapshot(t.Context())
	assert.ErrorIs(t, err, store.ErrClosed)
}

func TestHoldSnapshotOnADeadConnectionFails(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	s.DB().SetMaxOpenConns(1)
	pid := number(t, s, `SELECT pg_backend_pid()`)
	_, err := s.db.Exec(`SELECT pg_terminate_backend($1, 5000)`, pid)
	require.NoError(t, err)
	_, err = s.HoldSnapshot(t.Context())
	require.Error(t, err)
	release, err := s.HoldSnapshot(t.Context())
	require.NoError(t, err)
	assert.NoError(t, release())
}
