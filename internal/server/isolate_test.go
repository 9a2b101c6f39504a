package server

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// An item that the store cannot accept does not harm others: its call fails, and the others are written without it. Its own job fails in
// the end, with a reason. R38.
func TestUnwritableResultIsIsolated(t *testing.T) {
	refusals := map[string]error{
		"invalid":     &store.InvalidError{Item: 0, Field: "result", Rule: "must be nicer"},
		"unavailable": store.ErrUnavailable,
		"in doubt":    store.ErrInDoubt,
		"unknown":     errors.New("driver: something odd"),
	}
	for name, refusal := range refusals {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.handlers["quick"] = work(time.Second)
				ids := w.enqueue(100, "quick", func(n *store.NewJob) { n.MaxRetries, n.Backoff.Base = 0, time.Hour })
				bad := ids[37]
				g := w.gate()
				g.ack = func(ctx context.Context, acks []store.Ack) ([]store.Outcome, error) {
					if slices.ContainsFunc(acks, func(a store.Ack) bool { return a.ID == bad }) {
						return nil, refusal
					}
					return g.Store.Ack(ctx, acks)
				}
				s := w.start(Options{Slots: 100}, g)
				other := w.start(Options{Queues: map[string]QueueOptions{"another": {}}})
				w.wait(5 * time.Second)
				for _, id := range ids {
					if id != bad {
						require.Equal(w, store.Succeeded, w.job(id).State)
					}
				}
				w.wait(2 * time.Minute)
				j := w.job(bad)
				assert.Equal(w, store.Dead, j.Phase())
				assert.Equal(w, "the result could not be written: "+refusal.Error(), j.Error)
				assert.Len(w, j.History, 1)
				assert.Equal(w, Stats{Slots: 100}, s.Stats())
				assert.Equal(w, 1, w.log.said("jq: could not write a result; the job fails instead"))
				assert.Less(w, g.count("ack"), 60)
				w.stop(s)
				w.stop(other)
			})
		})
	}
}

// If not even a failure can be written, the job keeps its lease until it expires, and runs again: nothing is held for ever. R38.
func TestJobOfWhichNothingCanBeWrittenIsLeftToItsLease(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["quick"] = work(time.Second)
		bad := w.enqueue(1, "quick", func(n *store.NewJob) { n.MaxRetries = 1 })[0]
		g := w.gate()
		g.ack = func(ctx context.Context, acks []store.Ack) ([]store.Outcome, error) {
			if slices.ContainsFunc(acks, func(a store.Ack) bool { return a.ID == bad }) {
				return nil, errors.New("driver: not this one")
			}
			return g.Store.Ack(ctx, acks)
		}
		g.nack = func(context.Context, []store.NAck) ([]store.Outcome, error) {
			return nil, errors.New("driver: out of order")
		}
		s := w.start(Options{}, g)
		for range 20 {
			w.wait(time.Minute)
			w.enqueue(1, "quick") // without which it would not be known that others can be written
		}
		j := w.job(bad)
		assert.Equal(w, store.Dead, j.Phase())
		assert.Equal(w, store.LeaseExpired.Reason, j.Error)
		assert.Len(w, j.History, 2)
		w.wait(time.Minute)
		assert.Equal(w, Stats{Slots: DefaultSlots}, s.Stats())
		w.stop(s)
	})
}

// The committer does not wait for a locked job: others are written meanwhile, and the locked one as soon as the lock is released. A
// write of it would block until the store's own timeout. R34, R38.
func TestLockedJobHoldsUpNoOther(t *testing.T) {
	inWorld(t, func(w *world) {
		g := w.gate()
		w.handlers["quick"] = work(time.Second)
		locked := w.enqueue(1, "quick")[0]
		until := w.since() + 3*time.Minute
		isLocked := func(id int64) bool { return id == locked && w.since() < until }
		g.ack = func(ctx context.Context, acks []store.Ack) ([]store.Outcome, error) {
			if slices.ContainsFunc(acks, func(a store.Ack) bool { return isLocked(a.ID) }) {
				return nil, errors.Join(store.ErrUnavailable, pause(ctx, 5*time.Second))
			}
			return g.Store.Ack(ctx, acks)
		}
		g.extend = func(ctx context.Context, leases []store.Lease) ([]store.Outcome, error) {
			outcomes, err := g.Store.Extend(ctx, leases, DefaultLease)
			for i, l := range leases {
				if isLocked(l.ID) {
					outcomes[i] = store.Outcome{ID: l.ID, Status: store.StatusBusy}
				}
			}
			return outcomes, err
		}
		ids := w.enqueue(50, "quick")
		s := w.start(Options{Slots: 20, Recovery: RecoveryOptions{Interval: -1}}, g)
		w.wait(15 * time.Second)
		for _, id := range ids {
			require.Equal(w, store.Succeeded, w.job(id).State)
		}
		acks := g.count("ack")
		w.wait(150 * time.Second)
		assert.Equal(w, acks, g.count("ack"), "its lock is asked after, and not waited for")
		late := w.enqueue(1, "quick")[0]
		w.wait(3 * time.Second)
		assert.Equal(w, store.Succeeded, w.job(late).State)
		assert.Equal(w, 1, s.Stats().Uncommitted)

		w.wait(25 * time.Second)
		j := w.job(locked)
		assert.Equal(w, store.Succeeded, j.State)
		assert.WithinRange(w, j.FinishedAt, dawn.Add(until), dawn.Add(until+10*time.Second))
		assert.Equal(w, Stats{Slots: 20}, s.Stats())
		w.stop(s)
	})
}

// A write that was delayed for a lock also survives an outage of the store.
func TestResultThatWasPutOffWaitsForTheStore(t *testing.T) {
	inWorld(t, func(w *world) {
		g := w.gate()
		locked := true
		g.ack = func(ctx context.Context, acks []store.Ack) ([]store.Outcome, error) {
			if locked {
				return nil, store.ErrUnavailable
			}
			return g.Store.Ack(ctx, acks)
		}
		g.extend = func(ctx context.Context, leases []store.Lease) ([]store.Outcome, error) {
			outcomes, err := g.Store.Extend(ctx, leases, DefaultLease)
			for i := range outcomes {
				if locked {
					outcomes[i] = store.Outcome{ID: leases[i].ID, Status: store.StatusBusy}
				}
			}
			return outcomes, err
		}
		w.handlers["quick"] = work(time.Second)
		ids := w.enqueue(3, "quick")
		s := w.start(Options{Recovery: RecoveryOptions{Interval: -1}}, g)
		w.wait(20 * time.Second)
		assert.Equal(w, Stats{Slots: DefaultSlots, Uncommitted: 3}, s.Stats())
		g.away()
		w.wait(time.Minute)
		g.set(func() { locked = false })
		g.back()
		w.wait(time.Minute)
		for _, id := range ids {
			assert.Equal(w, store.Succeeded, w.job(id).State)
		}
		assert.Equal(w, Stats{Slots: DefaultSlots}, s.Stats())
		w.stop(s)
	})
}

// If a reachable store accepts no result at all, it is not asked for each result again and again. No result is dropped, and all are
// written when the store works again. R38.
func TestNoResultIsGivenUpWhereNoneCanBeWritten(t *testing.T) {
	inWorld(t, func(w *world) {
		g := w.gate()
		g.ack = func(context.Context, []store.Ack) ([]store.Outcome, error) {
			return nil, errors.New("no such column: result")
		}
		w.handlers["quick"] = work(time.Second)
		ids := w.enqueue(300, "quick")
		s := w.start(Options{Slots: 300, Claim: ClaimOptions{Buffer: 1}}, g)
		w.wait(10 * time.Second)
		assert.Less(w, g.count("ack"), 250)
		w.wait(10 * time.Minute)
		assert.Less(w, g.count("ack"), 250+60*maxFailures)
		assert.Equal(w, Stats{Slots: 300, Uncommitted: 300}, s.Stats())
		g.set(func() { g.ack = nil })
		w.wait(time.Minute)
		for _, id := range ids {
			j := w.job(id)
			require.Equal(w, store.Succeeded, j.State)
			require.Len(w, j.History, 1)
		}
		w.stop(s)
	})
}

// A call that is too large for the store to answer in time is split.
func TestCallThatNeverAnswersIsSplit(t *testing.T) {
	inWorld(t, func(w *world) {
		g := w.gate()
		g.ack = func(ctx context.Context, acks []store.Ack) ([]store.Outcome, error) {
			if len(acks) > 40 {
				return nil, gone(ctx)
			}
			return g.Store.Ack(ctx, acks)
		}
		w.handlers["quick"] = work(time.Second)
		ids := w.enqueue(100, "quick")
		s := w.start(Options{Slots: 100}, g)
		w.wait(3 * time.Minute)
		for _, id := range ids {
			j := w.job(id)
			require.Equal(w, store.Succeeded, j.State)
			require.Len(w, j.History, 1)
		}
		w.stop(s)
	})
}

// An outcome that calls a failure itself invalid does not keep the committer busy for ever.
func TestInvalidOutcomesEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		g := w.gate()
		g.nack = func(_ context.Context, nacks []store.NAck) ([]store.Outcome, error) {
			outcomes := make([]store.Outcome, len(nacks))
			for i, n := range nacks {
				outcomes[i] = store.Outcome{ID: n.ID, Status: store.StatusInvalid, Reason: "jq: invalid: mood"}
			}
			return outcomes, nil
		}
		w.handlers["fail"] = func(context.Context, *Run) error { return errors.New("no luck") }
		w.enqueue(1, "fail")
		s := w.start(Options{Recovery: RecoveryOptions{Interval: -1}}, g)
		w.wait(time.Second)
		assert.Equal(w, 2, g.count("nack"))
		assert.Equal(w, Stats{Slots: DefaultSlots}, s.Stats())
		w.stop(s)
	})
}

// On a server with nothing else to write, nobody knows whether the fault is in the one result that cannot be written. After an hour, the
// server assumes that: the job fails, or waits until its lease expires, and no job stays in flight for ever. R38.
func TestUnwritableResultOfAnIdleServerEnds(t *testing.T) {
	for name, both := range map[string]bool{"acks are refused": false, "and failures too": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.handlers["quick"] = work(time.Second)
				id := w.enqueue(1, "quick", func(n *store.NewJob) { n.MaxRetries = 0 })[0]
				g := w.gate()
				g.ack = func(context.Context, []store.Ack) ([]store.Outcome, error) { return nil, errors.New("driver: odd") }
				if both {
					g.nack = func(context.Context, []store.NAck) ([]store.Outcome, error) { return nil, errors.New("driver: odder") }
				}
				s := w.start(Options{}, g)
				w.wait(59 * time.Minute)
				assert.Equal(w, Stats{Slots: DefaultSlots, Uncommitted: 1}, s.Stats(), "it may pass")
				w.wait(10 * time.Minute)
				j := w.job(id)
				assert.Equal(w, store.Dead, j.Phase())
				want := "the result could not be written: driver: odd"
				if both {
					want = store.LeaseExpired.Reason
				}
				assert.Equal(w, want, j.Error)
				assert.Equal(w, Stats{Slots: DefaultSlots}, s.Stats())
				w.stop(s)
			})
		})
	}
}

// A result that was refused before and after a long outage was not refused for long.
func TestOutageIsNoLongRefusal(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["quick"] = work(time.Second)
		id := w.enqueue(1, "quick")[0]
		g := w.gate()
		g.ack = func(context.Context, []store.Ack) ([]store.Outcome, error) { return nil, errors.New("driver: odd") }
		s := w.start(Options{}, g)
		w.wait(30 * time.Second)
		g.away()
		w.wait(24 * time.Hour)
		g.back()
		w.wait(time.Minute)
		g.set(func() { g.ack = nil })
		w.wait(time.Minute)
		assert.Equal(w, store.Succeeded, w.job(id).State)
		assert.Len(w, w.job(id).History, 1)
		w.stop(s)
	})
}
