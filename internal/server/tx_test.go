package server

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// finishing returns a handler that finishes its job in a transaction, and then calls the given function with it.
func finishing(w *world, rest func(ctx context.Context, r *Run, tx *sql.Tx) error) Handler {
	return func(ctx context.Context, r *Run) error {
		r.SetResult([]byte(`"done"`))
		tx, err := w.store.DB().BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // which does nothing after a commit
		if err := r.FinishTx(ctx, tx); err != nil {
			return err
		}
		return rest(ctx, r, tx)
	}
}

// The effect of a handler and the end of its job are committed together, or neither is: R66.
func TestFinishInATransaction(t *testing.T) {
	cases := map[string]struct {
		rest   func(ctx context.Context, r *Run, tx *sql.Tx) error
		phase  store.State
		reason string
		ending store.Ending
	}{
		"committed": {
			func(_ context.Context, _ *Run, tx *sql.Tx) error { return tx.Commit() },
			store.Succeeded, "", store.EndSucceeded,
		},
		"rolled back though nil was returned": {
			func(_ context.Context, _ *Run, tx *sql.Tx) error { return tx.Rollback() },
			store.Retrying, "the handler finished the job in a transaction that was not committed", store.EndFailed,
		},
		"left open": { // its context ends with the handler's, and so does it
			func(context.Context, *Run, *sql.Tx) error { return nil },
			store.Retrying, "the handler finished the job in a transaction that was not committed", store.EndFailed,
		},
		"rolled back with an error": {
			func(_ context.Context, _ *Run, tx *sql.Tx) error {
				return errors.Join(tx.Rollback(), errors.New("no luck"))
			},
			store.Retrying, "no luck", store.EndFailed,
		},
		"rolled back with a wish": {
			func(context.Context, *Run, *sql.Tx) error {
				return &Wish{Form: store.Never, Err: errors.New("hopeless")}
			},
			store.Dead, "hopeless", store.EndFailed,
		},
		"committed, and an error all the same": { // as when the answer to the commit was lost
			func(_ context.Context, _ *Run, tx *sql.Tx) error {
				return errors.Join(tx.Commit(), errors.New("connection lost"))
			},
			store.Succeeded, "", store.EndSucceeded,
		},
		"committed, and a panic": {
			func(_ context.Context, _ *Run, tx *sql.Tx) error {
				if err := tx.Commit(); err != nil {
					return err
				}
				panic("after all")
			},
			store.Succeeded, "", store.EndSucceeded,
		},
		"committed, and a save": {
			func(ctx context.Context, r *Run, tx *sql.Tx) error {
				return errors.Join(tx.Commit(), r.Save(ctx, []byte("1"), nil))
			},
			store.Succeeded, "", store.EndSucceeded,
		},
		"committed long before it returns": {
			func(ctx context.Context, _ *Run, tx *sql.Tx) error {
				if err := tx.Commit(); err != nil {
					return err
				}
				return pause(ctx, time.Minute)
			},
			store.Succeeded, "", store.EndSucceeded,
		},
		"committed, and then timed out": {
			func(ctx context.Context, _ *Run, tx *sql.Tx) error {
				return errors.Join(tx.Commit(), pause(ctx, time.Hour))
			},
			store.Succeeded, "", store.EndSucceeded,
		},
		"committed, timed out, and given up": {
			func(_ context.Context, r *Run, tx *sql.Tx) error {
				return errors.Join(tx.Commit(), deaf(5*time.Minute)(context.Background(), r))
			},
			store.Succeeded, "", store.EndSucceeded,
		},
		"timed out before": {
			func(ctx context.Context, _ *Run, _ *sql.Tx) error { return pause(ctx, time.Hour) },
			store.Retrying, "timed out after 3m0s", store.EndFailed,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.handlers["finish"] = finishing(w, c.rest)
				id := w.enqueue(1, "finish", func(n *store.NewJob) { n.Backoff.Base, n.Timeout = time.Hour, 3*time.Minute })[0]
				heard := &ends{}
				s := w.start(Options{Observer: heard, Lease: LeaseOptions{Duration: 10 * time.Minute}})
				w.wait(10 * time.Minute)
				j := w.job(id)
				assert.Equal(w, c.phase, j.Phase())
				assert.Equal(w, c.reason, j.Error)
				assert.Len(w, j.History, 1)
				if c.phase == store.Succeeded {
					assert.Equal(w, `"done"`, string(j.Result))
				}
				require.Len(w, heard.all, 1)
				assert.Equal(w, c.ending, heard.all[0].ending)
				assert.Equal(w, c.phase, heard.all[0].phase)
				assert.Empty(w, w.said("jq: stale write refused"))
				assert.Equal(w, Stats{Slots: DefaultSlots}, s.Stats())
				w.stop(s)
			})
		})
	}
}

// Once the job is finished in a transaction, there is no lease to lose: the handler may clean up for longer than a lease.
func TestFinishedJobNeedsNoLease(t *testing.T) {
	inWorld(t, func(w *world) {
		var tidying error
		w.handlers["finish"] = finishing(w, func(ctx context.Context, _ *Run, tx *sql.Tx) error {
			if err := tx.Commit(); err != nil {
				return err
			}
			tidying = pause(ctx, 2*time.Minute)
			return tidying
		})
		w.enqueue(1, "finish")
		g := w.gate()
		s := w.start(Options{}, g)
		w.wait(3 * time.Minute)
		require.NoError(w, tidying)
		assert.Equal(w, 2, g.count("extend"), "by the first beat, and when the handler has returned")
		assert.Equal(w, Stats{Slots: DefaultSlots}, s.Stats())
		w.stop(s)
	})
}

// A job cannot be finished in a transaction under a stale lease. The handler rolls its effect back, and the worker that got the job
// meanwhile keeps it: R66, R20.
func TestStaleLeaseCanNotBeFinishedInATransaction(t *testing.T) {
	inWorld(t, func(w *world) {
		var finish error
		w.handlers["finish"] = func(ctx context.Context, r *Run) error {
			tx, err := w.store.DB().BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			if err := pause(ctx, 5*time.Second); err != nil {
				return err
			}
			finish = r.FinishTx(ctx, tx)
			return finish
		}
		id := w.enqueue(1, "finish")[0]
		s := w.start(Options{})
		w.wait(time.Second)
		w.fence()
		w.wait(30 * time.Second)
		require.ErrorIs(w, finish, store.ErrStaleLease)
		require.EqualError(w, finish, "job 1: jq: stale lease: roll back, because another run may have the job")
		assert.Equal(w, store.InFlight, w.job(id).State)
		assert.Len(w, w.said("jq: stale write refused"), 1)
		assert.Equal(w, Stats{Slots: DefaultSlots}, s.Stats())
		w.stop(s)
	})
}

// If a handler leaves its transaction open for ever, nothing can be known about its job. The server continues with other jobs as soon as
// the store does, and a stop ends. R66.
func TestTransactionLeftOpenForGood(t *testing.T) {
	inWorld(t, func(w *world) {
		var left *sql.Tx
		w.handlers["leave"] = func(_ context.Context, r *Run) (err error) {
			if left, err = w.store.DB().BeginTx(w.Context(), nil); err != nil {
				return err
			}
			return r.FinishTx(w.Context(), left)
		}
		id := w.enqueue(1, "leave", func(n *store.NewJob) { n.Backoff.Base = time.Hour })[0]
		s := w.start(Options{Recovery: RecoveryOptions{Interval: -1}})
		w.wait(5 * time.Minute)
		assert.Equal(w, Stats{Slots: DefaultSlots, Uncommitted: 1}, s.Stats())
		require.NoError(w, left.Rollback())
		w.wait(time.Minute)
		j := w.job(id)
		assert.Equal(w, store.Retrying, j.Phase())
		assert.Equal(w, "the handler finished the job in a transaction that was not committed", j.Error)

		id = w.enqueue(1, "leave")[0]
		w.wait(time.Minute)
		began := w.since()
		require.ErrorContains(w, s.Stop(w.Context()), "1 results could not be written")
		assert.LessOrEqual(w, w.since()-began, DefaultDrainTimeout+DefaultAbandonTimeout+finalWriteTimeout)
		require.NoError(w, left.Commit())
		assert.Equal(w, store.Succeeded, w.job(id).State)
	})
}

// On a store that answers busy, the server checks an open transaction with growing pauses, and delays no other result: R34.
func TestOpenTransactionIsAskedAfter(t *testing.T) {
	inWorld(t, func(w *world) {
		g := w.gate()
		var asked atomic.Int64
		until := w.since() + time.Minute
		g.extend = func(ctx context.Context, leases []store.Lease) ([]store.Outcome, error) {
			outcomes, err := g.Store.Extend(ctx, leases, DefaultLease)
			for i, l := range leases {
				if l.ID == 1 && w.since() < until {
					asked.Add(1)
					outcomes[i] = store.Outcome{ID: l.ID, Status: store.StatusBusy}
				}
			}
			return outcomes, err
		}
		w.handlers["finish"] = finishing(w, func(_ context.Context, _ *Run, tx *sql.Tx) error { return tx.Commit() })
		w.handlers["quick"] = work(0)
		w.enqueue(1, "finish")
		s := w.start(Options{}, g)
		w.wait(30 * time.Second)
		quick := w.enqueue(1, "quick")[0]
		w.wait(time.Second)
		assert.Equal(w, store.Succeeded, w.job(quick).State)
		assert.Equal(w, 1, s.Stats().Uncommitted)
		assert.Less(w, asked.Load(), int64(20))
		w.wait(time.Minute)
		assert.Equal(w, Stats{Slots: DefaultSlots}, s.Stats())
		w.stop(s)
	})
}

// A store without transactions says so.
func TestFinishNeedsAStoreWithTransactions(t *testing.T) {
	inWorld(t, func(w *world) {
		var finish error
		w.handlers["finish"] = func(ctx context.Context, r *Run) error {
			finish = r.FinishTx(ctx, nil)
			return nil
		}
		w.enqueue(1, "finish")
		s := w.start(Options{}, struct{ store.Store }{w.store})
		w.wait(2 * time.Second)
		require.ErrorContains(w, finish, "cannot write in a caller's transaction")
		w.stop(s)
	})
}

// A transaction in which a handler has finished its job may be open for longer than a lease: nobody else can get the job meanwhile, so
// its own lock does not cancel the handler. That holds for stores that answer busy, and for stores with a single writer, which do not
// answer at all. R34, R66, C14.
func TestOwnFinishingTransactionCancelsNoHandler(t *testing.T) {
	for name, busy := range map[string]bool{"busy": true, "no answer": false} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				g := w.gate()
				if busy {
					g.extend = busyUntil(w, g, w.since()+90*time.Second)
				}
				var tidying error
				w.handlers["finish"] = finishing(w, func(ctx context.Context, _ *Run, tx *sql.Tx) error {
					tidying = pause(ctx, 2*time.Minute)
					return errors.Join(tidying, tx.Commit())
				})
				id := w.enqueue(1, "finish")[0]
				s := w.start(Options{}, g)
				w.wait(3 * time.Minute)
				require.NoError(w, tidying)
				assert.Equal(w, store.Succeeded, w.job(id).State)
				assert.Len(w, w.job(id).History, 1)
				assert.Equal(w, Stats{Slots: DefaultSlots}, s.Stats())
				w.stop(s)
			})
		})
	}
}

// If such a transaction is rolled back late, its job may go to another worker; the handler is then cancelled at the next heartbeat. C14.
func TestRolledBackFinishIsFencedLikeAnyRun(t *testing.T) {
	inWorld(t, func(w *world) {
		g := w.gate()
		g.extend = busyUntil(w, g, w.since()+65*time.Second)
		var causes []error
		w.handlers["finish"] = finishing(w, func(ctx context.Context, _ *Run, tx *sql.Tx) error {
			rolledBack := errors.Join(pause(ctx, time.Minute), tx.Rollback())
			<-ctx.Done()
			causes = append(causes, context.Cause(ctx))
			return errors.Join(rolledBack, errors.New("no luck"))
		})
		id := w.enqueue(1, "finish", func(n *store.NewJob) { n.MaxRetries = 0 })[0]
		s := w.start(Options{}, g)
		w.wait(61 * time.Second)
		w.fence()
		w.wait(10 * time.Minute)
		assert.Equal(w, []error{ErrLeaseLost}, causes)
		assert.Equal(w, store.LeaseExpired.Reason, w.job(id).Error)
		w.stop(s)
	})
}
