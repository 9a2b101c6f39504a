package postgres

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// A server that has just been promoted or restored is often vacuumed, or gets an index: each takes the lock that is held here. A store
// that notices the server raises the epoch beside them. Fence has to wait, and says for what.
func TestAStoreAdoptsAServerThatIsVacuumed(t *testing.T) {
	t.Parallel()
	first := openStore(t, Options{})
	enqueue(t, first, 1)
	_, err := first.callers.ExecContext(t.Context(), first.sql(`UPDATE {schema}.fence SET timeline = timeline + 1`))
	require.NoError(t, err)
	vacuum, err := first.callers.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = vacuum.ExecContext(t.Context(), first.sql(`LOCK TABLE {schema}.jobs IN SHARE UPDATE EXCLUSIVE MODE`))
	require.NoError(t, err)

	s := openStore(t, Options{Schema: first.options.Schema, LockTimeout: 100 * time.Millisecond})
	id := enqueue(t, s, 1)[0]
	assert.Greater(t, id, store.Floor(1))
	assert.Equal(t, int64(1), epochOf(t, s))
	_, err = s.Fence(t.Context(), store.FenceRequest{})
	require.ErrorIs(t, err, store.ErrUnavailable)
	assert.ErrorContains(t, err, "VACUUM, CREATE INDEX or a long transaction")

	require.NoError(t, vacuum.Rollback())
	epoch, err := s.Fence(t.Context(), store.FenceRequest{})
	require.NoError(t, err)
	assert.Equal(t, int64(2), epoch)
}

// Fence that meets a store which is just raising the epoch comes after it, and raises it once more.
func TestFenceComesAfterAStoreThatRaisesTheEpoch(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	raising, err := s.callers.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = raising.ExecContext(t.Context(), s.sql(`UPDATE {schema}.fence SET epoch = epoch + 1`))
	require.NoError(t, err)
	fenced := make(chan int64, 1)
	go func() {
		epoch, err := s.Fence(t.Context(), store.FenceRequest{})
		assert.NoError(t, err)
		fenced <- epoch
	}()
	require.Eventually(t, func() bool {
		var waits bool
		err := s.callers.GetContext(t.Context(), &waits, `
			SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock')`, s.options.Schema)
		return assert.NoError(t, err) && waits
	}, time.Minute, time.Millisecond, "Fence waits for nobody")
	require.NoError(t, raising.Commit())
	assert.Equal(t, int64(2), <-fenced)
}
