package sqlite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/internal/store"
)

// newOrdered opens a store whose queue q is ordered, with a clock that the test moves.
func newOrdered(t *testing.T) (*Store, func(time.Duration)) {
	t.Helper()
	clk := newClock()
	s := openAt(t, newPath(t), &Options{Clock: clk})
	limitTo(t, s, store.Policy{Ordered: true})
	return s, clk.Add
}

// inOrder are the jobs of the table.
func inOrder(t *testing.T, s *Store) (ids []int64) {
	t.Helper()
	require.NoError(t, s.DB().Select(&ids, `SELECT job_id FROM ordered ORDER BY job_id`))
	return ids
}

// checkOrder asserts that the table has the live jobs of the ordered queues that have a key, and no others.
func checkOrder(t *testing.T, s *Store) {
	t.Helper()
	var wrong []string
	require.NoError(t, s.DB().Select(&wrong, `
		WITH live(queue, limit_key, job_id) AS (
			SELECT queue, limit_key, id
			FROM jobs
			JOIN policies ON name = queue
			WHERE ordered AND limit_key <> '' AND finished_at IS NULL
		)
		SELECT queue || ' ' || limit_key || ' ' || job_id
		FROM (SELECT * FROM (SELECT * FROM live EXCEPT SELECT * FROM ordered) UNION SELECT * FROM (SELECT * FROM ordered EXCEPT SELECT * FROM live))`))
	require.Empty(t, wrong, "jobs that are missing, or should not be there")
}

// claimJobs claims so many jobs of the queue.
func claimJobs(t *testing.T, s *Store, limit int) []store.Job {
	t.Helper()
	jobs, err := s.FetchAndClaim(t.Context(), claimOf(limit))
	require.NoError(t, err)
	return jobs
}

// claimOne claims the only job that there is to take, and checks which one that is.
func claimOne(t *testing.T, s *Store, id int64) store.Job {
	t.Helper()
	jobs := claimJobs(t, s, 10)
	require.Len(t, jobs, 1)
	require.Equal(t, id, jobs[0].ID)
	require.Empty(t, claimed(t, s, 10), "the others of its key")
	return jobs[0]
}

func ack(t *testing.T, s *Store, jobs ...store.Job) {
	t.Helper()
	outcomes, err := s.Ack(t.Context(), acksOf(jobs))
	require.NoError(t, err)
	for _, o := range outcomes {
		require.Equal(t, store.StatusOK, o.Status)
	}
}

func nack(t *testing.T, s *Store, j store.Job, n store.NAck) {
	t.Helper()
	n.Lease = j.Lease()
	outcomes, err := s.NAck(t.Context(), []store.NAck{n})
	require.NoError(t, err)
	require.Equal(t, store.StatusOK, outcomes[0].Status)
}

// does applies a call to the jobs.
func does(t *testing.T, call func(context.Context, store.Filter, int) ([]store.Outcome, error), ids ...int64) {
	t.Helper()
	outcomes, err := call(t.Context(), store.Filter{IDs: ids}, len(ids))
	require.NoError(t, err)
	for _, o := range outcomes {
		require.Equal(t, store.StatusOK, o.Status)
	}
}

// byHand changes the file as somebody with another program would.
func byHand(t *testing.T, s *Store, query string, args ...any) {
	t.Helper()
	_, err := s.DB().ExecContext(t.Context(), query, args...)
	require.NoError(t, err)
}

// addKeyed adds a job of key a that differs from others as the test says.
func addKeyed(t *testing.T, s *Store, as func(*store.NewJob)) int64 {
	t.Helper()
	n := newJob()
	n.LimitKey = "a"
	as(&n)
	added, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{n}})
	require.NoError(t, err)
	return added[0].ID
}

func plain(*store.NewJob) {}

// Jobs of a key go by id, though the later ones are due first. Those of other keys, and without one, go beside them.
func TestOrderedJobsGoByID(t *testing.T) {
	t.Parallel()
	s, _ := newOrdered(t)
	now := s.now.get()
	var a []int64
	for i := range 5 {
		a = append(a, addKeyed(t, s, func(n *store.NewJob) { n.RunAt = now.Add(-time.Duration(i) * time.Second) }))
	}
	byHand(t, s, `UPDATE jobs SET run_at = run_at - id * 1000000`)
	others := enqueueKeyed(t, s, "b", "b", "", "")
	jobs := claimJobs(t, s, 10)
	require.Len(t, jobs, 4)
	first := []int64{a[0], others[0], others[2], others[3]}
	for _, j := range jobs {
		require.Contains(t, first, j.ID)
	}
	checkOrder(t, s)
	ack(t, s, jobs...)
	for _, id := range a[1:4] {
		jobs := claimJobs(t, s, 1)
		require.Len(t, jobs, 1)
		require.Equal(t, id, jobs[0].ID)
		ack(t, s, jobs...)
	}
	last := claimJobs(t, s, 10)
	require.Len(t, last, 2)
	ack(t, s, last...)
	assert.Empty(t, inOrder(t, s))
	require.Empty(t, claimed(t, s, 10))
	assert.Zero(t, count(t, s, `SELECT (SELECT count(*) FROM keys) + (SELECT count(*) FROM hints)`))
}

// While the first job of a key is live, it holds back the others, whatever it waits for. When it is due again, it goes first.
func TestOrderedJobsAreHeldBack(t *testing.T) {
	t.Parallel()
	for name, form := range map[string]store.NAck{
		"Retry":  {Form: store.After, Delay: time.Hour, Error: "not yet"},
		"Snooze": {Form: store.Snooze, Delay: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, sleep := newOrdered(t)
			ids := enqueueKeyed(t, s, "a", "a")
			byHand(t, s, `UPDATE jobs SET rules = (SELECT rules FROM jobs WHERE id = ?)`, addKeyed(t, s, func(n *store.NewJob) { n.LimitKey = "" }))
			jobs := claimJobs(t, s, 10)
			require.Len(t, jobs, 2)
			nack(t, s, jobs[slices.IndexFunc(jobs, func(j store.Job) bool { return j.ID == ids[0] })], form)
			require.Empty(t, claimed(t, s, 10))
			sleep(59 * time.Minute)
			require.Empty(t, claimed(t, s, 10))
			sleep(time.Minute)
			ack(t, s, claimOne(t, s, ids[0]))
			claimOne(t, s, ids[1])
		})
	}
	t.Run("Delayed", func(t *testing.T) {
		t.Parallel()
		s, sleep := newOrdered(t)
		first := addKeyed(t, s, func(n *store.NewJob) { n.RunAt = s.now.get().Add(time.Hour) })
		second := addKeyed(t, s, plain)
		require.Empty(t, claimed(t, s, 10))
		sleep(time.Hour)
		ack(t, s, claimOne(t, s, first))
		claimOne(t, s, second)
	})
	t.Run("Rescheduled", func(t *testing.T) {
		t.Parallel()
		s, sleep := newOrdered(t)
		ids := enqueueKeyed(t, s, "a", "a")
		for _, after := range []time.Duration{time.Hour, 2 * time.Hour, time.Minute} {
			_, err := s.Reschedule(t.Context(), store.Filter{IDs: ids[:1]}, s.now.get().Add(after), 1)
			require.NoError(t, err)
			require.Empty(t, claimed(t, s, 10))
		}
		sleep(time.Minute)
		claimOne(t, s, ids[0])
	})
	t.Run("Blocked", func(t *testing.T) {
		t.Parallel()
		s, _ := newOrdered(t)
		root := addKeyed(t, s, func(n *store.NewJob) { n.LimitKey = "root" })
		first := addKeyed(t, s, func(n *store.NewJob) { n.After = []store.Wait{{ID: root}} })
		second := addKeyed(t, s, plain)
		checkOrder(t, s)
		ack(t, s, claimOne(t, s, root))
		ack(t, s, claimOne(t, s, first))
		claimOne(t, s, second)
	})
	t.Run("InFlight", func(t *testing.T) { // with an expired lease
		t.Parallel()
		s, sleep := newOrdered(t)
		ids := enqueueKeyed(t, s, "a", "a")
		claimOne(t, s, ids[0])
		sleep(time.Hour)
		require.Empty(t, claimed(t, s, 10))
		_, err := s.RecoverExpiredLeases(t.Context(), store.RecoverRequest{Limit: 10})
		require.NoError(t, err)
		checkOrder(t, s)
		claimOne(t, s, ids[1]) // the first one has no retries
	})
}

// A first job that ends without a lease, or is deleted, lets the next one go.
func TestOrderedJobsFollowOnesThatEnd(t *testing.T) {
	t.Parallel()
	s, _ := newOrdered(t)
	begins := map[string]func(t *testing.T, key func(*store.NewJob)) (first int64){
		"Ready": func(t *testing.T, key func(*store.NewJob)) int64 { return addKeyed(t, s, key) },
		"Later": func(t *testing.T, key func(*store.NewJob)) int64 {
			return addKeyed(t, s, func(n *store.NewJob) { key(n); n.RunAt = s.now.get().Add(time.Hour) })
		},
		"Retrying": func(t *testing.T, key func(*store.NewJob)) int64 {
			first := claimOne(t, s, addKeyed(t, s, key))
			nack(t, s, first, store.NAck{Form: store.After, Delay: time.Hour, Error: "not yet"})
			return first.ID
		},
		"Blocked": func(t *testing.T, key func(*store.NewJob)) int64 {
			root := addKeyed(t, s, func(n *store.NewJob) { n.Queue = "elsewhere" })
			return addKeyed(t, s, func(n *store.NewJob) { key(n); n.After = []store.Wait{{ID: root}} })
		},
	}
	ends := map[string]func(t *testing.T, id int64){
		"Cancelled": func(t *testing.T, id int64) { does(t, s.Cancel, id) },
		"Deleted":   func(t *testing.T, id int64) { byHand(t, s, `DELETE FROM jobs WHERE id = ?`, id) },
		"Moved":     func(t *testing.T, id int64) { byHand(t, s, `UPDATE jobs SET queue = 'elsewhere' WHERE id = ?`, id) },
		"Renamed": func(t *testing.T, id int64) {
			byHand(t, s, `UPDATE jobs SET limit_key = 'new ' || id WHERE id = ?`, id)
		},
		"WithoutAKey": func(t *testing.T, id int64) { byHand(t, s, `UPDATE jobs SET limit_key = NULL WHERE id = ?`, id) },
	}
	for begun, begin := range begins {
		for ended, end := range ends {
			t.Run(begun+ended, func(t *testing.T) {
				key := func(n *store.NewJob) { n.LimitKey = begun + ended }
				first, second, third := begin(t, key), addKeyed(t, s, key), addKeyed(t, s, key)
				if begun != "Ready" {
					require.Empty(t, claimed(t, s, 10))
				}
				end(t, first)
				checkOrder(t, s)
				got := claimed(t, s, 10)
				require.Contains(t, got, second)
				require.NotContains(t, got, third)
			})
		}
	}
	t.Run("AwaitedOneIsCancelled", func(t *testing.T) {
		t.Parallel()
		s, _ := newOrdered(t)
		root := addKeyed(t, s, func(n *store.NewJob) { n.Queue = "elsewhere" })
		addKeyed(t, s, func(n *store.NewJob) { n.After = []store.Wait{{ID: root}} })
		second := addKeyed(t, s, plain)
		require.Empty(t, claimed(t, s, 10))
		does(t, s.Cancel, root)
		claimOne(t, s, second)
	})
	t.Run("AwaitedOneWasCancelled", func(t *testing.T) { // so the first job ends when it is added
		t.Parallel()
		s, _ := newOrdered(t)
		root := addKeyed(t, s, func(n *store.NewJob) { n.Queue = "elsewhere" })
		does(t, s.Cancel, root)
		addKeyed(t, s, func(n *store.NewJob) { n.After = []store.Wait{{ID: root}} })
		claimOne(t, s, addKeyed(t, s, plain))
		checkOrder(t, s)
	})
	t.Run("Dead", func(t *testing.T) {
		t.Parallel()
		s, _ := newOrdered(t)
		ids := enqueueKeyed(t, s, "a", "a")
		nack(t, s, claimOne(t, s, ids[0]), store.NAck{Form: store.Never, Error: "no"})
		claimOne(t, s, ids[1])
	})
}

// A first job that has expired holds back the others until it is cancelled. Who waits for a job is told then.
func TestOrderedJobsFollowOneThatExpired(t *testing.T) {
	t.Parallel()
	s, sleep := newOrdered(t)
	addKeyed(t, s, func(n *store.NewJob) { n.RunAt, n.ExpiresAt = s.now.get().Add(time.Minute), s.now.get().Add(time.Hour) })
	second := addKeyed(t, s, plain)
	require.Empty(t, claimed(t, s, 10))
	sleep(time.Hour)
	require.Empty(t, claimed(t, s, 10))
	settled, err := s.Settle(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, settled, 1)
	require.Empty(t, s.limits.held.Take(), "it has told who waits for a job")
	checkOrder(t, s)
	ack(t, s, claimOne(t, s, second))
	assert.Empty(t, inOrder(t, s))
}

// A claim that leaves out jobs because of the order notes that, so that the end of a lease wakes those who wait for a job.
func TestClaimsNoteThatTheOrderHoldsBackJobs(t *testing.T) {
	t.Parallel()
	s, _ := newOrdered(t)
	ids := enqueueKeyed(t, s, "a", "a")
	first := claimOne(t, s, ids[0])
	require.Equal(t, []store.Wakeup{{Queue: "q"}}, s.limits.held.Take())
	require.Empty(t, claimed(t, s, 10))
	ack(t, s, first)
	assert.Empty(t, s.limits.held.Take(), "the Ack has told them")
}

// A job that was dead goes next once it is requeued, though others of its key have gone since. It waits for the one that is in flight.
func TestOrderedJobsThatAreRequeuedGoNext(t *testing.T) {
	t.Parallel()
	s, _ := newOrdered(t)
	ids := enqueueKeyed(t, s, "a", "a", "a", "a")
	nack(t, s, claimOne(t, s, ids[0]), store.NAck{Form: store.Never, Error: "no"})
	ack(t, s, claimOne(t, s, ids[1]))
	third := claimOne(t, s, ids[2])
	does(t, s.Requeue, ids[0])
	require.Empty(t, claimed(t, s, 10))
	ack(t, s, third)
	ack(t, s, claimOne(t, s, ids[0]))
	does(t, s.Requeue, ids[1], ids[0])
	ack(t, s, claimOne(t, s, ids[0]))
	ack(t, s, claimOne(t, s, ids[1]))
	ack(t, s, claimOne(t, s, ids[3]))
	assert.Empty(t, inOrder(t, s))
}

// What the file says counts for every process.
func TestOrderOfTwoProcesses(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := openAt(t, path, nil)
	other := openAt(t, path, nil)
	limitTo(t, other, store.Policy{Ordered: true})
	ids := enqueueKeyed(t, s, "a", "a", "a")
	first := claimOne(t, other, ids[0])
	require.Empty(t, claimed(t, s, 10))
	ack(t, s, first)
	second := claimOne(t, s, ids[1])
	require.Empty(t, claimed(t, other, 10))
	ack(t, other, second)
	does(t, other.Requeue, ids[0])
	claimOne(t, s, ids[0])
}

// A policy counts for jobs that are there already, in every state.
func TestOrderOfJobsFromBefore(t *testing.T) {
	t.Parallel()
	clk := newClock()
	s := openAt(t, newPath(t), &Options{Clock: clk})
	keyed := func(key string) func(*store.NewJob) { return func(n *store.NewJob) { n.LimitKey = key } }
	retrying, running := addKeyed(t, s, keyed("retrying")), []int64{addKeyed(t, s, keyed("running")), addKeyed(t, s, keyed("running"))}
	jobs := claimJobs(t, s, 3)
	require.Len(t, jobs, 3)
	nack(t, s, jobs[0], store.NAck{Form: store.After, Delay: time.Hour, Error: "not yet"})
	blocked := addKeyed(t, s, func(n *store.NewJob) { n.LimitKey, n.After = "blocked", []store.Wait{{ID: running[1]}} })
	ready := addKeyed(t, s, func(n *store.NewJob) { n.LimitKey, n.Priority = "ready", -1 })
	for _, key := range []string{"retrying", "running", "blocked", "ready"} {
		addKeyed(t, s, func(n *store.NewJob) { n.LimitKey, n.Kind = key, "second" })
	}
	ended := addKeyed(t, s, keyed("ended"))
	does(t, s.Cancel, ended)
	limitTo(t, s, store.Policy{Ordered: true})
	checkOrder(t, s)
	first := claimOne(t, s, ready)
	ack(t, s, jobs[1])
	require.Empty(t, claimed(t, s, 10), "another one of the key is in flight")
	does(t, s.Requeue, running[0])
	require.Empty(t, claimed(t, s, 10), "another one of the key is in flight")
	ack(t, s, jobs[2])
	next := claimJobs(t, s, 10)
	require.Len(t, next, 2)
	assert.Equal(t, []int64{running[0], blocked}, []int64{next[0].ID, next[1].ID})
	ack(t, s, append(next, first)...)
	for _, j := range claimJobs(t, s, 10) {
		assert.Equal(t, "second", j.Kind)
		assert.NotEqual(t, "retrying", j.LimitKey())
		ack(t, s, j)
	}
	clk.Add(time.Hour)
	ack(t, s, claimOne(t, s, retrying))
	ack(t, s, claimJobs(t, s, 10)...)
	assert.Empty(t, inOrder(t, s))
}

// Only a file with an ordered queue has the triggers, and only such a queue has rows.
func TestOrderIsLiftedAndSetAgain(t *testing.T) {
	t.Parallel()
	s := openAt(t, newPath(t), nil)
	triggers := func() int { return count(t, s, `SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'`) }
	limitTo(t, s, store.Policy{MaxPerKey: 1})
	ids := enqueueKeyed(t, s, "a", "a", "b", "b")
	require.Empty(t, inOrder(t, s))
	require.Equal(t, len(keyTriggers), triggers())

	limitTo(t, s, store.Policy{Ordered: true})
	require.Equal(t, ids, inOrder(t, s))
	require.Equal(t, len(keyTriggers)+len(orderedTriggers), triggers())
	_, err := s.SetPolicy(t.Context(), "other", store.Policy{Ordered: true})
	require.NoError(t, err)
	require.Equal(t, ids, inOrder(t, s))
	limitTo(t, s, store.Policy{Ordered: true, Fair: true})
	require.Equal(t, ids, inOrder(t, s))
	require.Zero(t, count(t, s, `SELECT count(*) FROM hints`))
	require.Equal(t, []int64{ids[0], ids[2]}, claimed(t, s, 10))

	limitTo(t, s, store.Policy{})
	require.Empty(t, inOrder(t, s))
	require.Equal(t, len(keyTriggers)+len(orderedTriggers), triggers(), "of the other queue")
	since := enqueueKeyed(t, s, "a", "")
	require.Empty(t, inOrder(t, s), "a queue that is not ordered")
	require.Equal(t, []int64{ids[1], ids[3], since[0], since[1]}, claimed(t, s, 10))
	_, err = s.SetPolicy(t.Context(), "other", store.Policy{Version: 1})
	require.NoError(t, err)
	require.Zero(t, triggers())

	more := enqueueKeyed(t, s, "a", "c", "c")
	limitTo(t, s, store.Policy{Ordered: true})
	checkOrder(t, s)
	assert.Equal(t, more[1:2], claimed(t, s, 10), "many of key a are in flight from before")
	limitTo(t, s, store.Policy{})
	assert.Empty(t, inOrder(t, s))
	assert.Zero(t, triggers())
}

// Somebody gives a job in flight to another key or queue, or makes another one the first.
func TestOrderedJobsChangedByHand(t *testing.T) {
	t.Parallel()
	s, _ := newOrdered(t)
	ids := enqueueKeyed(t, s, "a", "a", "b", "b")
	jobs := claimJobs(t, s, 10)
	require.Len(t, jobs, 2)
	byHand(t, s, `UPDATE jobs SET limit_key = 'c' WHERE id = ?`, ids[2])
	b := claimOne(t, s, ids[3])
	c := enqueueKeyed(t, s, "c", "c")
	require.Empty(t, claimed(t, s, 10), "one of key c is in flight")
	byHand(t, s, `UPDATE jobs SET limit_key = 'c' WHERE id = ?`, ids[1])
	ack(t, s, jobs[0], jobs[1])
	checkOrder(t, s)
	ack(t, s, b, claimOne(t, s, ids[1]))
	byHand(t, s, `UPDATE jobs SET id = 1000 WHERE id = ?`, c[0])
	ack(t, s, claimOne(t, s, c[1]))
	byHand(t, s, `UPDATE jobs SET state = 'cancelled', finished_at = 1 WHERE id = 1000`)
	checkOrder(t, s)
	require.Empty(t, claimed(t, s, 10))

	ids = enqueueKeyed(t, s, "a", "a")
	first := claimOne(t, s, ids[0])
	byHand(t, s, `UPDATE jobs SET queue = 'elsewhere' WHERE id = ?`, ids[0])
	second := claimOne(t, s, ids[1])
	byHand(t, s, `UPDATE jobs SET queue = 'q' WHERE id = ?`, ids[0])
	third := enqueueKeyed(t, s, "a")[0]
	require.Empty(t, claimed(t, s, 10))
	ack(t, s, second)
	require.Empty(t, claimed(t, s, 10))
	ack(t, s, first)
	ack(t, s, claimOne(t, s, third))
	assert.Empty(t, inOrder(t, s))
}

// Jobs in flight hold back those of their key whoever has put them there, also with a smaller id.
func TestOrderedJobsWaitForALaterOneInFlight(t *testing.T) {
	t.Parallel()
	s, sleep := newOrdered(t)
	early := addKeyed(t, s, func(n *store.NewJob) { n.RunAt = s.now.get().Add(time.Hour) })
	late := claimOne(t, s, enqueueKeyed(t, s, "b")[0])
	byHand(t, s, `UPDATE jobs SET limit_key = 'a' WHERE id = ?`, late.ID)
	sleep(time.Hour)
	require.Empty(t, claimed(t, s, 10), "the later one is in flight")
	byHand(t, s, `UPDATE jobs SET state = 'blocked', lease_expires_at = NULL WHERE id = ?`, late.ID)
	claimOne(t, s, early)
}

// A row that is wrong, which no trigger leaves, stops no key.
func TestWrongRowsDoNotStopAKey(t *testing.T) {
	t.Parallel()
	s, _ := newOrdered(t)
	ended := enqueueKeyed(t, s, "a", "b")
	ack(t, s, claimJobs(t, s, 10)...)
	ids := enqueueKeyed(t, s, "b", "a")
	for _, id := range []int64{-1, ended[0], ended[1], ids[0]} {
		byHand(t, s, `INSERT INTO ordered (queue, limit_key, job_id) VALUES ('q', 'a', ?)`, id)
	}
	assert.ElementsMatch(t, ids, claimed(t, s, 10))
}

// A claim that finds nothing writes nothing, whatever holds back the jobs.
func TestIdleClaimsOfAnOrderedQueueWriteNothing(t *testing.T) {
	t.Parallel()
	s, sleep := newOrdered(t)
	root := addKeyed(t, s, func(n *store.NewJob) { n.Queue = "elsewhere" })
	now := s.now.get()
	addKeyed(t, s, func(n *store.NewJob) { n.LimitKey, n.After = "blocked", []store.Wait{{ID: root}} })
	addKeyed(t, s, func(n *store.NewJob) { n.LimitKey, n.RunAt = "later", now.Add(24*time.Hour) })
	addKeyed(t, s, func(n *store.NewJob) {
		n.LimitKey, n.RunAt, n.ExpiresAt = "expired", now.Add(time.Minute), now.Add(time.Hour)
	})
	addKeyed(t, s, func(n *store.NewJob) { n.LimitKey = "running" })
	for _, key := range []string{"blocked", "later", "expired", "running"} {
		addKeyed(t, s, func(n *store.NewJob) { n.LimitKey = key })
	}
	require.Len(t, claimed(t, s, 10), 1)
	sleep(2 * time.Hour)
	require.Empty(t, claimed(t, s, 10), "the key of the expired job is looked at once more")
	err := s.writer.do(t.Context(), load{}, func(tx *txn) error {
		before, err := tx.number(`SELECT total_changes()`)
		require.NoError(t, err)
		jobs, _, err := tx.claim(claimOf(10), &s.limits)
		require.NoError(t, err)
		require.Empty(t, jobs)
		after, err := tx.number(`SELECT total_changes()`)
		assert.Equal(t, before, after, "changed rows")
		return err
	})
	require.NoError(t, err)
}

// Only those who add jobs are refused a priority. A schedule can not know the policy.
func TestPrioritiesInAnOrderedQueue(t *testing.T) {
	t.Parallel()
	s, _ := newOrdered(t)
	first := newJob()
	first.LimitKey, first.Priority = "a", 5
	others := []store.NewJob{newJob(), first}
	others[0].Priority = 3 // it has no key
	elsewhere := first
	elsewhere.Queue = "elsewhere"
	root := enqueue(t, s, 1)[0].ID
	waiting := first
	waiting.After = []store.Wait{{ID: root}}
	for _, jobs := range [][]store.NewJob{others, {others[0], waiting}} {
		_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: jobs})
		var refused *store.InvalidError
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, "priority", refused.Field)
		assert.Equal(t, 1, refused.Item)
	}
	_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{others[0], elsewhere}})
	require.NoError(t, err)
	require.Len(t, claimed(t, s, 10), 2)

	low := addKeyed(t, s, plain)
	sched, err := s.SetSchedule(t.Context(), store.Schedule{Name: "often", Cron: "@hourly", Job: first, NextAt: s.now.get()})
	require.NoError(t, err)
	fired, err := s.Fire(t.Context(), []store.Firing{{Name: "often", Revision: sched.Revision, For: s.now.get(), Next: s.now.get().Add(time.Hour)}})
	require.NoError(t, err)
	require.NotNil(t, fired[0].Job, fired[0].Reason)
	high := fired[0].Job.ID
	other := addKeyed(t, s, func(n *store.NewJob) { n.LimitKey = "b" })
	assert.Equal(t, []int64{low, other}, claimed(t, s, 10), "the priority counts between keys only")
	byHand(t, s, `UPDATE jobs SET state = 'succeeded', finished_at = 1, lease_expires_at = NULL WHERE id = ?`, low)
	another := addKeyed(t, s, func(n *store.NewJob) { n.LimitKey = "c" })
	assert.Equal(t, []int64{high, another}, claimed(t, s, 10))
}

// Whatever is done to jobs, a claim takes those that may go, and no others.
func TestClaimsKeepToTheOrder(t *testing.T) {
	t.Parallel()
	s, sleep := newOrdered(t)
	random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	var running []store.Job
	some := func() int64 {
		return 1 + random.Int64N(int64(max(1, count(t, s, `SELECT coalesce(max(id), 0) FROM jobs`))))
	}
	bulk := func(call func(context.Context, store.Filter, int) ([]store.Outcome, error)) func() {
		return func() {
			_, err := call(t.Context(), store.Filter{IDs: []int64{some()}}, 1)
			require.NoError(t, err)
		}
	}
	hand := func(query string) func() { return func() { byHand(t, s, query, some()) } }
	enqueue := func() {
		n := newJob()
		n.LimitKey = []string{"a", "b", "c", ""}[random.IntN(4)]
		switch random.IntN(6) {
		case 0:
			n.RunAt = s.now.get().Add(time.Duration(random.IntN(20)) * time.Minute)
		case 1:
			n.ExpiresAt = s.now.get().Add(time.Duration(1+random.IntN(20)) * time.Minute)
		case 2:
			if on := some(); count(t, s, fmt.Sprintf(`SELECT count(*) FROM jobs WHERE id = %d`, on)) > 0 {
				n.After = []store.Wait{{ID: on}}
			}
		}
		_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{n}})
		require.NoError(t, err)
	}
	finish := func() {
		if len(running) == 0 {
			return
		}
		at := random.IntN(len(running))
		j := running[at]
		running = slices.Delete(running, at, at+1)
		var err error
		switch form := []store.Form{"", store.Never, store.After, store.Snooze, store.Release}[random.IntN(5)]; form {
		case "":
			_, err = s.Ack(t.Context(), acksOf([]store.Job{j}))
		case store.After, store.Snooze:
			_, err = s.NAck(t.Context(), []store.NAck{{Lease: j.Lease(), Form: form, Delay: time.Duration(random.IntN(10)) * time.Minute, Error: "e"}})
		case store.Release:
			_, err = s.NAck(t.Context(), []store.NAck{{Lease: j.Lease(), Form: form}})
		default:
			_, err = s.NAck(t.Context(), []store.NAck{{Lease: j.Lease(), Form: form, Error: "e"}})
		}
		require.NoError(t, err)
	}
	reschedule := func() {
		_, err := s.Reschedule(t.Context(), store.Filter{IDs: []int64{some()}}, s.now.get().Add(time.Duration(random.IntN(10))*time.Minute), 1)
		require.NoError(t, err)
	}
	settle := func() {
		_, err := s.Settle(t.Context(), 5)
		require.NoError(t, err)
	}
	policies := []store.Policy{{Ordered: true}, {Ordered: true}, {Ordered: true, Fair: true}, {Ordered: true, MaxPerKey: 7}, {}}
	steps := []func(){
		enqueue, enqueue, enqueue, finish, finish, finish, reschedule, settle,
		bulk(s.Cancel), bulk(s.Requeue), bulk(s.Requeue), bulk(s.Delete),
		func() { sleep(time.Duration(random.IntN(5)) * time.Minute) },
		func() {
			_, err := s.RecoverExpiredLeases(t.Context(), store.RecoverRequest{Limit: 10})
			require.NoError(t, err)
		},
		hand(`UPDATE jobs SET limit_key = 'b' WHERE id = ?`),
		hand(`UPDATE jobs SET limit_key = NULL WHERE id = ? AND state <> 'in_flight'`),
		hand(`UPDATE jobs SET queue = iif(queue = 'q', 'r', 'q') WHERE id = ?`),
		hand(`DELETE FROM jobs WHERE id = ?`),
	}
	many := 600
	if race.Enabled {
		many = 100
	}
	for step := range many {
		if random.IntN(60) == 0 {
			limitTo(t, s, policies[random.IntN(len(policies))])
		}
		steps[random.IntN(len(steps))]()
		checkOrder(t, s)
		if random.IntN(3) > 0 {
			continue
		}
		var may []int64
		require.NoError(t, s.DB().Select(&may, `
			SELECT id
			FROM jobs
			WHERE queue = 'q' AND (state = 'ready' AND run_at <= ?1 OR state = 'failed' AND retry_at <= ?1) AND coalesce(expires_at > ?1, TRUE)
				AND NOT EXISTS (
					SELECT 1
					FROM jobs AS other
					JOIN policies ON name = other.queue AND ordered
					WHERE other.queue = jobs.queue AND other.limit_key = jobs.limit_key AND other.limit_key <> '' AND other.finished_at IS NULL
						AND (other.id < jobs.id OR other.state = 'in_flight'))
			ORDER BY id`,
			s.now.get().UnixMicro()))
		jobs := claimJobs(t, s, 1000)
		var got []int64
		for _, j := range jobs {
			got = append(got, j.ID)
		}
		slices.Sort(got)
		require.Equal(t, may, got, "step %d", step)
		running = append(running, jobs...)
	}
	limitTo(t, s, store.Policy{})
	assert.Empty(t, inOrder(t, s))
}

// However many jobs of its key wait behind a job, or have gone before it, a claim reads the few pages that lead to it.
func TestClaimAmongManyOfAKeyReadsFewPages(t *testing.T) {
	if race.Enabled {
		t.Skip("so many jobs take long under the race detector: go test without it runs this")
	}
	const many, gone = 100_000, 10_000
	s := openAt(t, newPath(t), &Options{Synchronous: Normal})
	byHand(t, s, `
		WITH RECURSIVE numbers(n) AS (
			SELECT 1
			UNION ALL
			SELECT n + 1 FROM numbers WHERE n < ?1
		)
		INSERT INTO jobs (state, queue, kind, priority, run_at, rules, unique_key, unique_for, enqueued_at, trace, payload, limit_key)
		SELECT 'ready', 'q', 'k', 0, ?1 - n, '3 1000000 60000000 0 0', '', 0, 0, '', '{}', 'a'
		FROM numbers`,
		many)
	limitTo(t, s, store.Policy{Ordered: true})
	require.Equal(t, many, count(t, s, `SELECT count(*) FROM ordered`))
	enqueueKeyed(t, s, "a")
	look := func(id int64) {
		t.Helper()
		visited := pages(t, s, func(tx *txn) error {
			jobs, _, err := tx.claim(claimOf(100), &s.limits)
			require.Len(t, jobs, 1)
			assert.Equal(t, id, jobs[0].ID)
			return err
		})
		assert.Less(t, visited, 100, "pages")
		figures.Print(t, "a claim in an ordered queue visits %d pages among %d jobs of a key", visited, many)
	}
	look(1)
	byHand(t, s, `UPDATE jobs SET state = 'succeeded', finished_at = 1 WHERE id <= ?`, gone)
	look(gone + 1)
}
