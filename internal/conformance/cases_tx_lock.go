package conformance

import (
	"context"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// What others meet while a transaction has finished a job. Whether they wait for its end or go round it is left to the
// adapter: either way they must agree with that end.

func txExtendOfALockedJob(c *C) {
	for _, commit := range []bool{true, false} {
		held := c.JobIn(store.InFlight)
		c.Advance(time.Second)
		var got []store.Outcome
		c.inTx(func(t *txCase) {
			t.ack(held.Lease())
			t.meanwhile(commit, func() (err error) {
				got, err = c.Store.Extend(c.Ctx, []store.Lease{held.Lease()}, ttl)
				return err
			})
		})
		status := c.One(got, nil).Status
		atEnd := store.StatusOK
		if commit {
			atEnd = store.StatusFinished
		}
		c.True(status == store.StatusBusy || status == atEnd, "Extend beside a transaction, commit %v: got %s, want busy or %s", commit, status, atEnd)
		c.Equal(c.Extend(held.Lease()).Status, atEnd, "Extend after the transaction, commit %v", commit)
	}
}

func txBusyIsNeitherExtendedNorLost(c *C) {
	held := c.JobIn(store.InFlight)
	c.Advance(time.Second)
	c.changesNothing("Extend of a locked job and a rollback", func() {
		c.inTx(func(t *txCase) {
			t.ack(held.Lease())
			c.beside(func(ctx context.Context) error {
				outcomes, err := c.Store.Extend(ctx, []store.Lease{held.Lease()}, ttl)
				if err == nil {
					c.Equal(outcomes, []store.Outcome{{ID: held.ID, Status: store.StatusBusy}}, "the outcome while the job is locked")
				}
				return err
			})
			t.rollback()
		})
	})
	got := c.Extend(held.Lease())
	held.LeaseExpiresAt = c.Now().Add(ttl)
	c.Equal(got, store.OutcomeOf(held.Job, store.StatusOK), "the outcome when asked again")
}

// Every job of a worker is in one Extend: a row that one of its handlers has locked must not cost it the others.
func txOneLockedRowStopsNoOtherHeartbeat(c *C) {
	c.EnqueueN(3)
	held := c.Claim(3)
	leases := []store.Lease{held[0].Lease(), held[1].Lease(), held[2].Lease()}
	c.Advance(time.Second)
	var got []store.Outcome
	c.inTx(func(t *txCase) {
		t.ack(leases[1])
		t.meanwhile(true, func() (err error) {
			got, err = c.Store.Extend(c.Ctx, leases, ttl)
			return err
		})
	})
	if len(got) != 3 {
		c.Fatalf("got %d outcomes, want 3", len(got))
	}
	c.True(got[1].Status == store.StatusBusy || got[1].Status == store.StatusFinished, "the locked job: %+v", got[1])
	for _, i := range []int{0, 2} {
		want := held[i]
		want.LeaseExpiresAt = c.Now().Add(ttl)
		c.Equal(got[i], store.OutcomeOf(want, store.StatusOK), "the outcome of a job beside the locked one")
		c.Equal(c.Get(want.ID).Job, want, "a job beside the locked one")
	}
}

func txRecoveryLeavesALockedJob(c *C) {
	for _, commit := range []bool{true, false} {
		c.EnqueueN(2)
		held := c.Claim(2)
		locked, other := held[0], held[1]
		c.Advance(ttl)
		recovered := map[int64]int{}
		recoverAll := func() error {
			list, err := c.Store.RecoverExpiredLeases(c.Ctx, store.RecoverRequest{Limit: 10})
			for _, r := range list {
				recovered[r.ID]++
			}
			return err
		}
		c.inTx(func(t *txCase) {
			c.Equal(t.ack(locked.Lease()).Status, store.StatusOK, "a late Ack in a transaction")
			t.meanwhile(commit, recoverAll)
		})
		c.OK(recoverAll(), "RecoverExpiredLeases after the transaction")
		want := map[int64]int{other.ID: 1}
		if !commit {
			want[locked.ID] = 1
		}
		c.Equal(recovered, want, "how often each was recovered, commit %v", commit)
		c.Equal(c.Get(locked.ID).State == store.Succeeded, commit, "the locked job has succeeded")
		cancelling.on(c, only(locked.ID, other.ID), 2)
	}
}

func txOthersDecideAfterItsEnd(c *C) {
	others := map[string]struct {
		call                  func(store.Lease) ([]store.Outcome, error)
		committed, rolledBack store.Status
	}{
		"Ack": {func(l store.Lease) ([]store.Outcome, error) {
			return c.Store.Ack(c.Ctx, []store.Ack{{Lease: l}})
		}, store.StatusOK, store.StatusOK},
		"NAck": {func(l store.Lease) ([]store.Outcome, error) {
			return c.Store.NAck(c.Ctx, []store.NAck{{Lease: l, Form: store.Never}})
		}, store.StatusStale, store.StatusOK},
		"Save": {func(l store.Lease) ([]store.Outcome, error) {
			return c.Store.Save(c.Ctx, []store.Save{{Lease: l, Seq: 1, Checkpoint: []byte(`1`)}})
		}, store.StatusStale, store.StatusOK},
		"Cancel": {func(l store.Lease) ([]store.Outcome, error) {
			return c.Store.Cancel(c.Ctx, only(l.ID), 1)
		}, store.StatusWrongState, store.StatusOK},
		"Requeue": {func(l store.Lease) ([]store.Outcome, error) {
			return c.Store.Requeue(c.Ctx, only(l.ID), 1)
		}, store.StatusOK, store.StatusWrongState},
		"Delete": {func(l store.Lease) ([]store.Outcome, error) {
			return c.Store.Delete(c.Ctx, only(l.ID), 1)
		}, store.StatusOK, store.StatusWrongState},
	}
	for name, other := range others {
		for _, commit := range []bool{true, false} {
			held := c.JobIn(store.InFlight)
			var got []store.Outcome
			c.inTx(func(t *txCase) {
				t.ack(held.Lease())
				t.meanwhile(commit, func() (err error) {
					got, err = other.call(held.Lease())
					return err
				})
			})
			want := other.rolledBack
			if commit {
				want = other.committed
			}
			c.Equal(c.One(got, nil).Status, want, "%s of a job that a transaction had finished, commit %v", name, commit)
			c.Cancel(held.ID)
		}
	}
}

func txEnqueueMayWaitForTheSameUniqueKey(c *C) {
	for _, commit := range []bool{true, false} {
		job := plainBut(func(n *store.NewJob) { n.UniqueKey = "key" })
		var inside, outside []store.Enqueued
		c.inTx(func(t *txCase) {
			inside = t.enqueue(store.EnqueueRequest{Jobs: []store.NewJob{job}})
			t.meanwhile(commit, func() (err error) {
				outside, err = c.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: []store.NewJob{job}})
				return err
			})
		})
		if len(outside) != 1 {
			c.Fatalf("got %d answers, want 1", len(outside))
		}
		want := store.Enqueued{ID: outside[0].ID, State: store.Ready}
		if commit {
			want = store.Enqueued{ID: inside[0].ID, State: store.Ready, Duplicate: true}
		}
		c.Equal(outside[0], want, "the answer beside a transaction with the key, commit %v", commit)
		c.Equal(ids(c.List(store.Filter{States: []store.State{store.Ready}}, 10)), []int64{want.ID}, "the jobs with the key")
		c.Cancel(want.ID)
	}
}

func txEnqueueMayWaitForTheSameRequestKey(c *C) {
	var inside, outside []store.Enqueued
	for _, commit := range []bool{false, true} {
		req := request("committed")
		if !commit {
			req = request("rolled back")
		}
		before := len(c.All())
		c.inTx(func(t *txCase) {
			inside = t.enqueue(req)
			t.meanwhile(commit, func() (err error) {
				outside, err = c.Store.Enqueue(c.Ctx, req)
				return err
			})
		})
		if commit {
			c.Equal(outside, inside, "the answer beside a transaction with the request key")
		}
		c.Equal(c.asked(req), outside, "the answer after the transaction, commit %v", commit)
		c.Equal(len(c.All()), before+3, "jobs after two Enqueues with one request key, commit %v", commit)
	}
}

func txWaitingEndsWithTheContext(c *C) {
	held := c.JobIn(store.InFlight)
	c.JobIn(store.Dead)
	key := plainBut(func(n *store.NewJob) { n.UniqueKey = "key" })
	served := map[string]bool{}
	c.inTx(func(t *txCase) {
		t.ack(held.Lease())
		t.enqueue(store.EnqueueRequest{Jobs: []store.NewJob{key}})
		for name, call := range map[string]func(ctx context.Context) error{
			"Enqueue": func(ctx context.Context) error {
				_, err := c.Store.Enqueue(ctx, store.EnqueueRequest{Jobs: []store.NewJob{key}})
				return err
			},
			"Ack": func(ctx context.Context) error {
				_, err := c.Store.Ack(ctx, []store.Ack{{Lease: held.Lease()}})
				return err
			},
			"Cancel": func(ctx context.Context) error { _, err := c.Store.Cancel(ctx, only(held.ID), 1); return err },
			"Count":  func(ctx context.Context) error { _, err := c.Store.Count(ctx, store.Filter{}); return err },
		} {
			served[name] = c.beside(call)
		}
		t.commit()
	})
	c.True(!served["Ack"] && !served["Cancel"], "who decides about a locked job waits for its transaction: %v", served)
	c.Equal(c.Get(held.ID).Phase(), store.Succeeded, "the job after all that")
	c.Equal(len(c.List(store.Filter{UniqueKey: "key"}, 10)), 1, "jobs with the key")
}

func txCallerWaitsForItself(c *C) {
	held := c.JobIn(store.InFlight)
	c.inTx(func(t *txCase) {
		t.ack(held.Lease())
		ctx, cancel := context.WithTimeout(c.Ctx, glance)
		defer cancel()
		_, err := c.Store.Ack(ctx, []store.Ack{{Lease: held.Lease()}})
		c.ErrorIs(err, context.DeadlineExceeded, "Ack by the holder of the transaction, outside it")
		t.commit()
	})
	c.Equal(c.Ack(held.Lease()).Status, store.StatusOK, "Ack once more after the commit")
}

func txEndOfItsContextRollsBack(c *C) {
	held := c.JobIn(store.InFlight)
	ctx, cancel := context.WithCancel(c.Ctx)
	defer cancel()
	c.inTxUnder(ctx, func(t *txCase) {
		t.enqueue(store.EnqueueRequest{Jobs: []store.NewJob{plain()}})
		t.ack(held.Lease())
		cancel()
		c.True(t.tx.Commit() != nil, "the commit of a transaction whose context has ended fails")
	})
	c.Equal(c.everything(), []store.JobDetail{held}, "all jobs after the context of a transaction ended")
	c.Equal(c.Ack(held.Lease()).Status, store.StatusOK, "Ack after the context of a transaction ended")
}

func txEndedContextAppliesNothing(c *C) {
	held := c.JobIn(store.InFlight)
	c.changesNothing("calls in a transaction under an ended context", func() {
		c.inTx(func(t *txCase) {
			c.endedContexts(map[string]func(context.Context) error{
				"Enqueue": func(ctx context.Context) error {
					_, err := t.w.Enqueue(ctx, store.EnqueueRequest{Jobs: []store.NewJob{plain()}})
					return err
				},
				"Ack": func(ctx context.Context) error {
					_, err := t.w.Ack(ctx, []store.Ack{{Lease: held.Lease()}})
					return err
				},
				"NAck": func(ctx context.Context) error {
					_, err := t.w.NAck(ctx, []store.NAck{{Lease: held.Lease(), Form: store.Fail}})
					return err
				},
			})
			t.rollback()
		})
	})
}

func txPingWaitsForNone(c *C) {
	l := c.JobIn(store.InFlight).Lease()
	c.inTx(func(t *txCase) {
		t.ack(l)
		c.OK(c.monitor().Ping(c.Ctx), "Ping beside a transaction that holds a job")
		t.rollback()
	})
}
