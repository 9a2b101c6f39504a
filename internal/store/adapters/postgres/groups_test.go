package postgres

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// member is a job of the first queue in a group.
func member(group string) store.NewJob {
	return store.NewJob{Queue: "first", Kind: "k", Payload: []byte(`1`), Group: group}
}

// ofGroup is a job that waits for a group.
func ofGroup(group string) store.NewJob {
	return store.NewJob{Queue: "then", Kind: "k", Payload: []byte(`1`), After: []store.Wait{{Group: group}}}
}

// claimFirst claims jobs of the first queue.
func claimFirst(t *testing.T, s *Store, n int) []store.Ack {
	t.Helper()
	jobs, err := s.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: "first", Limit: n, Worker: "w", TTL: time.Minute})
	require.NoError(t, err)
	require.Len(t, jobs, n)
	acks := make([]store.Ack, n)
	for i, j := range jobs {
		acks[i].Lease = j.Lease()
	}
	return acks
}

// Calls that end jobs for which others wait need one connection at a time: what follows from them does not wait for one that another of
// them keeps.
func TestManyCallsWithWhatFollows(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{MaxConns: 4})
	var jobs []store.NewJob
	const n = 40
	for i := range n {
		jobs = append(jobs, member(fmt.Sprint(i)), ofGroup(fmt.Sprint(i)))
	}
	added, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: jobs})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for _, a := range claimFirst(t, s, n) {
		all.Go(func() {
			_, err := s.Ack(ctx, []store.Ack{a})
			assert.NoError(t, err)
		})
	}
	all.Wait()
	settle(t, s)
	for i := range n {
		in(t, s, store.Ready, "whose group is done", added[2*i+1].ID)
	}
	assert.Zero(t, left(t, s, "ends")+left(t, s, "looks"))
}

// The ends of jobs of a group that is not done are left to Settle, which takes all of them at once.
func TestEndsInAGroupAreTakenTogether(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	jobs := []store.NewJob{ofGroup("g")}
	for range 20 {
		jobs = append(jobs, member("g"))
	}
	added, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: jobs})
	require.NoError(t, err)
	settle(t, s)
	acks := claimFirst(t, s, 20)
	for _, a := range acks[:19] {
		_, err := s.Ack(t.Context(), []store.Ack{a})
		require.NoError(t, err)
	}
	assert.Equal(t, 19, left(t, s, "ends"))
	in(t, s, store.Blocked, "while one job lives", added[0].ID)
	settle(t, s)
	assert.Zero(t, left(t, s, "ends"))
	_, err = s.Ack(t.Context(), acks[19:])
	require.NoError(t, err)
	in(t, s, store.Ready, "after the last has ended", added[0].ID)
	assert.Zero(t, left(t, s, "ends"))
}

// A caller's transaction ends the last job of a group, another one begins to wait for it, and a third one locks a job that waits.
func TestGroupsInTransactionsOfCallers(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	added, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{member("g"), ofGroup("g"), ofGroup("g")}})
	require.NoError(t, err)
	acks := claimFirst(t, s, 1)
	ends, waits, locks := callersTx(t, s), callersTx(t, s), callersTx(t, s)
	late := enqueueOne(t, s.InTx(waits), ofGroup("g"))
	_, err = s.InTx(ends).Ack(t.Context(), acks)
	require.NoError(t, err)
	settle(t, s)
	in(t, s, store.Blocked, "before the commit", added[1].ID, added[2].ID)
	_, err = locks.Exec(s.sql(`SELECT FROM {schema}.jobs WHERE id = $1 FOR UPDATE`), added[1].ID)
	require.NoError(t, err)
	require.NoError(t, ends.Commit())
	settle(t, s)
	in(t, s, store.Blocked, "that is locked", added[1].ID)
	in(t, s, store.Ready, "after the commit", added[2].ID)
	require.NoError(t, waits.Commit())
	require.NoError(t, locks.Rollback())
	settle(t, s)
	in(t, s, store.Ready, "after all has ended", added[1].ID, late)
	assert.Zero(t, left(t, s, "ends")+left(t, s, "looks"))
}

// More jobs wait for a group than one step tells, and a limit ends a step.
func TestManyWaitForAGroup(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	const n = 2*mostTold + 500
	for part := n; part > 0; part -= store.MaxItems {
		jobs := make([]store.NewJob, min(part, store.MaxItems))
		for i := range jobs {
			jobs[i] = ofGroup("g")
		}
		_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: jobs, Open: []string{"g"}})
		require.NoError(t, err)
	}
	require.NoError(t, s.SealGroup(t.Context(), "g"))
	seen := map[int64]bool{}
	for more := true; more; {
		settled, err := s.Settle(t.Context(), 300)
		require.NoError(t, err)
		for _, one := range settled {
			assert.False(t, seen[one.ID], "job %d was settled before", one.ID)
			seen[one.ID] = true
		}
		more = len(settled) > 0
	}
	counts, err := s.Count(t.Context(), store.Filter{})
	require.NoError(t, err)
	assert.Equal(t, map[store.State]int64{store.Ready: n}, counts.Queues[0].Jobs)
	assert.GreaterOrEqual(t, len(seen), n-store.SettledByCall, "the call has settled the rest")
	assert.Zero(t, left(t, s, "ends")+left(t, s, "looks"))
}

// As many jobs as a step tells wait for a group that is done, and for something else too. What follows for others is not held up.
func TestManyWaitForMoreThanAGroup(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	blocker, other := enqueueOne(t, s, member("")), enqueueOne(t, s, member(""))
	jobs := make([]store.NewJob, mostTold)
	for i := range jobs {
		jobs[i] = ofGroup("g")
		jobs[i].After = append(jobs[i].After, store.Wait{ID: blocker})
	}
	_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: jobs, Open: []string{"g"}})
	require.NoError(t, err)
	last, child := enqueueOne(t, s, ofGroup("g")), enqueueOne(t, s, after(false, other))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, s.SealGroup(ctx, "g"))
	for more := true; more; {
		settled, err := s.Settle(ctx, store.MaxItems)
		require.NoError(t, err)
		more = len(settled) > 0
	}
	in(t, s, store.Ready, "behind those that wait for something else too", last)
	acks := claimFirst(t, s, 2)
	_, err = s.Ack(ctx, acks[1:])
	require.NoError(t, err)
	in(t, s, store.Ready, "that waits for another job", child)
	_, err = s.Cancel(ctx, store.Filter{IDs: []int64{child}}, 1)
	require.NoError(t, err)
	outcomes, err := s.Requeue(ctx, store.Filter{IDs: []int64{child}}, 1)
	require.NoError(t, err)
	assert.Equal(t, store.Ready, outcomes[0].State)
	assert.Zero(t, left(t, s, "ends")+left(t, s, "looks"))
}

// A caller's transaction spoils a group while others forget that it was spoiled before.
func TestSpoiledWhileItIsForgotten(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	gone, old := enqueueOne(t, s, member("")), enqueueOne(t, s, member("g"))
	_, err := s.Cancel(t.Context(), store.Filter{IDs: []int64{gone, old}}, 2)
	require.NoError(t, err)
	n := member("g")
	n.After = []store.Wait{{ID: gone}}
	tx := callersTx(t, s)
	enqueueOne(t, s.InTx(tx), n)
	_, err = s.Delete(t.Context(), store.Filter{IDs: []int64{old}}, 1)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	in(t, s, store.Cancelled, "that needs the group", enqueueOne(t, s, ofGroup("g")))

	for range 3 {
		enqueueOne(t, s, n)
	}
	settle(t, s)
	assert.Equal(t, 1, left(t, s, "spoils"), "rows of one group")
	_, err = s.Delete(t.Context(), store.Filter{States: []store.State{store.Cancelled}}, 10)
	require.NoError(t, err)
	assert.Zero(t, left(t, s, "spoils")+left(t, s, "ends"))
}

// A seal waits for a transaction that has opened the group, whether it was open before or not, and seals it afterwards.
func TestSealWaitsForWhoHasOpenedTheGroup(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{member("")}, Open: []string{"g"}})
	require.NoError(t, err)
	n := ofGroup("g")
	n.After[0].Any = true
	waits := enqueueOne(t, s, n)
	tx := callersTx(t, s)
	_, err = s.InTx(tx).Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{member("g")}, Open: []string{"g", "h"}})
	require.NoError(t, err)
	sealed := make(chan error, 1)
	go func() { sealed <- s.SealGroup(context.WithoutCancel(t.Context()), "g") }()
	require.Eventually(t, func() bool {
		var blocked bool
		err := s.callers.Get(&blocked, `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND pid IN (SELECT pid FROM pg_stat_activity WHERE query LIKE '%open_groups%'))`)
		return err == nil && blocked
	}, time.Minute, time.Millisecond, "the seal does not wait")
	in(t, s, store.Blocked, "before the commit", waits)
	require.NoError(t, tx.Commit())
	require.NoError(t, <-sealed)
	in(t, s, store.Blocked, "while a job of the group lives", waits)
	page, err := s.Groups(t.Context(), store.GroupFilter{}, store.Page{Limit: 10})
	require.NoError(t, err)
	require.Len(t, page.Groups, 2)
	assert.Equal(t, store.Group{Name: "g", GroupStatus: store.GroupStatus{Live: true}}, page.Groups[0])
	assert.True(t, page.Groups[1].Open)
}

// The change of a group is looked at on a session that is shared, too.
func TestGroupsOnASharedSession(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{Pooled: true})
	added, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{ofGroup("g"), member("g"), member("g")}})
	require.NoError(t, err)
	settle(t, s)
	acks := claimFirst(t, s, 2)
	_, err = s.Ack(t.Context(), acks[:1])
	require.NoError(t, err)
	assert.Equal(t, 1, left(t, s, "ends"), "nothing follows, so they are left to Settle")
	_, err = s.Ack(t.Context(), acks[1:])
	require.NoError(t, err)
	in(t, s, store.Ready, "after both have ended", added[0].ID)
}

// Who waits for a job or a group is found by an index of waits, however many jobs wait for others.
func TestWhoWaitsIsFoundByIndex(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	crowd{queue: "q", state: store.Blocked, due: longAgo}.add(t, s, 100_000)
	_, err := s.callers.ExecContext(t.Context(), s.sql(`
		INSERT INTO {schema}.waits (job_id, number, on_id, from_token, any_end, met, on_group)
		SELECT id, 0, 0, 0, false, false, 'group ' || id / 100 FROM {schema}.jobs
		UNION ALL
		SELECT id, 1, id / 100, 0, false, false, NULL FROM {schema}.jobs`))
	require.NoError(t, err)
	m := metered(t, s)
	for _, known := range []string{`SELECT`, `ANALYZE {schema}.jobs, {schema}.waits`} {
		_, err := s.callers.ExecContext(t.Context(), s.sql(known))
		require.NoError(t, err)
		for what, filter := range map[string]store.Filter{"a job": {WaitsFor: 500}, "a group": {WaitsForGroup: "group 500"}} {
			listed := m.of(func() error {
				page, err := s.List(t.Context(), filter, store.Page{Limit: 10})
				assert.Len(t, page.Jobs, 10, what)
				return err
			})
			t.Logf("%s, after %s: %v", what, known, listed)
			assert.Less(t, listed.rows, 500, "rows visited by a page of ten of the 100 that wait for %s, after %s", what, known)
		}
		told := m.of(func() error {
			n, err := write(t.Context(), s, nil, func(t *txn) (n int, err error) {
				n, _, err = t.tellGroup(&step{}, &endRow{group: "group 500"}, 100)
				return n, err
			})
			assert.Equal(t, 100, n)
			return err
		})
		t.Logf("told, after %s: %v", known, told)
		assert.Less(t, told.rows, 500, "rows visited in order to tell the 100 jobs that wait for a group, after %s", known)
	}
}

// A call needs the key of a job that has expired, and so cancels it. That spoils the group of the job for the items that follow only.
func TestExpiredHolderSpoilsItsGroupForLaterItems(t *testing.T) {
	t.Parallel()
	clk := clock.NewMock()
	clk.Set(time.Now())
	s := openStore(t, Options{Clock: clk})
	holder := member("g")
	holder.UniqueKey, holder.ExpiresAt = "z", clk.Now().Add(time.Second)
	enqueueOne(t, s, holder)
	clk.Add(time.Second)
	first, needs, again, later := ofGroup("g"), member(""), ofGroup("g"), ofGroup("g")
	first.UniqueKey, needs.UniqueKey, again.UniqueKey = "x", "z", "x"
	later.After[0].Any = true
	added, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{first, needs, again, ofGroup("g"), later}})
	require.NoError(t, err)
	assert.Equal(t, []store.Enqueued{
		{ID: added[0].ID, State: store.Blocked}, {ID: added[1].ID, State: store.Ready}, {ID: added[0].ID, State: store.Blocked, Duplicate: true},
		{ID: added[3].ID, State: store.Cancelled}, {ID: added[4].ID, State: store.Ready},
	}, added)
	settle(t, s)
	in(t, s, store.Cancelled, "of the group that is spoiled", added[0].ID)
	assertCounted(t, s)
}
