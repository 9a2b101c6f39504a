package server

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// A handler that runs for ten minutes, twenty times its lease, runs once: R32.
func TestBeatsHoldALongJob(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["long"] = work(10 * time.Minute)
		id := w.enqueue(1, "long")[0]
		s, other := w.start(Options{}), w.start(Options{})
		w.wait(10*time.Minute + time.Second)
		j := w.job(id)
		assert.Equal(w, store.Succeeded, j.State)
		assert.Len(w, j.History, 1)
		w.stop(s)
		w.stop(other)
	})
}

// When the heartbeats of a job stop, it is recovered once, even if two servers could recover it: R32.
func TestJobWithoutBeatsIsRecoveredOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		g := w.gate()
		w.handlers["long"] = work(10 * time.Minute)
		id := w.enqueue(1, "long")[0]
		dead := w.start(Options{}, g)
		first, second := w.start(Options{}), w.start(Options{})
		w.wait(2 * time.Minute)
		g.away()
		w.wait(12 * time.Minute)
		j := w.job(id)
		assert.Equal(w, store.Succeeded, j.State)
		require.Len(w, j.History, 2)
		assert.Equal(w, store.EndExpired, j.History[0].Ending)
		assert.Equal(w, 1, j.Retries)
		assert.Equal(w, dead.Name(), j.History[0].Worker)
		g.back()
		w.stop(dead)
		w.stop(first)
		w.stop(second)
	})
}

// Jobs that wait in the buffer for longer than their lease keep it: each runs once, even beside a server that recovers expired leases.
// R33.
func TestBufferedJobsAreKeptAlive(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["minute"] = work(time.Minute)
		ids := w.enqueue(40, "minute")
		s := w.start(Options{Slots: 4, Claim: ClaimOptions{Buffer: 36}})
		other := w.start(Options{Queues: map[string]QueueOptions{"another": {}}})
		assert.Equal(w, Stats{Slots: 4, Running: 4, Buffered: 36}, s.Stats())
		w.wait(11 * time.Minute)
		for _, id := range ids {
			j := w.job(id)
			require.Equal(w, store.Succeeded, j.State)
			require.Len(w, j.History, 1)
		}
		w.stop(s)
		w.stop(other)
	})
}

// A buffered job whose lease may have expired does not start until the store has confirmed the lease: R33.
func TestNoJobStartsPastItsLeaseWithoutAnExtend(t *testing.T) {
	inWorld(t, func(w *world) {
		g := w.gate()
		var started []time.Duration
		w.handlers["deaf"] = func(ctx context.Context, r *Run) error {
			started = append(started, w.since())
			return deaf(39*time.Second)(ctx, r)
		}
		w.enqueue(6, "deaf")
		s := w.start(Options{Slots: 1, Claim: ClaimOptions{Buffer: 5}, Recovery: RecoveryOptions{Interval: -1}}, g)
		began := w.since()
		g.hang("extend")
		w.wait(100 * time.Second)
		require.Equal(w, []time.Duration{began}, started)
		assert.Equal(w, Stats{Slots: 1, Buffered: 5}, s.Stats())
		g.back()
		w.wait(5 * time.Minute)
		require.Len(w, started, 6)
		assert.Greater(w, started[1], began+100*time.Second)
		w.stop(s)
	})
}

// A buffered job whose lease was lost is forgotten, and another job gets its slot: R33, C14.
func TestLostJobInTheBufferNeverStarts(t *testing.T) {
	inWorld(t, func(w *world) {
		var ran []int64
		w.handlers["note"] = func(ctx context.Context, r *Run) error {
			ran = append(ran, r.ID)
			return work(25*time.Second)(ctx, r)
		}
		ids := w.enqueue(3, "note")
		s := w.start(Options{Slots: 1, Claim: ClaimOptions{Buffer: 2}})
		_, err := w.store.Cancel(w.Context(), store.Filter{IDs: ids[1:2]}, 1)
		require.NoError(w, err)
		w.wait(time.Minute)
		assert.Equal(w, []int64{ids[0], ids[2]}, ran)
		assert.Equal(w, Stats{Slots: 1}, s.Stats())
		w.stop(s)
	})
}

// Results that cannot be written for a minute delay no heartbeat: R34. Otherwise the other server would recover the jobs.
func TestBeatWaitsBehindNoResult(t *testing.T) {
	inWorld(t, func(w *world) {
		g := w.gate()
		w.handlers["quick"] = work(time.Second)
		w.handlers["long"] = work(90 * time.Second)
		quick, long := w.enqueue(1, "quick")[0], w.enqueue(1, "long")[0]
		g.hang("ack")
		s := w.start(Options{}, g)
		other := w.start(Options{Queues: map[string]QueueOptions{"another": {}}})
		w.wait(time.Minute)
		assert.Equal(w, store.InFlight, w.job(quick).State)
		assert.Equal(w, 6, g.count("extend"))
		g.back()
		w.wait(time.Minute)
		for _, id := range []int64{quick, long} {
			j := w.job(id)
			assert.Equal(w, store.Succeeded, j.State)
			assert.Len(w, j.History, 1)
		}
		w.stop(s)
		w.stop(other)
	})
}

// A store that answers a heartbeat slowly does not delay the next one, so leases are extended in time.
func TestSlowAnswersDelayNoBeat(t *testing.T) {
	inWorld(t, func(w *world) {
		g := w.gate()
		g.before = func(ctx context.Context, method string) error {
			if method == "extend" {
				return pause(ctx, 6*time.Second)
			}
			return nil
		}
		var heard told
		w.handlers["long"] = func(ctx context.Context, _ *Run) error {
			err := pause(ctx, 10*time.Minute)
			heard.cause = context.Cause(ctx)
			return err
		}
		id := w.enqueue(1, "long")[0]
		s := w.start(Options{}, g)
		w.wait(10*time.Minute + time.Second)
		require.NoError(w, heard.cause)
		assert.Equal(w, store.Succeeded, w.job(id).State)
		assert.GreaterOrEqual(w, g.count("extend"), 59)
		w.stop(s)
	})
}

// A failed heartbeat is repeated soon, so that a lease outlives a short outage: R32.
func TestFailedBeatIsRepeatedSoon(t *testing.T) {
	inWorld(t, func(w *world) {
		g := w.gate()
		var heard told
		w.handlers["long"] = func(ctx context.Context, _ *Run) error {
			err := pause(ctx, time.Minute)
			heard.cause = context.Cause(ctx)
			return err
		}
		id := w.enqueue(1, "long")[0]
		s := w.start(Options{Recovery: RecoveryOptions{Interval: -1}}, g)
		g.away()
		w.wait(13 * time.Second)
		assert.Equal(w, 2, g.count("extend"))
		w.wait(14 * time.Second)
		g.back()
		w.wait(time.Minute)
		require.NoError(w, heard.cause)
		assert.Equal(w, store.Succeeded, w.job(id).State)
		w.stop(s)
	})
}

// More leases than one call may carry are extended by several calls.
func TestMoreLeasesThanACallCarries(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["long"] = work(2 * time.Minute)
		for range 3 {
			w.enqueue(800, "long")
		}
		s := w.start(Options{Slots: 2400})
		other := w.start(Options{Queues: map[string]QueueOptions{"another": {}}})
		w.wait(3 * time.Minute)
		counts, err := w.store.Count(w.Context(), store.Filter{})
		require.NoError(w, err)
		assert.Equal(w, map[store.State]int64{store.Succeeded: 2400}, counts.Queues[0].Jobs)
		assert.Equal(w, 0, w.log.said("jq: expired leases recovered"))
		w.stop(s)
		w.stop(other)
	})
}

// A locked row is neither extended nor lost: its handler continues, and is not cancelled while its lease lasts. R34.
func TestBusyRowIsAskedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		g := w.gate()
		g.extend = busyUntil(w, g, w.since()+25*time.Second)
		var heard told
		w.handlers["listen"] = func(ctx context.Context, r *Run) error {
			err := work(2*time.Minute)(ctx, r)
			heard.cause = context.Cause(ctx)
			return err
		}
		id := w.enqueue(1, "listen")[0]
		s := w.start(Options{}, g)
		w.wait(3 * time.Minute)
		require.NoError(w, heard.cause)
		assert.Equal(w, store.Succeeded, w.job(id).State)
		w.stop(s)
	})
}

// If a row is locked for a whole lease, its lease is unknown: C14.
func TestBusyForAWholeLeaseIsUnknown(t *testing.T) {
	inWorld(t, func(w *world) {
		g := w.gate()
		g.extend = busyUntil(w, g, w.since()+time.Minute)
		var heard told
		w.handlers["listen"] = listening(w, &heard, nil)
		id := w.enqueue(1, "listen")[0]
		s := w.start(Options{Recovery: RecoveryOptions{Interval: -1}}, g)
		w.wait(2 * time.Minute)
		assert.Equal(w, told{ErrLeaseUnknown, 30 * time.Second}, heard)
		assert.Equal(w, store.Succeeded, w.job(id).State, "its result is offered all the same")
		w.stop(s)
	})
}

// busyUntil answers for every lease that its job is locked.
func busyUntil(w *world, g *gate, until time.Duration) func(context.Context, []store.Lease) ([]store.Outcome, error) {
	return func(ctx context.Context, leases []store.Lease) ([]store.Outcome, error) {
		if w.since() >= until {
			return g.Store.Extend(ctx, leases, DefaultLease)
		}
		outcomes := make([]store.Outcome, len(leases))
		for i, l := range leases {
			outcomes[i] = store.Outcome{ID: l.ID, Status: store.StatusBusy}
		}
		return outcomes, nil
	}
}

// pause delays calls on their way to the store.
func pause(ctx context.Context, d time.Duration) error {
	if err := work(d)(ctx, nil); err != nil {
		return errors.Join(store.ErrUnavailable, err)
	}
	return nil
}
