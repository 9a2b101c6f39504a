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
	before := s.cursors.get("q").looked
	due := time.Since(before) > lookEvery
	jobs = claimN(t, s, limit)
	looked = s.cursors.get("q").looked.After(before)
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
	for began := time.Now(); time.Since(began) < stuckFor+100*time.Millisecond || s.cursors.get("q").fresh.cursor[levelOf(0)].id <= late; {
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
	awaitMark(t, s, position{shown.Now().Add(-slack), 0}, func() { claimN(t, s, 1) }) // it was the writer that held it back
}

// awaitHorizon claims from another queue until the horizon has come so far.
func awaitHorizon(t *testing.T, s *Store, to time.Time) {
	t.Helper()
	for began := time.Now(); s.horizon.known().Before(to); claimOther(t, s) {
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
func awaitMark(t *testing.T, s *Store, to position, claim func()) {
	t.Helper()
	for began := time.Now(); s.cursors.get("q").fresh.mark[levelOf(0)].before(to); claim() {
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
	_, err = tx.ExecContext(t.Context(), s.sql(`UPDATE {schema}.jobs SET state = 'in_flight' WHERE id = $1`), ids[1])
	require.NoError(t, err)
	for looks := 0; looks < 2 || s.cursors.get("q").fresh.cursor[levelOf(0)].id <= ids[1]; { // the marks move on meanwhile
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

// A step back of the clock either is noticed, and then nothing is known of the time before, or is so small that marks lie behind it:
// what is due after the step is never hidden. An answer that comes late is no step.
func TestStepsOfTheClockHideNothing(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for by, noticed := range map[time.Duration]bool{
		0: false, store.Resolution: false, slack / 2: false, slack: false, slack + store.Resolution: true, time.Second: true,
		store.MaxSetBack: true, store.MaxSetBack + store.Resolution: true, time.Hour: true,
	} {
		h := &horizon{}
		early := time.Now()
		for i := range int64(5) {
			h.note(noon.Add(time.Duration(i)*time.Second), 10, 10+i, time.Now())
		}
		latest := noon.Add(4 * time.Second)
		_, _, back := h.note(latest.Add(-by), 10, 20, early)
		require.False(t, back, "%v: it was asked before the latest answer", by)
		assert.Equal(t, noon, h.known())

		after := latest.Add(-by)
		past, _, back := h.note(after, 1000, 1000, time.Now())
		assert.Equal(t, noticed, back, "a step of %v", by)
		if noticed {
			assert.Zero(t, past)
			past, _, back = h.note(after, 2000, 2000, time.Now())
			assert.Zero(t, past, "what was read before a step of %v is still counted on", by)
			assert.False(t, back, "a step of %v is noticed twice", by)
			past, _, _ = h.note(after.Add(store.Resolution), 3000, 3000, time.Now())
			assert.Equal(t, after.Add(store.Resolution), past, "the horizon stands still after a step of %v", by)
			continue
		}
		mark := moved([levels]position{}, [levels]position{}, past)[0]
		assert.Equal(t, latest.Add(-slack), mark.at, "after a step of %v", by)
		assert.False(t, position{after, 1}.before(mark), "a job that is due after a step of %v is hidden", by)
	}
}

// The same with a server, for claims and for recovery, whichever comes first: another store enqueues a job and gives a lease when the
// clock was set back, and this one finds both at once.
func TestNothingHidesBehindAStepOfTheClock(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{slack / 2, slack, slack + 2*store.Resolution, store.MaxSetBack, store.MaxSetBack + 2*store.Resolution} {
		for _, recoverFirst := range []bool{false, true} {
			h := newHidingPlace(t)
			h.pass(t)
			now := h.shown.Now()
			for began := time.Now(); ; {
				require.Empty(t, claimN(t, h.s, 1))
				require.Empty(t, h.recovered(t, 0).take())
				leases, _ := h.s.leases.get()
				if want := (position{at: now.Add(-slack)}); h.s.cursors.get("q").fresh.mark[levelOf(0)] == want && leases == want {
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
