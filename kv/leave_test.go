package kv_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/kv"
)

// A call whose context ends has its answer at once, and the others theirs when the commit is known.
func TestCallersThatLeaveASharedCommit(t *testing.T) {
	// shared returns two calls that share a commit, held at the gate. The context of the first one ends by leave.
	shared := func(j *jam, at *gate) (one, other *result, leave, open func()) {
		before := j.busy()
		ctx, leave := context.WithCancel(j.t.Context())
		one, other = j.enqueue(ctx, plain), j.enqueue(j.t.Context(), plain)
		require.EqualValues(j.t, 2, j.commits.Load())
		open = at.stop()
		before()
		synctest.Wait()
		require.False(j.t, one.done.Load())
		return one, other, leave, open
	}
	t.Run("before its turn", func(t *testing.T) {
		inJam(t, func(t *testing.T, j *jam) {
			open := j.busy()
			ctx, leave := context.WithCancel(t.Context())
			one := j.enqueue(ctx, plain)
			leave()
			synctest.Wait()
			require.True(t, one.done.Load())
			assert.ErrorIs(t, one.err, contract.ErrUnavailable)
			assert.ErrorIs(t, one.err, context.Canceled)
			open()
			j.calls.Wait()
			assert.Equal(t, 0, j.added())
		})
	})
	t.Run("before it has decided", func(t *testing.T) {
		inJam(t, func(t *testing.T, j *jam) {
			one, other, leave, open := shared(j, &j.reads)
			leave()
			synctest.Wait()
			require.True(t, one.done.Load())
			assert.ErrorIs(t, one.err, contract.ErrUnavailable)
			require.False(t, other.done.Load())
			trips := j.trips.Load()
			open()
			j.calls.Wait()
			require.NoError(t, other.err)
			assert.Equal(t, trips, j.trips.Load(), "the other call has not begun again")
			assert.Equal(t, 1, j.added())
		})
	})
	t.Run("while it decides", func(t *testing.T) {
		inJam(t, func(t *testing.T, j *jam) {
			before := j.busy()
			ctx, leave := context.WithCancel(t.Context())
			var decides atomic.Bool
			ready := make(chan struct{})
			one := j.begin(func(r *result) {
				r.err = j.s.Share(ctx, "!", func() {
					decides.Store(true)
					<-ready
				})
			})
			other := j.enqueue(t.Context(), plain)
			before()
			synctest.Wait()
			require.True(t, decides.Load())
			leave()
			synctest.Wait()
			require.False(t, one.done.Load(), "its request is still read")
			close(ready)
			j.calls.Wait()
			assert.Zero(t, keysIn(t, j.db, "!"))
			assert.ErrorIs(t, one.err, contract.ErrUnavailable)
			assert.ErrorIs(t, one.err, context.Canceled)
			require.NoError(t, other.err)
			assert.Equal(t, 1, j.added())
		})
	})
	t.Run("during the commit", func(t *testing.T) {
		inJam(t, func(t *testing.T, j *jam) {
			one, other, leave, open := shared(j, &j.writes)
			require.EqualValues(t, 3, j.commits.Load())
			leave()
			synctest.Wait()
			require.True(t, one.done.Load())
			assert.ErrorIs(t, one.err, contract.ErrInDoubt)
			assert.ErrorIs(t, one.err, context.Canceled)
			require.False(t, other.done.Load())
			open()
			j.calls.Wait()
			require.NoError(t, other.err)
			assert.Equal(t, 2, j.added())
		})
	})
	t.Run("during a commit that conflicts", func(t *testing.T) {
		inJam(t, func(t *testing.T, j *jam) {
			one, other, leave, open := shared(j, &j.writes)
			j.conflicts = func(kv.Change) bool { return j.commits.Load() == 3 }
			leave()
			synctest.Wait()
			require.ErrorIs(t, one.err, contract.ErrInDoubt)
			open()
			j.calls.Wait()
			require.NoError(t, other.err)
			assert.Equal(t, 1, j.added(), "nobody waits for the job of the call that left")
		})
	})
	t.Run("all at once", func(t *testing.T) {
		for gateOf, want := range map[string]error{"reads": contract.ErrUnavailable, "writes": contract.ErrInDoubt} {
			inJam(t, func(t *testing.T, j *jam) {
				at := map[string]*gate{"reads": &j.reads, "writes": &j.writes}[gateOf]
				before := j.busy()
				ctx, leave := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer leave()
				all := []*result{j.enqueue(ctx, plain), j.enqueue(ctx, plain)}
				open := at.stop()
				before()
				<-ctx.Done()
				synctest.Wait()
				for _, r := range all {
					require.True(t, r.done.Load())
					assert.ErrorIs(t, r.err, want)
					assert.ErrorIs(t, r.err, context.DeadlineExceeded)
				}
				open()
				synctest.Wait()
				assert.Equal(t, 0, j.added(), "the commit has ended with the contexts")
			})
		}
	})
	t.Run("although it takes effect", func(t *testing.T) {
		inJam(t, func(t *testing.T, j *jam) {
			leases := j.claimed(4)
			for _, l := range leases {
				require.NoError(t, j.enqueue(t.Context(), inQueue("waiting", "", contract.Wait{ID: l.ID})).err)
			}
			heard, err := j.s.Subscribe(t.Context(), nil)
			require.NoError(t, err)
			before := j.writes.stop()
			j.ack(leases[0])
			j.ack(leases[1])
			ctx, leave := context.WithCancel(t.Context())
			for _, l := range leases[2:] {
				j.begin(func(*result) {
					_, err := j.s.Ack(ctx, []contract.Ack{{Lease: l.Lease()}})
					assert.ErrorIs(t, err, contract.ErrInDoubt)
				})
			}
			j.deaf.Store(true)
			open := j.writes.stop()
			before()
			synctest.Wait()
			leave()
			synctest.Wait()
			for len(heard) > 0 {
				<-heard
			}
			open()
			j.calls.Wait()
			synctest.Wait()
			detail, err := j.s.Get(t.Context(), leases[3].ID)
			require.NoError(t, err)
			require.Equal(t, contract.Succeeded, detail.State)
			var all []contract.Wakeup
			for len(heard) > 0 {
				all = append(all, <-heard)
			}
			assert.Contains(t, all, contract.Wakeup{Settle: true}, "somebody else has to tell who waits")
		})
	})
	t.Run("as the only one", func(t *testing.T) {
		for _, gateOf := range []func(*jam) *gate{func(j *jam) *gate { return &j.reads }, func(j *jam) *gate { return &j.writes }} {
			inJam(t, func(t *testing.T, j *jam) {
				open := gateOf(j).stop()
				defer open()
				ctx, leave := context.WithTimeout(t.Context(), time.Minute)
				defer leave()
				one := j.enqueue(ctx, plain)
				<-ctx.Done()
				synctest.Wait()
				require.True(t, one.done.Load())
				assert.ErrorIs(t, one.err, context.DeadlineExceeded)
			})
		}
	})
}

// A call that can not tell who waits leaves that to others that wait for the turn.
func TestNewsOfACallThatHasEndedAreToldByOthers(t *testing.T) {
	inJam(t, func(t *testing.T, j *jam) {
		leases := j.claimed(2)
		var waiting []int64
		for _, l := range leases {
			waiting = append(waiting, j.enqueue(t.Context(), inQueue("waiting", "", contract.Wait{ID: l.ID})).jobs[0].ID)
		}
		commits := j.writes.stop()
		ctx, leave := context.WithCancel(t.Context())
		j.begin(func(*result) {
			_, err := j.s.Ack(ctx, []contract.Ack{{Lease: leases[0].Lease()}})
			assert.NoError(t, err)
		})
		telling := j.writes.stop()
		commits()
		synctest.Wait()
		other := j.ack(leases[1])
		leave()
		telling()
		j.calls.Wait()
		require.NoError(t, other.err)
		for _, id := range waiting {
			detail, err := j.s.Get(t.Context(), id)
			require.NoError(t, err)
			assert.Equal(t, contract.Ready, detail.State)
		}
	})
}
