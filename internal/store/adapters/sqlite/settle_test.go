package sqlite

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// Most of those that wait for a job wait for another one too, and so its end changes few. No transaction of Settle tells all of them.
func TestSettleTellsFewAtOnce(t *testing.T) {
	s := openAt(t, newPath(t), nil)
	n := store.NewJob{Queue: "q", Kind: "k", Payload: []byte(`{}`)}
	added, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{n, n}})
	require.NoError(t, err)
	one, both := n, n
	one.After = []store.Wait{{ID: added[0].ID}}
	both.After = []store.Wait{{ID: added[0].ID}, {ID: added[1].ID}}
	const some = settledAtOnce - 1
	for _, jobs := range [][]store.NewJob{
		slices.Repeat([]store.NewJob{both}, store.SettledByCall), // whom the call tells
		slices.Repeat([]store.NewJob{one}, some), slices.Repeat([]store.NewJob{both}, store.MaxItems),
	} {
		_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: jobs})
		require.NoError(t, err)
	}
	jobs, err := s.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: "q", Limit: 1, Worker: "w", TTL: time.Minute})
	require.NoError(t, err)
	_, err = s.Ack(t.Context(), []store.Ack{{Lease: jobs[0].Lease()}})
	require.NoError(t, err)
	before := s.writer.commits.Load()
	settled, err := s.Settle(t.Context(), store.MaxItems)
	require.NoError(t, err)
	assert.Len(t, settled, some)
	least := int64(store.MaxItems / (2 * toldAtOnce))
	assert.GreaterOrEqual(t, s.writer.commits.Load()-before, least, "transactions")
	settled, err = s.Settle(t.Context(), store.MaxItems)
	require.NoError(t, err)
	assert.Empty(t, settled)
}

// A call settles as many jobs as it may, few in a transaction, so that others need not wait for all of them.
func TestCallSettlesInSmallTransactions(t *testing.T) {
	s := openAt(t, newPath(t), nil)
	root := enqueue(t, s, 1)[0].ID
	waiting := store.NewJob{Queue: "waiting", Kind: "k", Payload: []byte(`1`), After: []store.Wait{{ID: root}}}
	for _, n := range []int{store.SettledByCall, 5} {
		_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: slices.Repeat([]store.NewJob{waiting}, n)})
		require.NoError(t, err)
	}
	wakeups, err := s.Subscribe(t.Context(), []string{"elsewhere"})
	require.NoError(t, err)
	before := s.writer.commits.Load()
	_, err = s.Cancel(t.Context(), store.Filter{IDs: []int64{root}}, 1)
	require.NoError(t, err)
	assert.Equal(t, int64(store.SettledByCall+1), countIn(t, s, store.Cancelled), "with the job itself")
	assert.Equal(t, int64(5), countIn(t, s, store.Blocked))
	assert.Equal(t, int64(store.SettledByCall/settledAtOnce), s.writer.commits.Load()-before, "transactions")
	select {
	case w := <-wakeups:
		assert.Equal(t, store.Wakeup{Settle: true}, w)
	default:
		assert.Fail(t, "nobody is told that the rest is left to Settle")
	}
}

// A Requeue of a job that waits tells of all that has ended before, in small transactions too.
func TestRequeueTellsInSmallTransactions(t *testing.T) {
	s := openAt(t, newPath(t), nil)
	root := enqueue(t, s, 1)[0].ID
	waiting := store.NewJob{Queue: "waiting", Kind: "k", Payload: []byte(`1`), After: []store.Wait{{ID: root}}}
	const many = 3 * store.SettledByCall
	var last int64
	for range many / store.MaxItems {
		added, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: slices.Repeat([]store.NewJob{waiting}, store.MaxItems)})
		require.NoError(t, err)
		last = added[len(added)-1].ID
	}
	for _, id := range []int64{last, root} {
		_, err := s.Cancel(t.Context(), store.Filter{IDs: []int64{id}}, 1)
		require.NoError(t, err)
	}
	before := s.writer.commits.Load()
	outcomes, err := s.Requeue(t.Context(), store.Filter{IDs: []int64{last}}, 1)
	require.NoError(t, err)
	assert.Equal(t, store.Blocked, outcomes[0].State, "it waits for the job that was cancelled before")
	assert.Equal(t, int64(1+many-1), countIn(t, s, store.Cancelled), "with the job itself, and without the one that was requeued")
	assert.GreaterOrEqual(t, s.writer.commits.Load()-before, int64((many-store.SettledByCall)/toldAtOnce), "transactions")
}

// A transaction of Settle cancels expired jobs as long as its time lasts: claims walk over them until all are cancelled.
func TestSettleCancelsExpiredJobsForATime(t *testing.T) {
	const jobs = 10 * settledAtOnce
	for name, k := range map[string]struct {
		work         time.Duration
		transactions int64
	}{"MuchTime": {time.Hour, 1}, "NoTime": {0, jobs/settledAtOnce + 1}} {
		t.Run(name, func(t *testing.T) {
			clk := newClock()
			s := openAt(t, newPath(t), &Options{Clock: clk})
			s.pace.work = k.work
			passing, waiting := newJob(), newJob()
			passing.ExpiresAt, waiting.After = clk.Now().Add(time.Minute), []store.Wait{{Item: 0}}
			_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: append(slices.Repeat([]store.NewJob{passing}, jobs), waiting)})
			require.NoError(t, err)
			clk.Add(time.Hour)
			before := s.writer.commits.Load()
			settled, err := s.Settle(t.Context(), store.MaxItems)
			require.NoError(t, err)
			require.Len(t, settled, jobs+1)
			assert.Equal(t, int64(jobs+1), settled[jobs].ID, "then it tells those that wait")
			assert.Equal(t, k.transactions, s.writer.commits.Load()-before)
		})
	}
}
