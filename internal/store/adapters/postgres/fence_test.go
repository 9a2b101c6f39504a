package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// outcome is what a call came to that was made behind a test.
type outcome[T any] struct {
	answer T
	err    error
}

func behind[T any](t *testing.T, call func(ctx context.Context) (T, error)) <-chan outcome[T] {
	done := make(chan outcome[T], 1)
	ctx := t.Context()
	go func() {
		answer, err := call(ctx)
		done <- outcome[T]{answer, err}
	}()
	return done
}

// waitsFor lets the test go on as soon as so many sessions wait for a lock on the table of jobs.
func waitsFor(t *testing.T, s *Store, sessions int) {
	t.Helper()
	require.Eventually(t, func() bool {
		var waiting int
		err := s.DB().GetContext(t.Context(), &waiting, s.sql(`
			SELECT count(*)
			FROM pg_locks
			WHERE relation = '{schema}.jobs'::regclass AND NOT granted`))
		return err == nil && waiting == sessions
	}, 4*time.Second, time.Millisecond, "%d sessions wait for the table of jobs", sessions)
}

// openTxn is a transaction of the store's own that the test commits.
func openTxn(t *testing.T, s *Store) *txn {
	t.Helper()
	open, err := s.begin(t.Context(), s.with.write)
	require.NoError(t, err)
	t.Cleanup(func() { open.end(nil) })
	return open
}

// A claim that has read the epoch must not be committed after Fence has returned, with a token below the floor.
func TestFenceWaitsForWhoHasReadTheEpoch(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	other := openStore(t, Options{Schema: s.options.Schema})
	_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(2)})
	require.NoError(t, err)

	open := openTxn(t, s)
	c := claim{ClaimRequest: claimOf(1), s: s, plan: s.cursors.Plan("q")}
	jobs, err := c.run(open)
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	fenced := behind(t, func(ctx context.Context) (int64, error) { return other.Fence(ctx, store.FenceRequest{}) })
	waitsFor(t, s, 1)
	select {
	case <-fenced:
		t.Fatal("Fence returned while a claim goes on that has read the epoch before")
	default:
	}
	require.NoError(t, open.commit())
	got := <-fenced
	require.NoError(t, got.err)
	assert.Equal(t, int64(1), got.answer)

	assert.Equal(t, int64(1), jobs[0].Token, "the claim before")
	after, err := s.FetchAndClaim(t.Context(), claimOf(1))
	require.NoError(t, err)
	require.Len(t, after, 1)
	assert.Equal(t, store.Floor(1)+1, after[0].Token, "the claim after")
}

// Calls that begin while Fence is under way wait for it, and then must not go on with what they saw before they waited.
func TestWhoWaitsForFenceReadsTheNewEpoch(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	other := openStore(t, Options{Schema: s.options.Schema})
	ids, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(12)})
	require.NoError(t, err)
	for range 3 { // the statements are prepared by now
		jobs, err := s.FetchAndClaim(t.Context(), claimOf(2))
		require.NoError(t, err)
		require.Len(t, jobs, 2)
		_, err = s.Cancel(t.Context(), store.Filter{IDs: []int64{jobs[0].ID}}, 1)
		require.NoError(t, err)
		_, err = s.RecoverExpiredLeases(t.Context(), store.RecoverRequest{Limit: 1})
		require.NoError(t, err)
	}

	open := openTxn(t, other)
	epoch, err := open.fence(store.FenceRequest{})
	require.NoError(t, err)
	claimed := behind(t, func(ctx context.Context) ([]store.Job, error) { return s.FetchAndClaim(ctx, claimOf(2)) })
	waitsFor(t, other, 1)
	cancelled := behind(t, func(ctx context.Context) ([]store.Outcome, error) {
		return s.Cancel(ctx, store.Filter{IDs: []int64{ids[11].ID}}, 1)
	})
	waitsFor(t, other, 2)
	enqueued := behind(t, func(ctx context.Context) ([]store.Enqueued, error) {
		return s.Enqueue(ctx, store.EnqueueRequest{Jobs: benchJobs(1)})
	})
	waitsFor(t, other, 3)
	require.NoError(t, open.commit())

	jobs := <-claimed
	require.NoError(t, jobs.err)
	require.Len(t, jobs.answer, 2)
	for _, j := range jobs.answer {
		assert.Equal(t, store.Floor(epoch)+1, j.Token, "a claim that has waited")
		kept, err := s.Get(t.Context(), j.ID)
		require.NoError(t, err)
		assert.Equal(t, j.Token, kept.Token, "the token in the row")
	}
	outcomes := <-cancelled
	require.NoError(t, outcomes.err)
	assert.Equal(t, store.Floor(epoch)+1, outcomes.answer[0].Token, "a cancel that has waited")
	added := <-enqueued
	require.NoError(t, added.err)
	assert.Greater(t, added.answer[0].ID, store.Floor(epoch), "an enqueue that has waited")
}

// The ids of jobs that wait for others are drawn before the jobs are inserted, and must not be committed after Fence has returned.
func TestFenceWaitsForWhoHasDrawnIDs(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	other := openStore(t, Options{Schema: s.options.Schema})
	for name, wait := range map[string]store.Wait{"an item": {Item: 0}, "a group": {Group: "g"}} {
		jobs := benchJobs(2)
		jobs[0].Group = "g"
		jobs[1].After = []store.Wait{wait}
		tx, err := s.DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback() })
		callers := &txn{ctx: t.Context(), wire: t.Context(), s: s, tx: tx}
		require.NoError(t, callers.join())
		for where, open := range map[string]*txn{"a call": openTxn(t, s), "a caller's transaction": callers} {
			w, err := open.waiting(jobs, nil, nil, drops{})
			require.NoError(t, err)
			require.Len(t, w.ids, len(jobs), "%s for jobs that wait for %s", where, name)
			fenced := behind(t, func(ctx context.Context) (int64, error) { return other.Fence(ctx, store.FenceRequest{}) })
			waitsFor(t, s, 1)
			if open == callers {
				require.NoError(t, tx.Rollback())
			} else {
				open.end(nil)
			}
			require.NoError(t, (<-fenced).err)
		}
	}
}

// A transaction that stays open keeps Fence from being applied, and nothing is half done.
func TestFenceGivesUpBehindAnOpenTransaction(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{LockTimeout: 50 * time.Millisecond})
	open := openTxn(t, s)
	_, err := open.enqueue(store.EnqueueRequest{Jobs: benchJobs(1)})
	require.NoError(t, err)
	_, err = s.Fence(t.Context(), store.FenceRequest{})
	require.ErrorIs(t, err, store.ErrUnavailable)
	wellSaid(t, err)
	require.NoError(t, open.commit())
	epoch, err := s.Fence(t.Context(), store.FenceRequest{})
	require.NoError(t, err)
	assert.Equal(t, int64(1), epoch)
}
