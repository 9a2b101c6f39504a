package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// orphan enqueues jobs and claims them for a worker that falls silent at this moment.
func (w *world) orphan(n int) []int64 {
	w.Helper()
	const nowhere = "a queue of the dead"
	ids := w.enqueue(n, "any", func(j *store.NewJob) { j.Queue = nowhere })
	_, err := w.store.FetchAndClaim(w.Context(), store.ClaimRequest{Queue: nowhere, Limit: n, Worker: "dead", TTL: DefaultLease})
	require.NoError(w, err)
	return ids
}

// expiring enqueues jobs that expire after a second, in a queue that no server works on.
func (w *world) expiring(n int) []int64 {
	w.Helper()
	return w.enqueue(n, "any", func(j *store.NewJob) {
		j.Queue, j.ExpiresAt = "a queue without workers", time.Now().Add(time.Second)
	})
}

// A server cancels jobs that have expired at its next recovery, all of them, however many there are.
func TestExpiredJobsAreCancelled(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.start(Options{Recovery: RecoveryOptions{Interval: 10 * time.Second}})
		w.wait(time.Minute)
		ids := slices.Concat(w.expiring(1000), w.expiring(10))
		w.wait(11 * time.Second)
		for _, id := range ids {
			j := w.job(id)
			assert.Equal(w, store.Cancelled, j.State)
			assert.Zero(w, j.Attempts)
		}
		told := 0
		for _, line := range w.said("jq: jobs cancelled that had expired") {
			told += int(line["count"].(int64))
		}
		assert.Equal(w, 1010, told)
		w.stop(s)
	})
}

// The server behind a remote store may be too old to cancel expired jobs. That is no reason to fill the log.
func TestAStoreThatCannotSettleIsAskedQuietly(t *testing.T) {
	inWorld(t, func(w *world) {
		g := w.gate()
		g.set(func() {
			g.before = func(_ context.Context, called string) error {
				if called == "settle" {
					return fmt.Errorf("%w: the server does not know this call", errors.ErrUnsupported)
				}
				return nil
			}
		})
		s := w.server(Options{}, g)
		require.NoError(w, s.Start(w.Context()))
		id := w.expiring(1)[0]
		w.wait(10 * time.Minute)
		assert.Zero(w, w.log.said("jq: the store refused a call"))
		require.NoError(w, s.Ready())
		g.back()
		w.wait(time.Minute)
		assert.Equal(w, store.Cancelled, w.job(id).State, "the server was replaced")
		w.stop(s)
	})
}

// recoveredAt returns when the first lease of the job was recovered, or zero.
func (w *world) recoveredAt(id int64) time.Time {
	w.Helper()
	first := w.job(id).History[0]
	if first.Ending != store.EndExpired {
		return time.Time{}
	}
	return first.EndedAt
}

// With the defaults, a job is recovered within 40 seconds of the last heartbeat of its worker, whenever that was: C5, R17. That holds
// whether the server that recovers is idle, is busy, or has all slots blocked: R19.
func TestJobsOfTheDeadAreRecoveredInTime(t *testing.T) {
	for load, handler := range map[string]Handler{
		"idle":    nil,
		"busy":    func(ctx context.Context, _ *Run) error { return travel(ctx, time.Second) },
		"blocked": func(ctx context.Context, _ *Run) error { return travel(ctx, 24*time.Hour) },
	} {
		t.Run(load, func(t *testing.T) {
			inWorld(t, func(w *world) {
				if handler != nil {
					w.handlers["load"] = handler
					for range 14 {
						w.enqueue(1000, "load")
					}
				}
				s := w.start(Options{Timeout: 48 * time.Hour})
				var longest time.Duration
				for n := range 30 {
					w.wait(time.Second + time.Duration(n)*time.Millisecond)
					died := time.Now()
					id := w.orphan(1)[0]
					w.wait(40 * time.Second)
					at := w.recoveredAt(id)
					require.False(w, at.IsZero(), "not recovered within 40 seconds")
					longest = max(longest, at.Sub(died))
					require.GreaterOrEqual(w, at.Sub(died), DefaultLease)
					if load != "idle" {
						require.Positive(w, s.Stats().Running)
					}
				}
				t.Logf("recovered %v after the death at the latest", longest)
				require.NoError(w, s.Stop(inAHurry()))
			})
		})
	}
}

// inAHurry returns a context that has ended: a stop with it waits for no handler.
func inAHurry() context.Context {
	ctx, end := context.WithCancel(context.Background())
	end()
	return ctx
}

// All expired leases are recovered before the first claim, batch by batch without a pause. The log has a line for each batch: R18, C1,
// R48.
func TestExpiredLeasesAreRecoveredBeforeTheFirstClaim(t *testing.T) {
	inWorld(t, func(w *world) {
		w.orphan(950)
		w.wait(time.Minute)
		h := w.hook()
		h.every(func(_ context.Context, method string) error {
			if method == "claim" {
				counts, err := w.store.Count(w.Context(), store.Filter{States: []store.State{store.InFlight}})
				assert.NoError(w, err)
				assert.Empty(w, counts.Queues, "nothing is in flight any more when the first claim is made")
			}
			return nil
		})
		began := time.Now()
		seen := &recoveries{}
		s := w.start(Options{Observer: seen}, h)
		assert.Equal(w, 10, h.count("recover"), "the last one is not full")
		assert.Positive(w, h.count("claim"))
		assert.Equal(w, began, time.Now(), "without a pause")
		assert.Equal(w, int64(950), seen.retried.Load())
		assert.Equal(w, 10, w.log.said("jq: expired leases recovered"))
		require.NoError(w, s.Ready())
		w.stop(s)
	})
}

// Recoveries counts the recovered leases that it is told of.
type recoveries struct {
	NopObserver
	retried, dead atomic.Int64
}

func (r *recoveries) Recovered(leases []store.Recovered) {
	for _, l := range leases {
		if l.Next.IsZero() {
			r.dead.Add(1)
		} else {
			r.retried.Add(1)
		}
	}
}

// The server makes no claim before the first recovery has succeeded, and is not ready until then.
func TestNothingIsClaimedBeforeTheFirstRecovery(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["job"] = func(context.Context, *Run) error { return nil }
		id := w.enqueue(1, "job")[0]
		h := w.hook()
		h.every(func(ctx context.Context, method string) error {
			if method == "recover" {
				return travel(ctx, 15*time.Second)
			}
			return nil
		})
		s := w.start(Options{}, h)
		w.wait(14 * time.Second)
		assert.Zero(w, h.count("claim"))
		require.ErrorContains(w, s.Ready(), "not recovered yet")
		w.wait(2 * time.Second)
		assert.Equal(w, store.Succeeded, w.job(id).State)
		require.NoError(w, s.Ready())
		w.stop(s)
	})
}

// The log has a line if something was recovered, with the number and what became of the jobs, and no line otherwise: R48.
func TestOnlyRecoveriesAreLogged(t *testing.T) {
	inWorld(t, func(w *world) {
		seen := &recoveries{}
		s := w.start(Options{Observer: seen})
		w.wait(time.Hour)
		assert.Empty(w, w.said("jq: expired leases recovered"))
		ids := w.orphan(3)
		w.orphanForGood(2)
		w.wait(time.Minute)
		lines := w.said("jq: expired leases recovered")
		require.Len(w, lines, 1)
		jobs, ok := lines[0]["jobs"].([]int64)
		require.True(w, ok, lines[0])
		assert.ElementsMatch(w, append(ids, ids[2]+1, ids[2]+2), jobs)
		delete(lines[0], "jobs")
		assert.Equal(w, map[string]any{"count": int64(5), "retried": int64(3), "dead": int64(2)}, lines[0])
		assert.Equal(w, []int64{3, 2}, []int64{seen.retried.Load(), seen.dead.Load()})
		w.wait(time.Hour)
		assert.Len(w, w.said("jq: expired leases recovered"), 1)

		w.orphan(7)
		w.wait(time.Minute)
		lines = w.said("jq: expired leases recovered")
		require.Len(w, lines, 2)
		assert.Equal(w, int64(7), lines[1]["count"])
		assert.Len(w, lines[1]["jobs"], 5, "the line does not grow with the number of jobs")
		w.stop(s)
	})
}

// orphanForGood is orphan for jobs without retries.
func (w *world) orphanForGood(n int) {
	w.Helper()
	const nowhere = "another queue of the dead"
	w.enqueue(n, "any", func(j *store.NewJob) { j.Queue, j.MaxRetries = nowhere, 0 })
	_, err := w.store.FetchAndClaim(w.Context(), store.ClaimRequest{Queue: nowhere, Limit: n, Worker: "dead", TTL: DefaultLease})
	require.NoError(w, err)
}

// Concurrent servers recover each lease once: C1, R16.
func TestServersShareRecovery(t *testing.T) {
	inWorld(t, func(w *world) {
		seen := &recoveries{}
		var servers []*Server
		for range 5 {
			servers = append(servers, w.start(Options{Observer: seen, Recovery: RecoveryOptions{Limit: 7}}))
		}
		ids := w.orphan(500)
		w.wait(40 * time.Second)
		for _, id := range ids {
			require.False(w, w.recoveredAt(id).IsZero())
			require.Equal(w, 1, w.job(id).Retries)
		}
		assert.Equal(w, int64(500), seen.retried.Load())
		for _, s := range servers {
			w.stop(s)
		}
	})
}

// A negative interval switches recovery off, with a warning. The server works all the same: C11, R52.
func TestRecoveryCanBeSwitchedOff(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["job"] = func(context.Context, *Run) error { return nil }
		orphan, job := w.orphan(1)[0], w.enqueue(1, "job")[0]
		w.wait(time.Minute)
		s := w.start(Options{Recovery: RecoveryOptions{Interval: -1}})
		w.wait(time.Hour)
		assert.Equal(w, store.InFlight, w.job(orphan).State)
		assert.Equal(w, store.Succeeded, w.job(job).State)
		assert.Equal(w, 1, w.log.said("jq: recovery is off: jobs of workers that died stay in flight until another server recovers them"))
		require.NoError(w, s.Ready())
		other := w.start(Options{})
		assert.False(w, w.recoveredAt(orphan).IsZero(), "by another server")
		w.stop(s)
		w.stop(other)
	})
}

// Grace delays the recovery of expired leases.
func TestGraceLeavesLeasesAlone(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.start(Options{Recovery: RecoveryOptions{Grace: time.Minute}})
		id, died := w.orphan(1)[0], time.Now()
		w.wait(2 * time.Minute)
		assert.WithinRange(w, w.recoveredAt(id), died.Add(90*time.Second), died.Add(100*time.Second))
		w.stop(s)
	})
}

// After a clock jump, recovery waits one heartbeat interval, and the log says so: C12.
func TestRecoveryWaitsAfterAClockHasJumped(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.start(Options{})
		id, died := w.orphan(1)[0], time.Now()
		w.wait(30*time.Second - time.Millisecond)
		now := time.Now()
		passed := now.Sub(s.health.began)
		require.True(w, s.health.jumped(now.Add(time.Hour), passed, now))
		require.True(w, s.health.jumped(now, passed, now), "and back again, so that the server itself sees none")
		w.wait(time.Minute)
		assert.WithinRange(w, w.recoveredAt(id), died.Add(40*time.Second-time.Millisecond), died.Add(50*time.Second))
		assert.Zero(w, w.log.said("jq: the clock jumped; recovery waits"))
		_ = s.health.jumped(time.Now().Add(time.Hour), time.Since(s.health.began), now)
		w.wait(time.Minute)
		assert.Equal(w, 1, w.log.said("jq: the clock jumped; recovery waits"), "back")
		w.stop(s)
	})
}

// A drift detects jumps of the wall clock in both directions, and neither passing time nor anything within the tolerance: C12.
func TestDriftSeesJumps(t *testing.T) {
	const beat = 10 * time.Second
	wall := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	d := clockDrift{wall: wall}
	for _, look := range []struct {
		after, slip time.Duration // since the look before; by how much more the wall clock moved
		jumped      bool
	}{
		{time.Second, 0, false},
		{time.Hour, 0, false},
		{time.Minute, beat, false},
		{time.Minute, -beat, false},
		{time.Minute, beat + 1, true},
		{time.Minute, 0, false},
		{time.Minute, -beat - 1, true},
		{0, time.Hour, true},
		{0, -time.Hour, true},
		{8 * time.Hour, 30 * time.Second, true}, // asleep: time that passes, but not for the monotonic clock
	} {
		wall = wall.Add(look.after + look.slip)
		assert.Equal(t, look.jumped, d.jumped(wall, d.passed+look.after, beat), "%+v", look)
	}
}

// spread returns at most its argument, and at least four fifths of it.
func TestSpreadIsNeverLater(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 4, 5, 6, time.Millisecond, time.Hour, store.MaxDuration} {
		least, most := d, time.Duration(0)
		for range 1000 {
			s := spread(d)
			least, most = min(least, s), max(most, s)
		}
		assert.LessOrEqual(t, most, d)
		assert.GreaterOrEqual(t, least, d-d/5)
		if d > 100 {
			assert.Less(t, least, d-d/10, "it differs")
		}
	}
}

// A server with an empty map of queues claims nothing, and maintains the store for others.
func TestServerWithoutQueuesRecoversForOthers(t *testing.T) {
	inWorld(t, func(w *world) {
		waiting := w.enqueue(1, "any")[0]
		dead := w.orphan(1)[0]
		s := w.start(Options{Queues: map[string]QueueOptions{}})
		w.wait(time.Minute)
		require.NoError(w, s.Ready())
		require.False(w, w.recoveredAt(dead).IsZero())
		require.Zero(w, w.job(waiting).Token, "nobody has claimed it")
		w.setPolicy(w.job(waiting).Queue, store.Policy{RetainCancelled: time.Hour})
		_, err := w.store.Cancel(w.Context(), store.Filter{IDs: []int64{waiting}}, 1)
		require.NoError(w, err)
		w.wait(6 * time.Hour)
		_, err = w.store.Get(w.Context(), waiting)
		require.ErrorIs(w, err, store.ErrNotFound, "what is finished is deleted in time")
		w.stop(s)
	})
}
