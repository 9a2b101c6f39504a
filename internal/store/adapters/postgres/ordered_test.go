package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/internal/store"
)

// openOrdered opens a store whose queue is ordered. When it is closed, the table ordered must have the live jobs with keys, and no others.
func openOrdered(t *testing.T) *Store {
	t.Helper()
	return openOrderedAt(t, nil)
}

// openOrderedAt is openOrdered with a clock, if one is given.
func openOrderedAt(t *testing.T, clk clock.Clock) *Store {
	t.Helper()
	s := openStore(t, Options{Clock: clk})
	t.Cleanup(func() {
		var wrong []int64
		err := s.callers.Select(&wrong, s.sql(`
			SELECT coalesce(jobs.id, ordered.job_id)
			FROM (SELECT * FROM {schema}.jobs WHERE limit_key IS NOT NULL AND finished_at IS NULL) AS jobs
			FULL JOIN {schema}.ordered ON ordered.job_id = jobs.id AND ordered.limit_key = jobs.limit_key AND ordered.queue = jobs.queue
			WHERE jobs.id IS NULL OR ordered.job_id IS NULL`))
		assert.NoError(t, err)
		assert.Empty(t, wrong, "rows that are missing or too many")
	})
	limitTo(t, s, store.Policy{Ordered: true})
	return s
}

// next claims one job at a time, finishes it, and returns the ids, until there is none to claim.
func next(t *testing.T, s *Store) (ids []int64) {
	t.Helper()
	for {
		jobs := claimN(t, s, 1)
		if len(jobs) == 0 {
			return ids
		}
		ids = append(ids, jobs[0].ID)
		_, err := s.Ack(t.Context(), acksOf(jobs))
		require.NoError(t, err)
	}
}

// nack ends the lease of a job.
func nack(t *testing.T, s *Store, j store.Job, form store.Form, delay time.Duration) {
	t.Helper()
	_, err := s.NAck(t.Context(), []store.NAck{{Lease: j.Lease(), Form: form, Delay: delay}})
	require.NoError(t, err)
}

// Whenever they are due, the jobs of a key go one at a time, in the order of their ids.
func TestJobsOfAKeyGoInOrder(t *testing.T) {
	t.Parallel()
	s := openOrdered(t)
	req := keyed(4, "a")
	for i := range req.Jobs {
		req.Jobs[i].RunAt = time.Now().Add(-time.Duration(i+1) * time.Minute)
	}
	added, err := s.Enqueue(t.Context(), req)
	require.NoError(t, err)
	other := enqueueKeyed(t, s, 1, "b")
	plain := enqueue(t, s, 2)
	jobs := claimN(t, s, 10)
	require.Equal(t, []int64{added[0].ID, other[0], plain[0], plain[1]}, jobIDs(jobs))
	require.Empty(t, claimN(t, s, 10), "the first one is in flight")
	_, err = s.Ack(t.Context(), acksOf(jobs))
	require.NoError(t, err)
	assert.Equal(t, []int64{added[1].ID, added[2].ID, added[3].ID}, next(t, s))
}

// A job that retries later, is not due yet, or is blocked holds back the later ones of its key, but nobody else.
func TestFirstJobOfAKeyHoldsTheOthers(t *testing.T) {
	t.Parallel()
	clk := newClock()
	s := openOrderedAt(t, clk)
	const soon = time.Minute
	ids := enqueueKeyed(t, s, 2, "retries")
	nack(t, s, claimN(t, s, 1)[0], store.After, soon)
	req := keyed(2, "delayed")
	req.Jobs[0].Delay = soon
	added, err := s.Enqueue(t.Context(), req)
	require.NoError(t, err)
	first := enqueueOne(t, s, store.NewJob{Queue: "elsewhere", Kind: "k", Payload: []byte(`1`)})
	req = keyed(2, "blocked")
	req.Jobs[0].After = []store.Wait{{ID: first}}
	blocked, err := s.Enqueue(t.Context(), req)
	require.NoError(t, err)
	require.Empty(t, claimN(t, s, 10))
	clk.Add(soon)
	retried := claimN(t, s, 10)
	require.ElementsMatch(t, []int64{ids[0], added[0].ID}, jobIDs(retried), "and the retry needs no quota")
	_, err = s.Ack(t.Context(), acksOf(retried))
	require.NoError(t, err)
	require.ElementsMatch(t, []int64{ids[1], added[1].ID}, next(t, s))

	elsewhere := claimOf(1)
	elsewhere.Queue = "elsewhere"
	jobs, err := s.FetchAndClaim(t.Context(), elsewhere)
	require.NoError(t, err)
	_, err = s.Ack(t.Context(), acksOf(jobs))
	require.NoError(t, err)
	settle(t, s)
	assert.Equal(t, []int64{blocked[0].ID, blocked[1].ID}, next(t, s))
}

// A job that waits ends, or is deleted by hand. The next one of its key goes.
func TestEndOfAWaitingJobLetsTheNextOneGo(t *testing.T) {
	t.Parallel()
	clk := newClock()
	s := openOrderedAt(t, clk)
	hour := func() []int64 {
		req := keyed(2, "a")
		req.Jobs[0].Delay = time.Hour
		added, err := s.Enqueue(t.Context(), req)
		require.NoError(t, err)
		require.Empty(t, claimN(t, s, 1))
		return []int64{added[0].ID, added[1].ID}
	}
	ids := hour()
	_, err := s.Cancel(t.Context(), store.Filter{IDs: ids[:1]}, 1)
	require.NoError(t, err)
	require.Equal(t, ids[1:], next(t, s))

	ids = hour()
	_, err = s.callers.ExecContext(t.Context(), s.sql(`DELETE FROM {schema}.jobs WHERE id = $1`), ids[0])
	require.NoError(t, err)
	require.Equal(t, ids[1:], next(t, s))

	ids = hour()
	_, err = s.callers.ExecContext(t.Context(), s.sql(`UPDATE {schema}.jobs SET limit_key = 'b' WHERE id = $1`), ids[0])
	require.NoError(t, err)
	require.Equal(t, ids[1:], next(t, s))
	_, err = s.Reschedule(t.Context(), store.Filter{IDs: ids[:1]}, time.Time{}, 1)
	require.NoError(t, err)
	require.Equal(t, ids[:1], next(t, s))

	req := keyed(2, "a")
	req.Jobs[0].ExpiresAt = clk.Now().Add(time.Minute)
	added, err := s.Enqueue(t.Context(), req)
	require.NoError(t, err)
	clk.Add(time.Minute)
	require.Empty(t, claimN(t, s, 5), "it has expired, and is not cancelled yet")
	settle(t, s)
	assert.Equal(t, []int64{added[1].ID}, next(t, s))
}

// A job that has ended holds nothing back. When it is requeued it goes next, unless a later one is in flight.
func TestRequeuedJobGoesNext(t *testing.T) {
	t.Parallel()
	s := openOrdered(t)
	ids := enqueueKeyed(t, s, 4, "a")
	nack(t, s, claimN(t, s, 1)[0], store.Never, 0)
	second := claimN(t, s, 1)
	require.Equal(t, ids[1:2], jobIDs(second))
	_, err := s.Requeue(t.Context(), store.Filter{IDs: ids[:1]}, 1)
	require.NoError(t, err)
	require.Empty(t, claimN(t, s, 1), "a later one is in flight")
	_, err = s.Ack(t.Context(), acksOf(second))
	require.NoError(t, err)
	first := claimN(t, s, 1)
	require.Equal(t, ids[:1], jobIDs(first))
	nack(t, s, first[0], store.Release, 0)
	assert.Equal(t, []int64{ids[0], ids[2], ids[3]}, next(t, s))
}

// Somebody has locked the first job of a key. None of the later ones is taken in its place.
func TestLockedFirstJobOfAKeyIsNotOvertaken(t *testing.T) {
	t.Parallel()
	s := openOrdered(t)
	ids := enqueueKeyed(t, s, 2, "a", "b")
	tx := callersTx(t, s)
	_, err := tx.ExecContext(t.Context(), s.sql(`SELECT FROM {schema}.jobs WHERE id = $1 FOR UPDATE`), ids[0])
	require.NoError(t, err)
	assert.Equal(t, ids[2:3], jobIDs(claimN(t, s, 10)))
	require.NoError(t, tx.Rollback())
	assert.Equal(t, ids[:1], jobIDs(claimN(t, s, 10)))
}

// The queue becomes ordered when jobs of all sorts are there, under any limits, and ceases to be.
func TestQueueBecomesOrdered(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]store.Policy{
		"": {}, "max_per_key": {MaxPerKey: 1}, "fair": {Fair: true}, "max_in_flight": {MaxInFlight: 2}, "ordered": {Ordered: true, Fair: true},
	} {
		t.Run("from "+name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, Options{})
			limitTo(t, s, before)
			first := enqueueOne(t, s, store.NewJob{Queue: "elsewhere", Kind: "k", Payload: []byte(`1`)})
			req := keyed(5, "a")
			req.Jobs[1].After = []store.Wait{{ID: first}}
			added, err := s.Enqueue(t.Context(), req)
			require.NoError(t, err)
			held := claimN(t, s, 1)
			require.Equal(t, added[0].ID, held[0].ID)
			ordered := func() int { return number(t, s, `SELECT count(*) FROM {schema}.ordered`) }
			limitTo(t, s, store.Policy{Ordered: true, MaxInFlight: 7})
			assert.Equal(t, 5, ordered())
			assert.Empty(t, claimN(t, s, 5), "the first one is in flight")
			_, err = s.Ack(t.Context(), acksOf(held))
			require.NoError(t, err)
			assert.Empty(t, claimN(t, s, 5), "the second one is blocked")
			_, err = s.Cancel(t.Context(), store.Filter{IDs: []int64{added[1].ID}}, 1)
			require.NoError(t, err)
			third := claimN(t, s, 5)
			require.Equal(t, []int64{added[2].ID}, jobIDs(third))
			assert.Equal(t, 3, ordered())
			limitTo(t, s, store.Policy{Ordered: true, MaxInFlight: 8})
			assert.Empty(t, claimN(t, s, 5), "another limit changes nothing")
			limitTo(t, s, store.Policy{MaxPerKey: 2})
			assert.Zero(t, ordered())
			assert.Equal(t, []int64{added[3].ID}, jobIDs(claimN(t, s, 5)))
			limitTo(t, s, store.Policy{Ordered: true})
			assert.Empty(t, claimN(t, s, 5))
			limitTo(t, s, store.Policy{})
			assert.Zero(t, ordered())
			assert.Equal(t, []int64{added[4].ID}, jobIDs(claimN(t, s, 5)))
		})
	}
}

// Looking for the jobs of a queue in order finds those of more than one step, and deletes rows of others.
func TestOrderOfManyJobs(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	_, err := s.callers.ExecContext(t.Context(), s.sql(`
		INSERT INTO {schema}.jobs (id, enqueued_at, run_at, unique_for, priority, unleased_state, queue, kind, unique_key, trace, payload, limit_key)
		SELECT n, now(), now(), 0, 0, 'ready', 'q', 'k', '', '', '1', CASE WHEN n % 10 < 9 THEN n % 7 END
		FROM generate_series(1, 25000) AS n;
		INSERT INTO {schema}.ordered (queue, limit_key, job_id)
		SELECT 'q', 3, n
		FROM generate_series(24001, 28000) AS n`))
	require.NoError(t, err)
	limitTo(t, s, store.Policy{Ordered: true})
	eventually(t, "all jobs are known", func() bool { return number(t, s, `SELECT keys_known FROM {schema}.queues`) >= keysInOrder })
	assert.Equal(t, 22500, number(t, s, `
		SELECT count(*)
		FROM {schema}.ordered
		JOIN {schema}.jobs ON jobs.id = job_id AND ordered.limit_key = jobs.limit_key`))
	assert.Equal(t, 22500, number(t, s, `SELECT count(*) FROM {schema}.ordered`))
	assert.Len(t, claimN(t, s, 10), 7+3, "each key, and jobs without")
}

// A transaction has enqueued a job before the queue was ordered, and commits long after. Later jobs of its key do not overtake it. Jobs without a key go.
func TestJobsOlderThanTheOrderAreNotOvertaken(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]store.Policy{"": {}, "max_per_key": {MaxPerKey: 3}} {
		for _, fair := range []bool{false, true} {
			t.Run(fmt.Sprintf("from %s, fair %t", name, fair), func(t *testing.T) {
				t.Parallel()
				s := openStore(t, Options{})
				limitTo(t, s, before)
				tx := callersTx(t, s)
				late := enqueueKeyed(t, s.InTx(tx), 1, "a")
				limitTo(t, s, store.Policy{Ordered: true, Fair: fair})
				late = append(late, enqueueKeyed(t, s.InTx(tx), 1, "a")...)
				ids := enqueueKeyed(t, s, 2, "a")
				plain := enqueue(t, s, 2)
				require.ElementsMatch(t, plain, jobIDs(claimN(t, s, 5)))
				for range 20 {
					require.Empty(t, claimN(t, s, 5), "a job with a smaller id may still come")
				}
				require.NoError(t, tx.Commit())
				ended := time.Now()
				var found []int64
				eventually(t, "the jobs are found", func() bool {
					found = append(found, next(t, s)...)
					return len(found) == 4
				})
				assert.Equal(t, append(late, ids...), found)
				if !race.Enabled { // scripts/test-all measures it, while nothing else runs
					assert.Less(t, time.Since(ended), bound)
				}
			})
		}
	}
}

// Transactions that see the database as it was before the queue was ordered end a job, and add one. The table ordered has what it should have once keys are
// known for certain.
func TestIsolatedTransactionsOlderThanTheOrder(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), ownServer(t, pgtest.Options{}).DSN, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	ids := enqueueKeyed(t, s, 2, "a")
	held := claimN(t, s, 1)
	adds, ends := isolated(t, s), isolated(t, s)
	limitTo(t, s, store.Policy{Ordered: true})
	require.Equal(t, keysInOrder, number(t, s, `SELECT keys_known FROM {schema}.queues`))
	late := enqueueKeyed(t, s.InTx(adds), 1, "late")
	require.NoError(t, adds.Commit())
	_, err = s.InTx(ends).Ack(t.Context(), acksOf(held))
	require.NoError(t, err)
	require.NoError(t, ends.Commit())
	var found []int64
	eventually(t, "the jobs are found", func() bool {
		found = append(found, next(t, s)...)
		return len(found) == 2
	})
	assert.ElementsMatch(t, []int64{ids[1], late[0]}, found)
	assert.Zero(t, number(t, s, `SELECT count(*) FROM {schema}.ordered`))
}

// Claimers, some of whose jobs fail at first, finish the jobs of each key in the order of their ids, and never have two of them at once. Jobs are added
// meanwhile.
func TestClaimersKeepTheOrder(t *testing.T) {
	t.Parallel()
	s := openOrdered(t)
	const claimers, keys, each = 8, 20, 30
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprint("key ", i)
	}
	var mu sync.Mutex
	held, done := map[string]int64{}, map[string][]int64{}
	left := keys * each
	work, ctx := errgroup.WithContext(t.Context())
	work.Go(func() error {
		for range each {
			if _, err := s.Enqueue(ctx, keyed(1, names...)); err != nil {
				return err
			}
		}
		return nil
	})
	take := func(j store.Job) error {
		mu.Lock()
		defer mu.Unlock()
		if held[j.LimitKey()] != 0 {
			return fmt.Errorf("jobs %d and %d of %s are in flight", held[j.LimitKey()], j.ID, j.LimitKey())
		}
		held[j.LimitKey()] = j.ID
		return nil
	}
	drop := func(j store.Job, finished bool) {
		mu.Lock()
		defer mu.Unlock()
		delete(held, j.LimitKey())
		if finished {
			done[j.LimitKey()] = append(done[j.LimitKey()], j.ID)
			left--
		}
	}
	some := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return left > 0
	}
	for range claimers {
		work.Go(func() error {
			for some() {
				jobs, err := s.FetchAndClaim(ctx, claimOf(1+rand.IntN(10)))
				if err != nil {
					return err
				}
				for _, j := range jobs {
					if err := take(j); err != nil {
						return err
					}
				}
				for _, j := range jobs {
					fails := j.Attempts == 1 && j.ID%5 == 0
					if drop(j, !fails); fails {
						_, err = s.NAck(ctx, []store.NAck{{Lease: j.Lease(), Form: store.After}})
					} else {
						_, err = s.Ack(ctx, acksOf([]store.Job{j}))
					}
					if err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	require.NoError(t, work.Wait())
	require.Len(t, done, keys)
	for key, ids := range done {
		assert.Len(t, ids, each)
		assert.True(t, slices.IsSorted(ids), "%s: %v", key, ids)
	}
}

// Whatever is done to jobs at the same time, and to whatever the policy changes, none is forgotten.
func TestOrderOfJobsThatChange(t *testing.T) {
	t.Parallel()
	s := openOrdered(t)
	names := []string{"a", "b", "c"}
	until := time.Now().Add(1500 * time.Millisecond)
	var work errgroup.Group
	change := func(do func(ctx context.Context) error) {
		work.Go(func() error {
			for time.Now().Before(until) {
				if err := do(t.Context()); err != nil {
					return err
				}
			}
			return nil
		})
	}
	anyKey := func() store.Filter { return store.Filter{Queue: "q", LimitKey: names[rand.IntN(len(names))]} }
	change(func(ctx context.Context) error {
		_, err := s.Enqueue(ctx, keyed(1, names[:1+rand.IntN(len(names))]...))
		return err
	})
	change(func(ctx context.Context) error {
		_, err := s.Cancel(ctx, anyKey(), 1+rand.IntN(3))
		return err
	})
	change(func(ctx context.Context) error {
		_, err := s.Requeue(ctx, anyKey(), 1+rand.IntN(3))
		return err
	})
	change(func(ctx context.Context) error {
		_, err := s.Delete(ctx, anyKey(), 1)
		return err
	})
	change(func(ctx context.Context) error {
		<-time.After(20 * time.Millisecond) // others shall do something meanwhile
		before, err := s.Policy(ctx, "q")
		if err != nil {
			return err
		}
		_, err = s.SetPolicy(ctx, "q", store.Policy{Ordered: rand.IntN(3) > 0, MaxPerKey: rand.IntN(2), Version: before.Version})
		return err
	})
	for range 2 {
		change(func(ctx context.Context) error {
			jobs, err := s.FetchAndClaim(ctx, claimOf(2))
			if err != nil || len(jobs) == 0 {
				return err
			}
			if rand.IntN(3) == 0 {
				_, err = s.NAck(ctx, []store.NAck{{Lease: jobs[0].Lease(), Form: store.Never}})
				jobs = jobs[1:]
			}
			if err == nil && len(jobs) > 0 {
				_, err = s.Ack(ctx, acksOf(jobs))
			}
			return err
		})
	}
	require.NoError(t, work.Wait())
	limitTo(t, s, store.Policy{})
	limitTo(t, s, store.Policy{Ordered: true})
	var ids []int64
	eventually(t, "all jobs go", func() bool {
		ids = append(ids, next(t, s)...)
		return number(t, s, `SELECT count(*) FROM {schema}.jobs WHERE finished_at IS NULL`) == 0
	})
	t.Log(len(ids), "jobs were left")
}

// A queue that is not ordered has nothing in the table ordered, whatever happens to its jobs, and a job without a key has nothing there either.
func TestOnlyOrderedQueuesKeepAnOrder(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	rows := func() int { return number(t, s, `SELECT count(*) FROM {schema}.ordered`) }
	writes := func() int {
		return number(t, s, `SELECT coalesce(sum(n_tup_ins), 0) FROM pg_stat_xact_user_tables WHERE relname = 'ordered'`)
	}
	for _, p := range []store.Policy{{}, {MaxPerKey: 1}, {Fair: true}} {
		limitTo(t, s, p)
		ids := enqueueKeyed(t, s, 3, "a", "b")
		_, err := s.Cancel(t.Context(), store.Filter{IDs: ids[1:2]}, 1)
		require.NoError(t, err)
		_, err = s.Ack(t.Context(), acksOf(claimN(t, s, 4)))
		require.NoError(t, err)
		_, err = s.Requeue(t.Context(), store.Filter{IDs: ids[:2]}, 2)
		require.NoError(t, err)
		assert.Zero(t, rows())
		assert.Zero(t, writes())
	}
	limitTo(t, s, store.Policy{Ordered: true})
	before := rows()
	enqueue(t, s, 3)
	assert.Equal(t, before, rows())
	enqueueKeyed(t, s, 3, "a", "b")
	assert.Equal(t, before+6, rows(), "jobs that share a hint, too")
}

// In an ordered queue, a job with a key must have no priority. It has one if a schedule, or somebody before, gave it one: that counts between keys.
func TestPriorityOfAJobInOrder(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	high := keyed(2, "b")
	high.Jobs[0].Priority, high.Jobs[1].Priority = 1, 5
	before, err := s.Enqueue(t.Context(), high)
	require.NoError(t, err)
	limitTo(t, s, store.Policy{Ordered: true})
	a := enqueueKeyed(t, s, 1, "a")
	var invalid *store.InvalidError
	refused := func(w store.Writer, req store.EnqueueRequest, item int) {
		t.Helper()
		_, err := w.Enqueue(t.Context(), req)
		require.ErrorAs(t, err, &invalid)
		assert.Equal(t, item, invalid.Item)
		assert.Equal(t, "priority", invalid.Field)
	}
	req := keyed(2, "a")
	req.Jobs[1].Priority = 1
	refused(s, req, 1)
	tx := callersTx(t, s)
	refused(s.InTx(tx), req, 1)
	require.NoError(t, tx.Rollback())
	req.Jobs[0].ExpiresAt = time.Now().Add(time.Hour)
	refused(s, req, 1)
	req.Jobs[0].After = []store.Wait{{ID: a[0]}}
	refused(s, req, 1)
	req = keyed(1, "a")
	req.Jobs[0].Queue, req.Jobs[0].Priority = "elsewhere", 1
	_, err = s.Enqueue(t.Context(), req)
	require.NoError(t, err)
	job := keyed(1, "c").Jobs[0]
	job.Priority = 3
	_, err = s.SetSchedule(t.Context(), store.Schedule{Name: "every", Cron: "@daily", Job: job})
	require.NoError(t, err)
	page, err := s.Schedules(t.Context(), store.ScheduleFilter{Name: "every"}, store.Page{Limit: 1})
	require.NoError(t, err)
	firing := store.Firing{Name: "every", Revision: page.Schedules[0].Revision, For: time.Now().Add(-time.Minute), Next: page.Schedules[0].NextAt}
	fired, err := s.Fire(t.Context(), []store.Firing{firing})
	require.NoError(t, err)
	require.Len(t, fired, 1)
	jobs := claimN(t, s, 10)
	require.Len(t, jobs, 3)
	assert.Equal(t, []int{3, 1, 0}, []int{jobs[0].Priority, jobs[1].Priority, jobs[2].Priority})
	_, err = s.Ack(t.Context(), acksOf(jobs))
	require.NoError(t, err)
	assert.Equal(t, []int64{before[1].ID}, next(t, s))
}

// A claim, and an ack, among many jobs of a key read few of them, although the server knows nothing of the tables. Claims must have passed the jobs once, in
// search of some without a key: they do when all transactions have ended that were running when the jobs became due.
func TestClaimInOrderReadsFewRows(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	limitTo(t, s, store.Policy{Ordered: true})
	knowing(t, s)
	next := func() error {
		found, err := s.FetchAndClaim(t.Context(), claimOf(5))
		if err == nil {
			_, err = s.Ack(t.Context(), acksOf(found))
		}
		return err
	}
	for range 3 { // so that its statements are prepared for tables that are nearly empty
		enqueueKeyed(t, s, 1, "a", "b")
		require.NoError(t, next())
	}
	const jobs = 20_000
	_, err := s.callers.ExecContext(t.Context(), s.sql(`
		INSERT INTO {schema}.jobs (enqueued_at, run_at, unique_for, priority, unleased_state, queue, kind, unique_key, trace, payload, limit_key)
		SELECT now(), now(), 0, 0, 'ready', 'q', 'k', '', '', '1', 'a'
		FROM generate_series(1, $1)`),
		jobs)
	require.NoError(t, err)
	m := metered(t, s)
	eventually(t, "few rows are read", func() bool { return m.of(next).rows < 50 })
	assert.Less(t, number(t, s, `SELECT count(*) FROM {schema}.ordered`), jobs, "the claims have taken some")
}
