package sqlite

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

func TestSpentCountsCommits(t *testing.T) {
	s := openAt(t, newPath(t), nil)
	before, err := s.Spent(t.Context())
	require.NoError(t, err)
	for range 3 {
		_, err := s.Enqueue(t.Context(), newJobs(10))
		require.NoError(t, err)
	}
	after, err := s.Spent(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []store.Cost{{Name: "commits", Total: before[0].Total + 3}}, after)
}

// A snapshot that is held keeps the log of changes from being carried into the file.
func TestHoldSnapshotHoldsOneUntilItIsReleased(t *testing.T) {
	s := openAt(t, newPath(t), nil)
	release, err := s.HoldSnapshot(t.Context())
	require.NoError(t, err)
	_, err = s.Enqueue(t.Context(), newJobs(10))
	require.NoError(t, err)
	carried := func() (pages, done int) {
		var busy int
		require.NoError(t, s.callers.QueryRowContext(t.Context(), `PRAGMA wal_checkpoint`).Scan(&busy, &pages, &done))
		return pages, done
	}
	pages, done := carried()
	assert.Less(t, done, pages, "pages carried while the snapshot is held")
	require.NoError(t, release())
	pages, done = carried()
	assert.Equal(t, pages, done, "pages carried after its release")
}

func TestClosedStoreHasNothingToMeasure(t *testing.T) {
	s := openAt(t, newPath(t), nil)
	require.NoError(t, s.Close())
	_, err := s.Spent(t.Context())
	assert.ErrorIs(t, err, store.ErrClosed)
	_, err = s.HoldSnapshot(t.Context())
	assert.ErrorIs(t, err, store.ErrClosed)
}
