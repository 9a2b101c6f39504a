package postgres

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
	"github.com/seed-ed332417/jq/internal/store/trial"
)

// countedOf returns a store with a queue of so many jobs whose only limit is MaxInFlight, and their ids. It has claimed and finished one more, and the next claim
// tries to be one statement.
func countedOf(t *testing.T, most, jobs int) (s *Store, ids []int64) {
	t.Helper()
	s = acquainted(t, openStore(t, Options{NotifyEvery: time.Hour}))
	limitTo(t, s, store.Policy{MaxInFlight: most})
	ids = enqueue(t, s, jobs+1)
	eventually(t, "the queue is counted", func() bool { return number(t, s, `SELECT count(*) FROM {schema}.queues WHERE counted`) == 1 })
	one := claimN(t, s, 1)
	require.Len(t, one, 1)
	finish(t, s, one)
	tries(s)
	return s, ids[1:]
}

// tries lets the next claim try.
func tries(s *Store) {
	lively(s)
	*s.limits.of("q").counted = trial.Trial{}
}

func slotsOf(t *testing.T, s *Store, ids []int64) int {
	t.Helper()
	return number(t, s, `SELECT count(*) FROM {schema}.slots WHERE job_id = ANY ($1::bigint[])`, arrayOf(ids))
}

// While there is room for all that it may take, a claim is one statement, which gives slots too. Otherwise it begins again in a transaction.
func TestClaimsOfACountedQueueAreOneStatement(t *testing.T) {
	t.Parallel()
	s, ids := countedOf(t, 20, 25)
	var jobs []store.Job
	messages := func() int64 {
		tries(s)
		return spentBy(t, s, func() { jobs = claimN(t, s, 8) })["round trips"]
	}
	assert.EqualValues(t, 1, messages())
	assert.Equal(t, ids[:8], jobIDs(jobs))
	assert.Equal(t, 8, slotsOf(t, s, ids))
	assert.EqualValues(t, 1, messages())
	assert.Equal(t, ids[8:16], jobIDs(jobs), "it goes on where the first one ended")
	assert.Equal(t, 16, slotsOf(t, s, ids))
	assert.Greater(t, messages(), int64(1), "it must look which of the jobs are in flight")
	assert.Equal(t, ids[16:20], jobIDs(jobs))
	assert.Equal(t, 20, inFlight(t, s))
	require.Empty(t, claimN(t, s, 8))
	assert.Equal(t, 20, slotsOf(t, s, ids))
}

// Slots of jobs that have ended are deleted by claims in transactions, of which there is one now and then.
func TestClaimsOfACountedQueueCleanItsSlots(t *testing.T) {
	t.Parallel()
	s, ids := countedOf(t, store.MaxLimit, 1000)
	most := 0
	for range len(ids) / 10 {
		jobs := claimN(t, s, 10)
		require.Len(t, jobs, 10)
		finish(t, s, jobs)
		most = max(most, number(t, s, `SELECT count(*) FROM {schema}.slots`))
	}
	assert.Greater(t, most, fewSlots, "none was cleaned before it had to be")
	assert.LessOrEqual(t, most, fewSlots+20)
}

// A claim that has waited for the queue counts the slots that were committed meanwhile.
func TestSlotsThatComeWhileAClaimWaits(t *testing.T) {
	t.Parallel()
	s, ids := countedOf(t, 2, 3)
	first, second := claimN(t, s, 1), claimN(t, s, 1)
	require.Equal(t, ids[:2], append(jobIDs(first), jobIDs(second)...))
	_, err := s.callers.ExecContext(t.Context(), s.sql(`DELETE FROM {schema}.slots WHERE job_id <> $1`), ids[0])
	require.NoError(t, err)
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	_, err = tx.ExecContext(t.Context(), s.sql(`SELECT FROM {schema}.queues FOR UPDATE`))
	require.NoError(t, err)
	tries(s)
	claimed := make(chan []store.Job, 1)
	go func() {
		jobs, err := s.FetchAndClaim(context.Background(), claimOf(1))
		assert.NoError(t, err)
		claimed <- jobs
	}()
	eventually(t, "the claim waits for the queue", func() bool {
		return number(t, s, `
			SELECT count(*) FROM pg_stat_activity
			WHERE application_name = $1 AND wait_event_type = 'Lock' AND query LIKE '%next_slot%'`, s.options.Schema) > 0
	})
	_, err = tx.ExecContext(t.Context(), s.sql(`INSERT INTO {schema}.slots (queue, number, job_id) SELECT 'q', max(number) + 7, $1 FROM {schema}.slots`), ids[1])
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	assert.Empty(t, <-claimed, "two jobs are in flight")
	finish(t, s, first)
	assert.Equal(t, ids[2:], jobIDs(claimN(t, s, 1)))
}

// A job that is committed behind the cursor is found by the first claim that there are too few jobs for.
func TestLateCommitIsFoundInACountedQueue(t *testing.T) {
	t.Parallel()
	s, _ := countedOf(t, store.MaxLimit, 0)
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	late := enqueue(t, s.InTx(tx), 1)[0]
	passed := func() bool { return s.cursors.Get("q").Lanes[cursor.Fresh].Cursor[cursor.LevelOf(0)].ID > late }
	for began := time.Now(); !passed(); {
		require.Less(t, time.Since(began), time.Minute, "no claim has passed it")
		enqueue(t, s, 10)
		finish(t, s, claimN(t, s, 10))
	}
	enqueue(t, s, 13)
	finish(t, s, claimN(t, s, 10)) // all that it may take
	require.NoError(t, tx.Commit())
	tries(s)
	assert.Len(t, claimN(t, s, 10), 4)
}

// Claims of several stores never take more than there is room for, and many are one statement.
func TestManyClaimsOfACountedQueueKeepToTheLimit(t *testing.T) {
	t.Parallel()
	const most, all = 40, 3000
	s, ids := countedOf(t, most, all)
	stores := []*Store{s, acquainted(t, openStore(t, Options{Schema: s.options.Schema}))}
	limitTo(t, stores[1], store.Policy{MaxInFlight: most})
	var mu sync.Mutex // guards left
	left := map[int64]bool{}
	for _, id := range ids {
		left[id] = true
	}
	took := func(jobs []store.Job) (over bool) {
		mu.Lock()
		defer mu.Unlock()
		for _, j := range jobs {
			assert.True(t, left[j.ID], "job %d is claimed twice", j.ID)
			delete(left, j.ID)
		}
		return len(left) == 0
	}
	var singles atomic.Int64
	var work sync.WaitGroup
	for i := range 6 {
		work.Go(func() {
			s := stores[i%2]
			var mine [][]store.Job
			for began, over := time.Now(), false; !over && time.Since(began) < 2*time.Minute; {
				c, l := s.newClaim(claimOf(5)), s.limits.of("q")
				l.counted = &trial.Trial{} // each claim tries
				jobs, done, err := c.ofCounted(t.Context(), l)
				if len(jobs) > 0 {
					singles.Add(1)
				}
				if !done && err == nil {
					jobs, err = c.inTurn(t.Context(), nil)
				}
				if !assert.NoError(t, err) {
					return
				}
				c.plan.Done(len(jobs) < c.limit)
				over = took(jobs)
				if mine = append(mine, jobs); len(mine) > 1 || len(jobs) == 0 {
					finish(t, s, mine[0])
					mine = mine[1:]
				}
			}
			for _, jobs := range mine {
				finish(t, s, jobs)
			}
		})
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		work.Wait()
	}()
	var seen []int
	for watching := true; watching; {
		select {
		case <-over:
			watching = false
		default:
			seen = append(seen, inFlight(t, s))
		}
	}
	assert.Empty(t, left)
	assert.LessOrEqual(t, slices.Max(seen), most)
	assert.Greater(t, slices.Max(seen), most/2, "the limit was never near")
	assert.Positive(t, singles.Load(), "no claim was one statement")
	t.Logf("%d of at least %d claims were one statement, and %d jobs were in flight at most", singles.Load(), all/5, slices.Max(seen))
}

// The row of the queue decides, whatever the store remembers.
func TestTheRowOfACountedQueueDecides(t *testing.T) {
	t.Parallel()
	s, _ := countedOf(t, 20, 10)
	takes := func() int {
		tries(s)
		c := s.newClaim(claimOf(1))
		jobs, done, err := c.ofCounted(t.Context(), s.limits.of("q"))
		require.NoError(t, err)
		if !done {
			require.NotNil(t, c.turn, "it has tried")
			c.turn()
		}
		return len(jobs)
	}
	set := func(what string) {
		_, err := s.callers.ExecContext(t.Context(), s.sql(`UPDATE {schema}.queues SET `+what))
		require.NoError(t, err)
	}
	require.Equal(t, 1, takes())
	for what, back := range map[string]string{
		`paused = TRUE`: `paused = FALSE`, `counted = FALSE`: `counted = TRUE`, `max_in_flight = 1`: `max_in_flight = 20`, `max_in_flight = NULL`: `max_in_flight = 20`,
		`max_per_key = 1`: `max_per_key = NULL`, `rate_n = 1`: `rate_n = NULL`, `fair = TRUE`: `fair = FALSE`, `ordered = TRUE`: `ordered = FALSE`,
	} {
		set(what)
		assert.Zero(t, takes(), what)
		set(back)
		assert.Equal(t, 1, takes(), what)
	}
}

// Where all queries of a transaction see the same, a claim could not see what others have added.
func TestSlotsAreOnlyCountedByFreshViews(t *testing.T) {
	t.Parallel()
	s, _ := countedOf(t, 20, 0)
	for isolation, want := range map[sql.IsolationLevel]bool{sql.LevelReadCommitted: true, sql.LevelRepeatableRead: false, sql.LevelSerializable: false} {
		tx, err := s.DB().BeginTxx(t.Context(), &sql.TxOptions{Isolation: isolation})
		require.NoError(t, err)
		var counted bool
		require.NoError(t, tx.Get(&counted, s.sql(`SELECT {schema}.next_slot('q', 1, 200) IS NOT NULL`)))
		require.NoError(t, tx.Rollback())
		assert.Equal(t, want, counted, isolation)
	}
}

// What others may limit too is claimed in transactions alone.
func TestOnlyMaxInFlight(t *testing.T) {
	t.Parallel()
	for _, p := range []store.Policy{
		{}, {MaxPerKey: 5}, {MaxInFlight: 5, MaxPerKey: 5}, {MaxInFlight: 5, Fair: true}, {MaxInFlight: 5, Ordered: true},
		{MaxInFlight: 5, Rate: store.Rate{N: 1, Per: store.MinPer}},
	} {
		assert.False(t, onlyInFlight(p), "%+v", p)
	}
	assert.True(t, onlyInFlight(store.Policy{MaxInFlight: 5, Version: 7}))
}
