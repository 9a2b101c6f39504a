package sqlite

import (
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// Jobs that were added, given back or failed while the clock was ahead wait for so much longer, until they are repaired.
func TestRepairBringsBackWaitingJobs(t *testing.T) {
	t.Parallel()
	shown := clock.NewMock()
	shown.Set(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	s := openAt(t, newPath(t), &Options{Clock: shown})
	waiting := func(delay time.Duration) store.NewJob {
		return store.NewJob{Queue: "q", Kind: "k", Payload: []byte(`1`), Delay: delay, MaxRetries: 3, Backoff: store.Backoff{Base: time.Minute, Cap: time.Minute}}
	}
	right, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{waiting(30 * time.Minute), waiting(0), waiting(0)}})
	require.NoError(t, err)
	shown.Add(time.Hour)
	held := claimAll(t, s, 3)
	require.Len(t, held, 3)
	_, err = s.NAck(t.Context(), []store.NAck{
		{Lease: held[1].Lease(), Form: store.Fail}, {Lease: held[2].Lease(), Form: store.Snooze, Delay: time.Minute},
		{Lease: held[0].Lease(), Form: store.Release},
	})
	require.NoError(t, err)
	added, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{waiting(time.Minute), waiting(0)}})
	require.NoError(t, err)
	shown.Set(shown.Now().Add(-time.Hour))
	late, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{waiting(24 * time.Hour)}})
	require.NoError(t, err)

	assert.Contains(t, findingsOf(t, s, alarming{log: 1 << 40, unused: 1 << 40}), "written_ahead")
	for _, want := range []int{5, 0} {
		moved, err := s.Repair(t.Context())
		require.NoError(t, err)
		assert.Equal(t, want, moved, "jobs that were moved")
	}
	assert.NotContains(t, findingsOf(t, s, alarming{log: 1 << 40, unused: 1 << 40}), "written_ahead")

	now := shown.Now()
	for id, due := range map[int64]time.Duration{
		held[0].ID: 0, held[1].ID: time.Minute, held[2].ID: time.Minute, added[0].ID: time.Minute, added[1].ID: 0, late[0].ID: 24 * time.Hour,
	} {
		j, err := s.Get(t.Context(), id)
		require.NoError(t, err)
		assert.Equal(t, now.Add(due), j.Next(), "job %d", id)
	}
	assert.Len(t, claimAll(t, s, 10), 2)
	shown.Add(time.Minute)
	assert.Len(t, claimAll(t, s, 10), 3)
	assert.Len(t, right, 3)
}

func claimAll(t *testing.T, s *Store, limit int) []store.Job {
	t.Helper()
	jobs, err := s.FetchAndClaim(t.Context(), claimOf(limit))
	require.NoError(t, err)
	return jobs
}
