package postgres

import (
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
)

func enqueue(t *testing.T, w store.Writer, n int) []int64 {
	t.Helper()
	var ids []int64
	for n > 0 {
		answers, err := w.Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(min(n, store.MaxItems))})
		require.NoError(t, err)
		for _, a := range answers {
			ids = append(ids, a.ID)
		}
		n -= len(answers)
	}
	return ids
}

func claimN(t *testing.T, s *Store, limit int) []store.Job {
	t.Helper()
	jobs, err := s.FetchAndClaim(t.Context(), claimOf(limit))
	require.NoError(t, err)
	return jobs
}

func claimOf(limit int) store.ClaimRequest {
	return store.ClaimRequest{Queue: "q", Limit: limit, Worker: "w", TTL: time.Minute}
}

// bound is how long a committed, claimable job may stay hidden (R15).
const bound = time.Second

// claimAndLook claims, and tells whether the claim looked from the marks. One that is due to has to.
func claimAndLook(t *testing.T, s *Store, limit int) (jobs []store.Job, looked bool) {
	t.Helper()
	before := s.trails.get("q").looked
	due := time.Since(before) > lookEvery
	jobs = claimN(t, s, limit)
	looked = s.trails.get("q").looked.After(before)
	require.True(t, looked || !due, "the last look was longer ago than it may be")
	return jobs, looked
}

// claimedByALook claims one job after another, none of them short of jobs, until it has the one wanted: the first claim that looks
// from the marks takes it, at the latest.
func claimedByALook(t *testing.T, s *Store, want int64) {
	t.Helper()
	require.Less(t, lookEvery, bound)
	began := time.Now()
	for {
		jobs, looked := claimAndLook(t, s, 1)
		require.NotEmpty(t, jobs, "the queue ended before the job was found")
		if jobs[0].ID == want {
			t.Logf("found after %v", time.Since(began))
			return
		}
		require.False(t, looked, "a claim has looked, and the job stayed hidden")
	}
}

// TestLateCommitIsFound commits a job when the cursor has long gone on past its place.
func TestLateCommitIsFound(t *testing.T) {
	s := openStore(t, Options{})
	enqueue(t, s, 10_000)
	claimN(t, s, 10)
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	late := enqueue(t, s.InTx(tx), 1)[0]
	enqueue(t, s, 10_000)
	claimN(t, s, 1000) // they overlap the transaction, and pass its job by
	for began := time.Now(); time.Since(began) < stuckFor+100*time.Millisecond || s.trails.get("q").fresh.cursor[levelOf(0)].id <= late; {
		claimN(t, s, 500)
		enqueue(t, s, 500)
	}
	require.NoError(t, tx.Commit())
	claimedByALook(t, s, late)
}

// TestLoneWriterIsWaitedFor commits a job when nothing else writes in the server: until then the upper bound of each snapshot is
// the number of the very transaction that is waited for.
func TestLoneWriterIsWaitedFor(t *testing.T) {
	shown := clock.NewMock()
	s, err := Open(t.Context(), ownServer(t, pgtest.Options{}).DSN, &Options{Clock: shown})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	late := enqueue(t, s.InTx(tx), 1)[0]
	for range 5 {
		shown.Add(time.Second)
		require.Empty(t, claimN(t, s, 1))
	}
	require.NoError(t, tx.Commit())
	jobs := claimN(t, s, 1)
	require.Len(t, jobs, 1)
	assert.Equal(t, late, jobs[0].ID)
}

// TestRolledBackClaimIsFound lets another session hold jobs, as a claim does, and give them back when the cursor is past them.
func TestRolledBackClaimIsFound(t *testing.T) {
	s := openStore(t, Options{})
	ids := enqueue(t, s, 10_000)
	claimN(t, s, 1)
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), s.sql(`UPDATE {schema}.jobs SET state = 'in_flight' WHERE id = $1`), ids[1])
	require.NoError(t, err)
	for looks := 0; looks < 2 || s.trails.get("q").fresh.cursor[levelOf(0)].id <= ids[1]; { // the marks move on meanwhile
		jobs, looked := claimAndLook(t, s, 200)
		for _, j := range jobs {
			require.NotEqual(t, ids[1], j.ID)
		}
		enqueue(t, s, 200)
		if looked {
			looks++
		}
	}
	require.NoError(t, tx.Rollback())
	claimedByALook(t, s, ids[1])
}

// TestClockSetBack: places are forgotten, and nothing stays hidden behind them.
func TestClockSetBack(t *testing.T) {
	h := &horizon{}
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	_, _, back := h.note(noon, 10, 10, time.Now())
	assert.False(t, back)
	past, _, _ := h.note(noon.Add(time.Second), 11, 12, time.Now())
	assert.Equal(t, noon, past)
	_, _, back = h.note(noon, 12, 12, time.Now())
	assert.True(t, back, "a second back, asked after the later answer")
	past, _, back = h.note(noon, 12, 12, time.Now().Add(-time.Hour))
	assert.False(t, back)
	assert.True(t, past.IsZero(), "what was known before is forgotten")
}

// TestHorizonWaitsForWriters: a moment is past only when every transaction that was open then has ended.
func TestHorizonWaitsForWriters(t *testing.T) {
	h := &horizon{}
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for i := range int64(1000) { // an open transaction with number 5 keeps xmin there
		past, _, _ := h.note(noon.Add(time.Duration(i)*time.Millisecond), 5, 10+i, time.Now())
		assert.True(t, past.IsZero())
	}
	assert.LessOrEqual(t, len(h.pairs), mostPairs+1)
	past, stuck, _ := h.note(noon.Add(time.Second), 1010, 1010, time.Now())
	assert.False(t, stuck)
	assert.False(t, past.After(noon.Add(time.Second)))
	assert.True(t, past.After(noon.Add(900*time.Millisecond)), "past: %v", past)
}
