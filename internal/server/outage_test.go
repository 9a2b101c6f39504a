package server

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// A store that is unreachable for a minute under load loses nothing: every job ends, and no job of a live worker is recovered, although
// all leases have expired. Handlers are cancelled because their leases are unknown, the servers are not ready, and the log has one line
// for the beginning and one for the end. C1, C14.
func TestStoreIsAwayForAMinute(t *testing.T) {
	for name, leave := range absences {
		t.Run(name, func(t *testing.T) {
			for n := range 8 { // each time the outage ends at another moment of the retries
				inWorld(t, func(w *world) { outage(w, leave, time.Minute+time.Duration(n)*1617*time.Millisecond) })
			}
		})
	}
}

func outage(w *world, leave func(h *hook), lasts time.Duration) {
	var lapsed atomic.Int64
	w.handlers["job"] = func(ctx context.Context, r *Run) error {
		err := travel(ctx, time.Duration(1+r.ID%50)*time.Second)
		if errors.Is(context.Cause(ctx), ErrLeaseUnknown) {
			lapsed.Add(1)
			return ctx.Err()
		}
		return err
	}
	ids := w.enqueue(300, "job")
	seen := &recoveries{}
	var hooks []*hook
	var servers []*Server
	for _, name := range []string{"a", "b"} {
		h := w.hook()
		hooks, servers = append(hooks, h), append(servers, w.start(Options{Name: name, Observer: seen}, h))
	}
	w.wait(33*time.Second + 300*time.Millisecond)
	for _, h := range hooks {
		leave(h)
	}
	w.wait(45 * time.Second)
	for _, s := range servers {
		require.ErrorContains(w, s.Ready(), "the store does not answer")
	}
	require.Positive(w, lapsed.Load(), "leases have lapsed")
	w.wait(lasts - 45*time.Second)
	for _, h := range hooks {
		h.let()
	}
	w.wait(20 * time.Minute)
	for _, id := range ids {
		j := w.job(id)
		require.Equal(w, store.Succeeded, j.State, j.Error)
		require.Zero(w, j.Retries)
	}
	assert.Zero(w, seen.retried.Load()+seen.dead.Load(), "jobs of the living that were recovered")
	assert.Equal(w, []int{2, 2}, []int{w.log.said(wentAway), w.log.said(cameBack)}, "once for each server")
	for _, s := range servers {
		require.NoError(w, s.Ready())
		w.stop(s)
	}
}

// A claim that does not reach the store shows that it is away, before any other call does.
func TestAClaimNoticesAnOutage(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["job"] = work(0)
		g := w.gate()
		s := w.start(Options{}, g)
		g.set(func() {
			g.before = func(_ context.Context, called string) error {
				if called == "claim" {
					return store.ErrUnavailable
				}
				return nil
			}
		})
		w.enqueue(1, "job")
		w.wait(time.Millisecond)
		assert.Equal(w, 1, w.log.said(wentAway))
		require.ErrorContains(w, s.Ready(), "does not answer")
		g.back()
		w.wait(time.Minute)
		require.NoError(w, s.Ready())
		w.stop(s)
	})
}

// Even with a long PollInterval, queues are polled soon after an outage, because its wake-ups are lost.
func TestClaimsGoOnSoonAfterAnOutage(t *testing.T) {
	inWorld(t, func(w *world) {
		var b begun
		w.handlers["job"] = b.handler(0)
		h := w.hook()
		s := w.start(Options{Claim: ClaimOptions{PollInterval: 24 * time.Hour}}, h)
		h.refuse()
		first := w.enqueue(1, "job")[0] // so that a claim is tried, and fails
		w.wait(10 * time.Minute)
		second := w.enqueue(1, "job")[0]
		h.let()
		back := time.Now()
		w.wait(time.Minute)
		for _, id := range []int64{first, second} {
			assert.WithinRange(w, b.of(id), back, back.Add(time.Second))
		}
		w.stop(s)
	})
}

// After a failed call, recovery waits one heartbeat interval from the first success, so that live workers extend their leases first: C1.
func TestRecoveryWaitsABeatAfterAnOutage(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.hook()
		s := w.start(Options{Recovery: RecoveryOptions{Interval: time.Second}}, h)
		id := w.orphan(1)[0]
		w.wait(20 * time.Second)
		h.refuse()
		w.wait(20 * time.Second)
		require.True(w, w.recoveredAt(id).IsZero())
		h.let()
		back := time.Now()
		w.wait(time.Minute)
		assert.WithinRange(w, w.recoveredAt(id), back.Add(DefaultLease/3), back.Add(DefaultLease/3+2*time.Second))
		w.stop(s)
	})
}

// Within that interval, live workers do extend their leases, whatever happened to their heartbeats in the outage: a server that was back
// at once recovers none of their jobs. C1.
func TestTheLivingExtendBeforeRecoveryGoesOn(t *testing.T) {
	for n := range 48 { // the outage ends at each moment of their retries
		inWorld(t, func(w *world) {
			w.handlers["long"] = func(ctx context.Context, _ *Run) error { return travel(ctx, time.Hour) }
			seen := &recoveries{}
			a, b := w.hook(), w.hook()
			worker := w.start(Options{Name: "worker", Recovery: RecoveryOptions{Interval: -1}}, b)
			w.enqueue(10, "long")
			w.wait(time.Second)
			idle := map[string]QueueOptions{"none": {}}
			other := w.start(Options{Name: "other", Queues: idle, Recovery: RecoveryOptions{Interval: 100 * time.Millisecond}, Observer: seen}, a)
			a.refuse()
			b.swallow()
			w.wait(50*time.Second + time.Duration(n)*200*time.Millisecond)
			a.let()
			b.let()
			w.wait(50 * time.Second)
			assert.Zero(w, seen.retried.Load(), "jobs of the living that were recovered")
			w.stop(other)
			_ = worker.Stop(inAHurry())
		})
	}
}

// A server without queues may be the one through which workers reach the store. If it was away itself, it knows of no outage when it starts,
// and gives them time all the same.
func TestTheLivingExtendBeforeAKeeperThatStartsRecovers(t *testing.T) {
	for n := range 24 { // it starts at each moment of their retries
		inWorld(t, func(w *world) {
			w.handlers["long"] = func(ctx context.Context, _ *Run) error { return travel(ctx, time.Hour) }
			seen, h := &recoveries{}, w.hook()
			worker := w.start(Options{Name: "worker", Recovery: RecoveryOptions{Interval: -1}}, h)
			w.enqueue(10, "long")
			w.wait(time.Second)
			h.refuse()
			w.wait(50*time.Second + time.Duration(n)*200*time.Millisecond)
			h.let()
			id := w.orphan(1)[0]
			keeper := w.start(Options{Name: "keeper", Queues: map[string]QueueOptions{}, Observer: seen})
			w.wait(40 * time.Second)
			assert.EqualValues(w, 1, seen.retried.Load(), "jobs that were recovered: only that of the dead")
			assert.False(w, w.recoveredAt(id).IsZero())
			w.stop(keeper)
			_ = worker.Stop(inAHurry())
		})
	}
}

// A server with long leases beats seldom. After an outage it beats as soon as any of its calls shows that the store is back, because other
// servers, whose leases are shorter, recover soon.
func TestLongLeasesAreExtendedSoonAfterAnOutage(t *testing.T) {
	for n := range 20 {
		inWorld(t, func(w *world) {
			w.handlers["long"] = func(ctx context.Context, _ *Run) error { return travel(ctx, time.Hour) }
			seen, a, b := &recoveries{}, w.hook(), w.hook()
			worker := w.start(Options{Name: "worker", Lease: LeaseOptions{Duration: 10 * time.Minute}, Recovery: RecoveryOptions{Interval: -1}}, a)
			w.enqueue(5, "long")
			w.wait(time.Second)
			other := w.start(Options{Name: "other", Queues: map[string]QueueOptions{"none": {}}, Observer: seen}, b)
			a.refuse()
			b.refuse()
			w.wait(11*time.Minute + time.Duration(n)*3*time.Second)
			var beats atomic.Int64
			a.every(func(_ context.Context, method string) error {
				if method == "extend" && beats.Add(1) == 1 {
					return store.ErrUnavailable // as a server may answer while all come back
				}
				return nil
			})
			b.let()
			w.wait(time.Minute)
			assert.Zero(w, seen.retried.Load(), "jobs of the living that were recovered")
			assert.Greater(w, beats.Load(), int64(1))
			w.stop(other)
			_ = worker.Stop(inAHurry())
		})
	}
}

// An outage during that wait restarts the wait, because live workers have not extended their leases.
func TestSecondOutageBeginsTheWaitAnew(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.hook()
		s := w.start(Options{Recovery: RecoveryOptions{Interval: time.Second}}, h)
		id := w.orphan(1)[0]
		w.wait(20 * time.Second)
		var back time.Time
		for range 5 {
			h.refuse()
			w.wait(20 * time.Second)
			h.let()
			back = time.Now()
			w.wait(8 * time.Second)
			require.True(w, w.recoveredAt(id).IsZero())
		}
		w.wait(time.Minute)
		assert.WithinRange(w, w.recoveredAt(id), back.Add(DefaultLease/3), back.Add(DefaultLease/3+2*time.Second))
		w.stop(s)
	})
}

// A store that fails now and then, but not for long, does not delay recovery for ever: R19.
func TestRecoveryGoesOnWhileCallsFailNowAndThen(t *testing.T) {
	inWorld(t, func(w *world) {
		var calls atomic.Int64
		h := w.hook()
		h.every(func(_ context.Context, method string) error {
			if method == "claim" && calls.Add(1)%3 == 0 {
				return store.ErrUnavailable
			}
			return nil
		})
		s := w.start(Options{}, h)
		for range 20 {
			id, died := w.orphan(1)[0], time.Now()
			w.wait(time.Minute)
			require.WithinRange(w, w.recoveredAt(id), died.Add(DefaultLease), died.Add(DefaultLease+2*DefaultLease/3+time.Second))
		}
		w.stop(s)
	})
}

// A recovery that hangs in an outage does not arrive at its end, when leases of live workers have expired: it is given up before.
func TestRecoveryThatHangsDoesNotOutliveTheOutage(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["long"] = func(ctx context.Context, _ *Run) error { return travel(ctx, 24*time.Hour) }
		seen := &recoveries{}
		a, b := w.hook(), w.hook()
		first := w.start(Options{Observer: seen, Timeout: 48 * time.Hour}, a)
		second := w.start(Options{Observer: seen, Timeout: 48 * time.Hour, Recovery: RecoveryOptions{Interval: -1}}, b)
		w.enqueue(20, "long")
		for n := range 30 {
			w.wait(time.Minute + time.Duration(n)*337*time.Millisecond)
			until := time.Now().Add(29 * time.Second)
			stall := func(ctx context.Context, _ string) error { return travel(ctx, time.Until(until)) }
			a.every(stall)
			b.every(stall)
			w.wait(time.Until(until))
			a.let()
			b.let()
		}
		w.wait(time.Minute)
		assert.Zero(w, seen.retried.Load(), "jobs of the living that were recovered")
		require.NoError(w, errors.Join(first.Ready(), second.Ready()))
		_ = first.Stop(inAHurry())
		_ = second.Stop(inAHurry())
	})
}
