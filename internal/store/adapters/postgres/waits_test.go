package postgres

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
)

// parent enqueues a job for others to wait for, which is dead after one failure, and claims it.
func parent(t *testing.T, s *Store) store.Lease {
	t.Helper()
	enqueueOne(t, s, store.NewJob{Queue: "first", Kind: "k", Payload: []byte(`1`)})
	jobs, err := s.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: "first", Limit: 1, Worker: "w", TTL: time.Minute})
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	return jobs[0].Lease()
}

// after is a job that waits for others.
func after(whatever bool, ids ...int64) store.NewJob {
	n := store.NewJob{Queue: "then", Kind: "k", Payload: []byte(`1`)}
	for _, id := range ids {
		n.After = append(n.After, store.Wait{ID: id, Any: whatever})
	}
	return n
}

func enqueueOne(t *testing.T, w store.Writer, n store.NewJob) int64 {
	t.Helper()
	added, err := w.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{n}})
	require.NoError(t, err)
	return added[0].ID
}

func callersTx(t *testing.T, s *Store) *sqlx.Tx {
	t.Helper()
	tx, err := s.DB().BeginTxx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// left is how many rows there are for Settle.
func left(t *testing.T, s *Store, table string) (n int) {
	t.Helper()
	require.NoError(t, s.callers.Get(&n, s.sql(`SELECT count(*) FROM {schema}.`+table)))
	return n
}

func in(t *testing.T, s *Store, phase store.State, what string, ids ...int64) {
	t.Helper()
	for _, id := range ids {
		d, err := s.Get(t.Context(), id)
		require.NoError(t, err)
		assert.Equal(t, phase, d.Phase(), "the job %s", what)
	}
}

func settle(t *testing.T, s *Store) {
	t.Helper()
	_, err := s.Settle(t.Context(), store.MaxItems)
	require.NoError(t, err)
}

// A caller has finished the job and has not committed yet when another begins to wait for it. Nobody waits for the caller.
func TestWaitsForAJobThatACallerFinishes(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	for _, commits := range []bool{true, false} {
		l := parent(t, s)
		tx := callersTx(t, s)
		ok(t)(s.InTx(tx).Ack(t.Context(), []store.Ack{{Lease: l}}))
		waits := enqueueOne(t, s, after(false, l.ID))
		require.Equal(t, 1, left(t, s, "looks"), "the job was locked")
		settle(t, s)
		in(t, s, store.Blocked, "while the caller's transaction is open", waits)
		require.Equal(t, 1, left(t, s, "looks"), "the job is still locked")

		other := parent(t, s)
		quick := enqueueOne(t, s, after(false, other.ID))
		ok(t)(s.Ack(t.Context(), []store.Ack{{Lease: other}}))
		in(t, s, store.Ready, "that waits for another one", quick)

		if commits {
			require.NoError(t, tx.Commit())
		} else {
			require.NoError(t, tx.Rollback())
			settle(t, s)
			in(t, s, store.Blocked, "after the caller has rolled back", waits)
			ok(t)(s.Ack(t.Context(), []store.Ack{{Lease: l}}))
			in(t, s, store.Ready, "after an Ack", waits)
		}
		settle(t, s)
		in(t, s, store.Ready, "after the other job has succeeded", waits)
		assert.Zero(t, left(t, s, "looks")+left(t, s, "ends"))
	}
}

// A job begins to wait in a caller's transaction. Before that commits, the other job ends, and is perhaps deleted.
func TestJobsEndBeforeACallerCommitsThatOthersWait(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	remove := func(l store.Lease) { ok(t)(s.Delete(t.Context(), store.Filter{IDs: []int64{l.ID}}, 1)) }
	cancel := func(l store.Lease) { ok(t)(s.Cancel(t.Context(), store.Filter{IDs: []int64{l.ID}}, 1)) }
	ack := func(l store.Lease) { ok(t)(s.Ack(t.Context(), []store.Ack{{Lease: l}})) }
	die := func(l store.Lease) {
		ok(t)(s.NAck(t.Context(), []store.NAck{{Lease: l, Form: store.Never, Error: "e"}}))
	}
	for what, k := range map[string]struct {
		ends []func(store.Lease)
		want store.State // of what needs its success
	}{
		"succeeded":             {[]func(store.Lease){ack}, store.Ready},
		"succeeded and deleted": {[]func(store.Lease){ack, remove}, store.Ready},
		"cancelled":             {[]func(store.Lease){cancel}, store.Cancelled},
		"cancelled and deleted": {[]func(store.Lease){cancel, remove}, store.Cancelled},
		"dead":                  {[]func(store.Lease){die}, store.Blocked},
		"dead and deleted":      {[]func(store.Lease){die, remove}, store.Cancelled},
	} {
		l := parent(t, s)
		tx := callersTx(t, s)
		needs, whatever := enqueueOne(t, s.InTx(tx), after(false, l.ID)), enqueueOne(t, s.InTx(tx), after(true, l.ID))
		for _, end := range k.ends {
			end(l)
		}
		require.NoError(t, tx.Commit())
		in(t, s, store.Blocked, "before anybody looks", needs, whatever)
		settle(t, s)
		in(t, s, k.want, "that needs one that was "+what, needs)
		in(t, s, store.Ready, "that waits for the end of one that was "+what, whatever)
	}
	assert.Equal(t, 2, left(t, s, "gone"))
	_, err := s.callers.ExecContext(t.Context(), s.sql(`UPDATE {schema}.gone SET deleted_at = deleted_at - interval '25 hours'`))
	require.NoError(t, err)
	settle(t, s)
	assert.Zero(t, left(t, s, "gone"), "deletions that are remembered for longer than a day")
}

// What waits is locked by somebody else when it is told. It is told later, and the others at once.
func TestJobsThatAreLockedAreToldLater(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	for _, gone := range []bool{false, true} {
		l := parent(t, s)
		locked, free := enqueueOne(t, s, after(false, l.ID)), enqueueOne(t, s, after(false, l.ID))
		tx := callersTx(t, s)
		_, err := tx.ExecContext(t.Context(), s.sql(`SELECT FROM {schema}.jobs WHERE id = $1 FOR UPDATE`), locked)
		require.NoError(t, err)
		ok(t)(s.Ack(t.Context(), []store.Ack{{Lease: l}}))
		in(t, s, store.Ready, "that nobody has locked", free)
		in(t, s, store.Blocked, "that is locked", locked)
		for range 2 {
			settle(t, s)
			require.Equal(t, 1, left(t, s, "ends"), "the end for the locked job alone")
		}
		if gone {
			_, err := tx.ExecContext(t.Context(), s.sql(`DELETE FROM {schema}.jobs WHERE id = $1`), locked)
			require.NoError(t, err)
		}
		require.NoError(t, tx.Commit())
		settle(t, s)
		require.Zero(t, left(t, s, "ends"))
		if !gone {
			in(t, s, store.Ready, "after it was locked", locked)
		}
	}
}

// After a commit of a caller, a store that listens does what follows, without a Settle.
func TestCommitsOfCallersAreFollowed(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	woken, err := s.Subscribe(ctx, []string{"then"})
	require.NoError(t, err)
	told := func(id int64, what string) { // the first wake-up may be that of the subscription
		t.Helper()
		for {
			select {
			case _, open := <-woken:
				require.True(t, open, what)
			case <-ctx.Done():
				require.Fail(t, "no wake-up within a minute", what)
			}
			if d, err := s.Get(t.Context(), id); err != nil || d.State == store.Ready {
				require.NoError(t, err)
				return
			}
		}
	}
	l := parent(t, s)
	waits := enqueueOne(t, s, after(false, l.ID))
	tx := callersTx(t, s)
	ok(t)(s.InTx(tx).Ack(t.Context(), []store.Ack{{Lease: l}}))
	require.NoError(t, tx.Commit())
	told(waits, "a caller has acked")

	l = parent(t, s)
	tx = callersTx(t, s)
	waits = enqueueOne(t, s.InTx(tx), after(false, l.ID))
	ok(t)(s.Ack(t.Context(), []store.Ack{{Lease: l}}))
	require.NoError(t, tx.Commit())
	told(waits, "a caller has enqueued")
}

// What waits for the end of a job, in whatever way, is not told anything while that goes on.
func TestLooksAtJobsThatGoOn(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	l := parent(t, s)
	tx := callersTx(t, s)
	waits := enqueueOne(t, s.InTx(tx), after(true, l.ID))
	require.NoError(t, tx.Commit())
	settle(t, s)
	require.Zero(t, left(t, s, "looks"))
	in(t, s, store.Blocked, "whose job is in flight", waits)
	ok(t)(s.NAck(t.Context(), []store.NAck{{Lease: l, Form: store.Never, Error: "e"}}))
	in(t, s, store.Ready, "whose job is dead", waits)
}

// Calls that settle wait for each other, and for those of other stores, on one connection in all. So other calls get one.
func TestSettlesWaitOnOneConnection(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{MaxConns: MinConns, Timeout: time.Minute, LockTimeout: time.Minute})
	l := parent(t, s)
	waits := enqueueOne(t, s, after(false, l.ID))
	lock := callersTx(t, s)
	_, err := lock.ExecContext(t.Context(), `SELECT pg_advisory_xact_lock(hashtextextended('jq follow ' || $1, 0))`, s.options.Schema)
	require.NoError(t, err)
	ok(t)(s.Ack(t.Context(), []store.Ack{{Lease: l}})) // and leaves the rest
	in(t, s, store.Blocked, "of which nobody could be told", waits)
	const calls = 6
	before := s.roundTrips.transactions.Load()
	var all sync.WaitGroup
	for range calls {
		all.Go(func() {
			_, err := s.Settle(t.Context(), store.MaxItems)
			assert.NoError(t, err)
		})
	}
	waiting := func() (n int) {
		require.NoError(t, s.callers.Get(&n, `
			SELECT count(*) FROM pg_locks
			WHERE locktype = 'advisory' AND NOT granted AND classid::bigint << 32 | objid::bigint = hashtextextended('jq follow ' || $1, 0)`, s.options.Schema))
		return n
	}
	require.Eventually(t, func() bool { return s.roundTrips.transactions.Load() > before+calls && waiting() > 0 }, 30*time.Second, time.Millisecond,
		"all calls have asked what there is to settle, and one waits for the lock")
	for range 20 {
		enqueueOne(t, s, after(false))
		assert.Equal(t, 1, waiting(), "calls that wait on a connection")
	}
	require.NoError(t, lock.Rollback())
	all.Wait()
	in(t, s, store.Ready, "that was told", waits)
}

// A step is cut at the end for a job that is still locked. That end stays.
func TestStepsEndAtALockedJob(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	many, one := parent(t, s), parent(t, s)
	_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: slices.Repeat([]store.NewJob{after(false, many.ID)}, mostTold-2)})
	require.NoError(t, err)
	waits := enqueueOne(t, s, after(false, one.ID))
	tx := callersTx(t, s)
	_, err = tx.ExecContext(t.Context(), s.sql(`SELECT FROM {schema}.jobs WHERE id = $1 FOR UPDATE`), waits)
	require.NoError(t, err)
	acks := callersTx(t, s)
	ok(t)(s.InTx(acks).Ack(t.Context(), []store.Ack{{Lease: many}}))
	ok(t)(s.Ack(t.Context(), []store.Ack{{Lease: one}}))
	require.NoError(t, acks.Commit())
	settle(t, s)
	require.EqualValues(t, mostTold-2, countIn(t, s, store.Ready))
	require.Equal(t, 1, left(t, s, "ends"), "the end for the locked job")
	require.NoError(t, tx.Commit())
	settle(t, s)
	in(t, s, store.Ready, "after it was locked", waits)
}

// The last jobs that a step may change are among many that it changes not. It does not tell them one by one.
func TestStepsTellManyAtATime(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	first, second := parent(t, s), parent(t, s)
	for _, n := range []store.NewJob{after(false, first.ID), after(false, first.ID, second.ID)} {
		_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: slices.Repeat([]store.NewJob{n}, store.SettledByCall-1)})
		require.NoError(t, err)
	}
	before := s.roundTrips.messages.Load()
	ok(t)(s.Ack(t.Context(), []store.Ack{{Lease: first}}))
	settle(t, s)
	assert.Less(t, s.roundTrips.messages.Load()-before, int64(300), "messages")
	assert.EqualValues(t, store.SettledByCall-1, countIn(t, s, store.Ready))
	assert.Zero(t, left(t, s, "ends"))
}

// Two ends of one job reach a job that was locked in their order.
func TestEndsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	l := parent(t, s)
	waits := enqueueOne(t, s, after(false, l.ID))
	tx := callersTx(t, s)
	_, err := tx.ExecContext(t.Context(), s.sql(`SELECT FROM {schema}.jobs WHERE id = $1 FOR UPDATE`), waits)
	require.NoError(t, err)
	id := store.Filter{IDs: []int64{l.ID}}
	ok(t)(s.Ack(t.Context(), []store.Ack{{Lease: l}}))
	ok(t)(s.Requeue(t.Context(), id, 1))
	ok(t)(s.Cancel(t.Context(), id, 1))
	require.Equal(t, 2, left(t, s, "ends"), "both ends for the locked job")
	require.NoError(t, tx.Commit())
	settle(t, s)
	in(t, s, store.Ready, "that was told of a success first", waits)
	assert.Zero(t, left(t, s, "ends"))
}

// An Ack of several jobs, of which others wait for one, locks them in the order in which a Cancel does.
func TestAcksAndCancelsOfAwaitedJobs(t *testing.T) {
	c := ownServer(t, pgtest.Options{})
	s, err := Open(t.Context(), c.DSN, nil)
	require.NoError(t, err)
	for range 200 {
		leases := []store.Lease{parent(t, s), parent(t, s)}
		enqueueOne(t, s, after(true, leases[0].ID))
		acks := make([]store.Ack, few+1)
		for i := range acks {
			acks[i].ID = 1<<40 + int64(i)
		}
		acks[0].Lease, acks[1].Lease = leases[0], leases[1]
		var both sync.WaitGroup
		both.Go(func() {
			_, err := s.Ack(t.Context(), acks)
			assert.NoError(t, err)
		})
		both.Go(func() {
			_, err := s.Cancel(t.Context(), store.Filter{IDs: []int64{leases[0].ID, leases[1].ID}}, 2)
			assert.NoError(t, err)
		})
		both.Wait()
	}
	require.NoError(t, s.Close()) // the end of a session writes what it has counted
	super, err := sqlx.ConnectContext(t.Context(), "postgres", c.DSN)
	require.NoError(t, err)
	defer func() { assert.NoError(t, super.Close()) }()
	require.Eventually(t, func() bool {
		var sessions int
		return super.Get(&sessions, `SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'`) == nil && sessions == 1
	}, time.Minute, time.Millisecond, "all sessions of the store have ended")
	var deadlocks int
	require.NoError(t, super.Get(&deadlocks, `SELECT sum(deadlocks) FROM pg_stat_database`))
	assert.Zero(t, deadlocks)
}

// A job that was put back by hand can be deleted once more.
func TestDeletesAJobTwice(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	l := parent(t, s)
	id := store.Filter{IDs: []int64{l.ID}}
	ok(t)(s.Cancel(t.Context(), id, 1))
	_, err := s.callers.ExecContext(t.Context(), s.sql(`CREATE TABLE {schema}.kept AS SELECT * FROM {schema}.jobs`))
	require.NoError(t, err)
	ok(t)(s.Delete(t.Context(), id, 1))
	_, err = s.callers.ExecContext(t.Context(), s.sql(`INSERT INTO {schema}.jobs SELECT * FROM {schema}.kept`))
	require.NoError(t, err)
	ok(t)(s.Delete(t.Context(), id, 1))
}
