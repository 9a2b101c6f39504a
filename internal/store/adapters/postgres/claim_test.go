package postgres

import (
	"slices"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
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
	before := s.cursors.Get("q").Looked
	due := time.Since(before) > cursor.LookEvery
	jobs = claimN(t, s, limit)
	looked = s.cursors.Get("q").Looked.After(before)
	require.True(t, looked || !due, "the last look was longer ago than it may be")
	return jobs, looked
}

// claimedByALook claims one job after another, none of them short of jobs, until it has the one wanted: the first claim that looks
// from the marks takes it, at the latest.
func claimedByALook(t *testing.T, s *Store, want int64) {
	t.Helper()
	require.Less(t, cursor.LookEvery, bound)
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
	for began := time.Now(); time.Since(began) < cursor.StuckFor+100*time.Millisecond || s.cursors.Get("q").Lanes[cursor.Fresh].Cursor[cursor.LevelOf(0)].ID <= late; {
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
	awaitMark(t, s, cursor.Position{At: shown.Now().Add(-cursor.Slack), ID: 0}, func() { claimN(t, s, 1) }) // it was the writer that held it back
}

// awaitHorizon claims from another queue until the horizon has come so far.
func awaitHorizon(t *testing.T, s *Store, to time.Time) {
	t.Helper()
	for began := time.Now(); s.cursors.Horizon().Before(to); claimOther(t, s) {
		require.Less(t, time.Since(began), time.Minute, "the horizon does not move: some transaction is still open")
	}
}

// claimOther claims from a queue that is always empty.
func claimOther(t *testing.T, s *Store) {
	t.Helper()
	req := claimOf(1)
	req.Queue = "other"
	jobs, err := s.FetchAndClaim(t.Context(), req)
	require.NoError(t, err)
	require.Empty(t, jobs)
}

// awaitMark makes claims until the mark of fresh jobs has come so far. Where it does not move, a test of it is about nothing.
func awaitMark(t *testing.T, s *Store, to cursor.Position, claim func()) {
	t.Helper()
	for began := time.Now(); s.cursors.Get("q").Lanes[cursor.Fresh].Mark[cursor.LevelOf(0)].Before(to); claim() {
		require.Less(t, time.Since(began), time.Minute, "the mark does not move: some transaction is still open")
	}
}

// TestRolledBackClaimIsFound lets another session hold jobs, as a claim does, and give them back when the cursor is past them.
func TestRolledBackClaimIsFound(t *testing.T) {
	s := openStore(t, Options{})
	ids := enqueue(t, s, 10_000)
	claimN(t, s, 1)
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), s.sql(`UPDATE {schema}.jobs SET lease_expires_at = now() WHERE id = $1`), ids[1])
	require.NoError(t, err)
	for looks := 0; looks < 2 || s.cursors.Get("q").Lanes[cursor.Fresh].Cursor[cursor.LevelOf(0)].ID <= ids[1]; { // the marks move on meanwhile
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

// The same with a server, for claims and for recovery, whichever comes first: another store enqueues a job and gives a lease when the
// clock was set back, and this one finds both at once.
func TestNothingHidesBehindAStepOfTheClock(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{cursor.Slack / 2, cursor.Slack, cursor.Slack + 2*store.Resolution, store.MaxSetBack, store.MaxSetBack + 2*store.Resolution} {
		for _, recoverFirst := range []bool{false, true} {
			h := newHidingPlace(t)
			h.pass(t)
			now := h.shown.Now()
			for began := time.Now(); ; {
				require.Empty(t, claimN(t, h.s, 1))
				require.Empty(t, h.recovered(t, 0).take())
				leases := h.s.leases()
				if want := (cursor.Position{At: now.Add(-cursor.Slack)}); h.s.cursors.Get("q").Lanes[cursor.Fresh].Mark[cursor.LevelOf(0)] == want && leases == want {
					break
				}
				require.Less(t, time.Since(began), time.Minute, "the marks do not come to the present")
			}
			h.shown.Set(now.Add(-by))
			h.others.Set(now.Add(-by))
			late := openStore(t, Options{Clock: h.others, Schema: h.s.options.Schema}) // whose now has not been later
			ids := enqueue(t, late, 2)
			short := claimOf(1)
			short.TTL = store.Resolution
			held, err := late.FetchAndClaim(t.Context(), short)
			require.NoError(t, err)
			require.Equal(t, ids[0], held[0].ID)
			h.shown.Add(store.Resolution)
			all := []hidden{h.claimed(t, ids[1]), h.recovered(t, ids[0])}
			if recoverFirst {
				slices.Reverse(all)
			}
			for i, one := range all {
				assert.Equal(t, []int64{one.id}, one.take(), "call %d after a step of %v, recovery first: %v", i, by, recoverFirst)
			}
		}
	}
}
