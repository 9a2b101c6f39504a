package kv_test

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/bubble"
	"github.com/seed-ed332417/jq/kv"
	"github.com/seed-ed332417/jq/kv/internal/memkv"
)

// A jam is a store whose reads and commits can be held, so that calls gather behind them. It is for a synctest bubble.
type jam struct {
	t             *testing.T
	db            *memkv.DB
	s             *kv.Store
	reads, writes gate
	trips         atomic.Int64 // of reads
	commits       atomic.Int64
	deaf          atomic.Bool // the engine does not look at contexts
	lost          atomic.Bool // what the engine answers to commits
	conflicts     func(kv.Change) bool
	calls         sync.WaitGroup
}

func inJam(t *testing.T, play func(t *testing.T, j *jam)) {
	bubble.Test(t, func(t *testing.T) {
		j := &jam{t: t, db: memkv.New(), conflicts: func(kv.Change) bool { return false }}
		e := &odd{Engine: j.db.Connect()}
		e.read = func(ctx context.Context, v kv.View, ask []kv.Range) ([][]kv.Item, error) {
			j.trips.Add(1)
			if err := j.reads.pass(ctx); err != nil {
				return nil, err
			}
			return v.Read(ctx, ask...)
		}
		e.commit = func(ctx context.Context, v kv.View, c kv.Change) error {
			j.commits.Add(1)
			if j.deaf.Load() {
				ctx = context.WithoutCancel(ctx)
			}
			if err := j.writes.pass(ctx); err != nil {
				return err
			}
			if j.conflicts(c) {
				return kv.ErrConflict
			}
			err := v.Commit(ctx, c)
			if j.lost.Load() {
				return errors.New("the answer is lost")
			}
			return err
		}
		j.s, _ = open(t, e)
		j.enqueue(t.Context(), plain) // the first job changes what concerns the whole store
		j.commits.Store(0)
		play(t, j)
		j.calls.Wait()
	})
}

// A gate is open until stop.
type gate struct{ now atomic.Pointer[chan struct{}] }

// stop holds those who come from now on, until the caller calls open.
func (g *gate) stop() (open func()) {
	closed := make(chan struct{})
	g.now.Store(&closed)
	return sync.OnceFunc(func() {
		g.now.CompareAndSwap(&closed, nil)
		close(closed)
	})
}

func (g *gate) pass(ctx context.Context) error {
	closed := g.now.Load()
	if closed == nil {
		return nil
	}
	select {
	case <-*closed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A result is that of a call. It is known when the call has returned.
type result struct {
	done atomic.Bool
	jobs []contract.Enqueued
	err  error
}

// begin begins a call, and returns when it and all others wait for something.
func (j *jam) begin(call func(r *result)) *result {
	r := &result{}
	j.calls.Go(func() {
		call(r)
		r.done.Store(true)
	})
	synctest.Wait()
	return r
}

func (j *jam) enqueue(ctx context.Context, jobs ...contract.NewJob) *result {
	return j.begin(func(r *result) { r.jobs, r.err = j.s.Enqueue(ctx, contract.EnqueueRequest{Jobs: jobs}) })
}

func (j *jam) ack(of contract.Job) *result {
	return j.begin(func(r *result) {
		outcomes, err := j.s.Ack(j.t.Context(), []contract.Ack{{Lease: of.Lease()}})
		if r.err = err; err == nil {
			assert.Equal(j.t, contract.StatusOK, outcomes[0].Status)
		}
	})
}

// claimed returns jobs in flight.
func (j *jam) claimed(n int) []contract.Job {
	j.t.Helper()
	require.NoError(j.t, j.enqueue(j.t.Context(), slices.Repeat([]contract.NewJob{plain}, n)...).err)
	list, err := j.s.FetchAndClaim(j.t.Context(), claimOf("q", n))
	require.NoError(j.t, err)
	require.Len(j.t, list, n)
	j.commits.Store(0)
	return list
}

// busy begins two calls, which have commits of their own and hold them until open.
func (j *jam) busy() (open func()) {
	j.t.Helper()
	j.commits.Store(0)
	open = j.writes.stop()
	j.enqueue(j.t.Context(), plain)
	j.enqueue(j.t.Context(), plain)
	require.EqualValues(j.t, 2, j.commits.Load())
	return open
}

// added returns how many jobs there are besides the first one and those of busy.
func (j *jam) added() int {
	counts, err := j.s.Count(j.t.Context(), contract.Filter{})
	require.NoError(j.t, err)
	total := 0
	for _, q := range counts.Queues {
		for _, n := range q.Jobs {
			total += int(n)
		}
	}
	return total - 3
}

// Calls that come while two commits are under way share the next one, and each has an answer of its own.
func TestCallsAtOnceShareACommit(t *testing.T) {
	const calls = 20
	inJam(t, func(t *testing.T, j *jam) {
		open := j.busy()
		var all []*result
		for range calls {
			all = append(all, j.enqueue(t.Context(), plain))
		}
		require.EqualValues(t, 2, j.commits.Load())
		open()
		j.calls.Wait()
		require.EqualValues(t, 3, j.commits.Load())
		ids := map[int64]bool{}
		for _, r := range all {
			require.NoError(t, r.err)
			ids[r.jobs[0].ID] = true
		}
		assert.Len(t, ids, calls)
		assert.Equal(t, calls, j.added())
	})
	inJam(t, func(t *testing.T, j *jam) {
		leases := j.claimed(2 + calls)
		open := j.writes.stop()
		for _, l := range leases {
			j.ack(l)
		}
		require.EqualValues(t, 2, j.commits.Load())
		j.trips.Store(0)
		open()
		j.calls.Wait()
		assert.EqualValues(t, 3, j.commits.Load())
		assert.EqualValues(t, 1, j.trips.Load(), "for all rows")
	})
}

// The calls of a shared commit decide one after the other, like calls with commits of their own.
func TestCallsOfASharedCommitSeeEachOther(t *testing.T) {
	inJam(t, func(t *testing.T, j *jam) {
		open := j.busy()
		request := func(key string, job contract.NewJob) *result {
			return j.begin(func(r *result) {
				r.jobs, r.err = j.s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: []contract.NewJob{job}, RequestKey: key})
			})
		}
		unique := plain
		unique.UniqueKey = "u"
		once, again := request("r", plain), request("r", plain)
		first, second := request("", unique), request("", unique)
		open()
		j.calls.Wait()
		require.EqualValues(t, 3, j.commits.Load())
		assert.Equal(t, once.jobs, again.jobs)
		assert.Equal(t, first.jobs[0].ID, second.jobs[0].ID)
		assert.True(t, second.jobs[0].Duplicate)
		assert.Equal(t, 2, j.added())
	})
	inJam(t, func(t *testing.T, j *jam) {
		leases := j.claimed(3)
		open := j.writes.stop()
		j.ack(leases[0])
		j.ack(leases[1])
		l := leases[2].Lease()
		statuses := make([]contract.Status, 3)
		finish := func(at int, call func() ([]contract.Outcome, error)) {
			j.begin(func(*result) {
				got, err := call()
				if assert.NoError(t, err) {
					statuses[at] = got[0].Status
				}
			})
		}
		fail := func() ([]contract.Outcome, error) {
			return j.s.NAck(t.Context(), []contract.NAck{{Lease: l, Form: contract.Fail}})
		}
		finish(0, func() ([]contract.Outcome, error) {
			return j.s.Ack(t.Context(), []contract.Ack{{Lease: l, Result: []byte("1")}})
		})
		finish(1, fail)
		finish(2, fail)
		open()
		j.calls.Wait()
		require.EqualValues(t, 3, j.commits.Load())
		assert.Equal(t, []contract.Status{contract.StatusOK, contract.StatusStale, contract.StatusStale}, statuses)
		detail, err := j.s.Get(t.Context(), l.ID)
		require.NoError(t, err)
		assert.Equal(t, contract.Succeeded, detail.State)
	})
}

// A call with many jobs, or with waits, waits for no other one, and calls with long documents share a commit with fewer.
func TestSharedCommitsStaySmall(t *testing.T) {
	inJam(t, func(t *testing.T, j *jam) {
		j.enqueue(t.Context(), inQueue("q", "g")) // the first group changes what concerns the whole store
		open := j.busy()
		long := plain
		long.Payload = []byte(`"` + strings.Repeat("a", 12<<10) + `"`)
		for range 30 {
			j.enqueue(t.Context(), long)
		}
		require.EqualValues(t, 2, j.commits.Load())
		j.enqueue(t.Context(), slices.Repeat([]contract.NewJob{plain}, 100)...)
		require.EqualValues(t, 3, j.commits.Load(), "the call with many jobs has a commit of its own at once")
		j.enqueue(t.Context(), inQueue("q", "g"))
		require.EqualValues(t, 4, j.commits.Load(), "that of a group likewise")
		open()
		j.calls.Wait()
		assert.EqualValues(t, 4+4, j.commits.Load(), "of nine calls each")
		assert.Equal(t, 132, j.added())
	})
}

// A call that is refused, or meets damage, fails by itself.
func TestASharedCommitFailsForOne(t *testing.T) {
	inJam(t, func(t *testing.T, j *jam) {
		open := j.busy()
		request := func(priority int) *result {
			one := plain
			one.Priority = priority
			return j.begin(func(r *result) {
				r.jobs, r.err = j.s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: []contract.NewJob{one}, RequestKey: "r"})
			})
		}
		good := []*result{j.enqueue(t.Context(), plain), request(1)}
		bad := request(2)
		good = append(good, j.enqueue(t.Context(), plain))
		open()
		j.calls.Wait()
		for _, r := range good {
			if errors.Is(r.err, contract.ErrInvalid) {
				bad, r = r, bad // the calls that were made by themselves have come in another order
			}
			require.NoError(t, r.err)
		}
		require.ErrorIs(t, bad.err, contract.ErrInvalid)
		assert.Equal(t, 3, j.added())
	})
	inJam(t, func(t *testing.T, j *jam) {
		leases := j.claimed(6)
		commit(t, j.db, kv.Change{Puts: []kv.Item{{Key: binary.BigEndian.AppendUint64([]byte("j"), uint64(leases[4].ID)), Value: []byte("{")}}})
		open := j.writes.stop()
		var all []*result
		for _, l := range leases {
			all = append(all, j.ack(l))
		}
		open()
		j.calls.Wait()
		for i, r := range all {
			assert.Equal(t, i == 4, errors.Is(r.err, contract.ErrUnavailable), "%d: %v", i, r.err)
		}
	})
}

// A shared commit whose answer is lost is in doubt for all, and is not made again.
func TestASharedCommitInDoubtIsNotMadeAgain(t *testing.T) {
	inJam(t, func(t *testing.T, j *jam) {
		open := j.busy()
		all := []*result{j.enqueue(t.Context(), plain), j.enqueue(t.Context(), plain)}
		j.lost.Store(true)
		shared := j.writes.stop()
		open()
		synctest.Wait()
		require.EqualValues(t, 3, j.commits.Load())
		shared()
		j.calls.Wait()
		for _, r := range all {
			assert.ErrorIs(t, r.err, contract.ErrInDoubt)
		}
		assert.Equal(t, 2, j.added())
		assert.EqualValues(t, 3, j.commits.Load())
	})
}

// Calls that share a commit do not wait for long for what one of them needs.
func TestCallsThatCanNotDecideTogetherGoAlone(t *testing.T) {
	inJam(t, func(t *testing.T, j *jam) {
		open := j.busy()
		all := []*result{j.enqueue(t.Context(), plain), j.enqueue(t.Context(), plain)}
		stuck := j.reads.stop()
		defer stuck()
		open()
		synctest.Wait()
		j.reads.stop()()
		<-time.After(time.Second)
		synctest.Wait()
		require.False(t, all[0].done.Load())
		<-time.After(2 * time.Second)
		synctest.Wait()
		for _, r := range all {
			require.True(t, r.done.Load())
			require.NoError(t, r.err)
		}
		assert.Equal(t, 2, j.added())
	})
}

// Close waits for calls that wait for a commit, or share one.
func TestCloseWaitsForSharedCommits(t *testing.T) {
	inJam(t, func(t *testing.T, j *jam) {
		before := j.busy()
		shared := []*result{j.enqueue(t.Context(), plain), j.enqueue(t.Context(), plain)}
		open := j.writes.stop()
		before()
		synctest.Wait()
		require.EqualValues(t, 3, j.commits.Load())
		other, waiting := j.enqueue(t.Context(), plain), j.enqueue(t.Context(), plain)
		closed := j.begin(func(r *result) { r.err = j.s.Close() })
		require.False(t, closed.done.Load())
		open()
		j.calls.Wait()
		for _, r := range append(shared, other, waiting, closed) {
			require.NoError(t, r.err)
		}
		require.ErrorIs(t, j.enqueue(t.Context(), plain).err, contract.ErrClosed)
	})
}

// Calls whose shared commit conflicts are made by themselves, so that one which conflicts again and again does not hold up the others.
func TestCallsOfASharedCommitThatConflictsGoAlone(t *testing.T) {
	inJam(t, func(t *testing.T, j *jam) {
		open := j.busy()
		for range 8 {
			j.enqueue(t.Context(), plain)
		}
		j.conflicts = func(c kv.Change) bool {
			rows := slices.DeleteFunc(c.Puts, func(p kv.Item) bool { return p.Key[0] != 'j' })
			return len(rows) > 1
		}
		open()
		j.calls.Wait()
		assert.Equal(t, 8, j.added())
		assert.EqualValues(t, 2+1+8, j.commits.Load())
	})
}

// Calls wait for commits under way, but not for long.
func TestCallsDoNotWaitForSlowCommits(t *testing.T) {
	for _, joint := range []bool{false, true} {
		inJam(t, func(t *testing.T, j *jam) {
			slow, commits := j.busy(), 2
			if joint {
				j.enqueue(t.Context(), plain)
				j.enqueue(t.Context(), plain)
				now := j.writes.stop()
				slow()
				synctest.Wait()
				slow, commits = now, 3
				j.enqueue(t.Context(), plain)
				commits++
			}
			waiting := []*result{j.enqueue(t.Context(), plain), j.enqueue(t.Context(), plain)}
			j.writes.stop()()
			require.EqualValues(t, commits, j.commits.Load())
			<-time.After(time.Second)
			synctest.Wait()
			require.EqualValues(t, commits+1, j.commits.Load())
			for _, r := range append(waiting, j.enqueue(t.Context(), plain)) {
				require.True(t, r.done.Load())
				require.NoError(t, r.err)
			}
			open := j.writes.stop()
			for range 4 {
				j.enqueue(t.Context(), plain)
			}
			require.EqualValues(t, commits+4, j.commits.Load())
			slow()
			synctest.Wait()
			require.EqualValues(t, commits+4, j.commits.Load(), "the slow ones have given their slots back before")
			open()
			j.calls.Wait()
			require.EqualValues(t, commits+5, j.commits.Load())
		})
	}
}

// No call that has ended a job returns before those who wait for the job are told.
func TestSharedCommitsTellBeforeTheyAnswer(t *testing.T) {
	inJam(t, func(t *testing.T, j *jam) {
		leases := j.claimed(4)
		var waiting []int64
		for _, l := range leases {
			added := j.enqueue(t.Context(), inQueue("waiting", "", contract.Wait{ID: l.ID}))
			require.NoError(t, added.err)
			waiting = append(waiting, added.jobs[0].ID)
		}
		j.commits.Store(0)
		alone := j.writes.stop()
		var all []*result
		for _, l := range leases {
			all = append(all, j.ack(l))
		}
		require.EqualValues(t, 2, j.commits.Load())
		shared := j.writes.stop()
		alone()
		synctest.Wait()
		telling := j.writes.stop()
		shared()
		synctest.Wait()
		require.EqualValues(t, 5, j.commits.Load(), "two calls, what they tell, two calls together, and what those tell")
		require.False(t, all[2].done.Load())
		require.False(t, all[3].done.Load())
		telling()
		j.calls.Wait()
		for i, r := range all {
			require.NoError(t, r.err)
			detail, err := j.s.Get(t.Context(), waiting[i])
			require.NoError(t, err)
			assert.Equal(t, contract.Ready, detail.State)
		}
	})
}
