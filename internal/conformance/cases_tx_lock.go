package conformance

import (
	"context"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// What others meet while a transaction has finished a job. Whether they wait for its end or go round it is left to the
// adapter: either way they must agree with that end.

// Every job of a worker is in one Extend: a row that one of its handlers has locked must not cost it the others. A busy job is neither
// extended nor lost.
func txExtendOfALockedJob(c *C) {
	for commit, atEnd := range map[bool]store.Status{true: store.StatusFinished, false: store.StatusOK} {
		c.EnqueueN(3)
		held := c.Claim(3)
		leases := []store.Lease{held[0].Lease(), held[1].Lease(), held[2].Lease()}
		busy := store.Outcome{ID: held[1].ID, Status: store.StatusBusy}
		c.Advance(time.Second)
		c.inTx(func(t *txCase) {
			t.acks(leases[1])
			c.beside(func(c *C) error {
				outcomes, err := c.Store.Extend(c.Ctx, leases[1:2], ttl)
				if err == nil {
					c.Equal(outcomes, []store.Outcome{busy}, "the outcome while the job is locked")
				}
				return err
			})
			got := meanwhile(t, commit, func() ([]store.Outcome, error) { return c.Store.Extend(c.Ctx, leases, ttl) })
			if len(got) != 3 {
				c.Fatalf("got %d outcomes, want 3", len(got))
			}
			if status := got[1].Status; status != store.StatusBusy {
				c.Equal(status, atEnd, "Extend beside a transaction, commit %v", commit)
			} else if c.Equal(got[1], busy, "the outcome of the locked job"); !commit {
				c.Equal(c.Get(busy.ID).Job, held[1], "the locked job after the rollback")
			}
			for _, i := range []int{0, 2} {
				want := held[i]
				want.LeaseExpiresAt = c.Now().Add(ttl)
				c.Equal(got[i], store.OutcomeOf(want, store.StatusOK), "the outcome of a job beside the locked one")
				c.Equal(c.Get(want.ID).Job, want, "a job beside the locked one")
			}
		})
		again, next := c.Extend(leases[1]), time.Time{}
		if !commit {
			next = c.Now().Add(ttl)
		}
		c.Equal([]any{again.Status, again.Next}, []any{atEnd, next}, "Extend after the transaction, commit %v", commit)
	}
}

func txRecoveryLeavesALockedJob(c *C) {
	for _, commit := range []bool{true, false} {
		c.EnqueueN(2)
		held := c.Claim(2)
		locked, other := held[0], held[1]
		c.Advance(ttl)
		recoverAll := func() ([]store.Recovered, error) {
			return c.Store.RecoverExpiredLeases(c.Ctx, store.RecoverRequest{Limit: 10})
		}
		recovered := map[int64]int{}
		c.inTx(func(t *txCase) {
			t.acks(locked.Lease())
			for _, r := range append(meanwhile(t, commit, recoverAll), c.Recover(10)...) {
				recovered[r.ID]++
			}
		})
		want := map[int64]int{other.ID: 1}
		if !commit {
			want[locked.ID] = 1
		}
		c.Equal(recovered, want, "how often each was recovered, commit %v", commit)
		c.Equal(c.Get(locked.ID).State == store.Succeeded, commit, "the locked job has succeeded")
		cancelling.on(c, only(locked.ID, other.ID), 2)
	}
}

func txFinishedJobTakesItsRoom(c *C) {
	c.admit(queue, 1)
	c.finishedJobTakesRoom(plain())
}

func txFinishedJobTakesTheRoomOfItsKey(c *C) {
	c.admitPerKey(queue, 1)
	c.finishedJobTakesRoom(ofKey("a"))
}

// finishedJobTakesRoom finishes such a job in a transaction. One may be in flight.
func (c *C) finishedJobTakesRoom(n store.NewJob) {
	for commit, more := range map[bool]int{true: 1, false: 0} {
		c.Enqueue(n, n)
		held := c.ClaimOne()
		c.inTx(func(t *txCase) {
			t.acks(held.Lease())
			claimed := meanwhile(t, commit, func() ([]store.Job, error) { return c.Store.FetchAndClaim(c.Ctx, claimOf(10)) })
			c.Equal(len(claimed)+len(c.Claim(10)), more, "claimed beside a job that a transaction had finished, commit %v", commit)
		})
		cancelling.on(c, store.Filter{Queue: queue}, 10)
	}
}

func txOthersDecideAfterItsEnd(c *C) {
	for op, want := range map[store.Op]map[bool]store.Status{
		store.OpAck:        {true: store.StatusOK, false: store.StatusOK},
		store.OpNever:      {true: store.StatusStale, false: store.StatusOK},
		store.OpSave:       {true: store.StatusStale, false: store.StatusOK},
		store.OpCancel:     {true: store.StatusWrongState, false: store.StatusOK},
		store.OpRequeue:    {true: store.StatusOK, false: store.StatusWrongState},
		store.OpReschedule: {true: store.StatusWrongState, false: store.StatusWrongState},
		store.OpDelete:     {true: store.StatusOK, false: store.StatusWrongState},
	} {
		for commit, status := range want {
			l := c.JobIn(store.InFlight).Lease()
			c.inTx(func(t *txCase) {
				t.acks(l)
				got := meanwhile(t, commit, func() ([]store.Outcome, error) { return tryOn(c, op, l) })
				c.Equal(statuses(got), []store.Status{status}, "%s of a job that a transaction had finished, commit %v", op, commit)
			})
			c.Cancel(l.ID)
		}
	}
}

// tryOn does any operation on one job that changes it.
func tryOn(c *C, op store.Op, l store.Lease) ([]store.Outcome, error) {
	for _, b := range []bulk{cancelling, requeueing, rescheduling, deleting} {
		if b.op == op {
			return b.call(c.Store, c.Ctx, only(l.ID), 1)
		}
	}
	return tryUnderLeases(c, op, l)
}

func txEnqueueMayWaitForTheSameKey(c *C) {
	for what, req := range map[string]store.EnqueueRequest{
		"unique key": {Jobs: []store.NewJob{keyed("key", 0)}}, "request key": request("request"),
	} {
		for _, commit := range []bool{false, true} {
			var inside, outside []store.Enqueued
			before := len(c.All())
			c.inTx(func(t *txCase) {
				inside = t.in.asked(req)
				outside = meanwhile(t, commit, func() ([]store.Enqueued, error) { return c.Store.Enqueue(c.Ctx, req) })
			})
			c.Equal(len(c.All()), before+len(req.Jobs), "jobs after two Enqueues with one %s, commit %v", what, commit)
			if commit {
				inside[0].Duplicate = req.RequestKey == ""
				c.Equal(outside, inside, "the answer beside a transaction with the %s", what)
			} else {
				for i, a := range outside {
					c.Equal(a, store.Enqueued{ID: a.ID, State: store.Ready}, "the answer beside a transaction that lets the %s go", what)
					c.Equal(c.Get(a.ID).Job, req.Jobs[i].Row(a.ID, c.Now()), "the job that was added")
				}
			}
			if req.RequestKey != "" {
				c.Equal(c.asked(req), outside, "the answer after the transaction, commit %v", commit)
				req.RequestKey = "request committed"
			}
			cancelling.on(c, store.Filter{Queue: queue}, 10)
		}
	}
}

func txWaitingEndsWithTheContext(c *C) {
	l := c.JobIn(store.InFlight).Lease()
	served := map[string]bool{}
	c.inTx(func(t *txCase) {
		t.acks(l)
		t.adds(keyed("key", 0), "at first")
		for name, call := range map[string]func(c *C) error{
			"Enqueue": func(c *C) error {
				_, err := c.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: []store.NewJob{keyed("key", 0)}})
				return err
			},
			"Ack":    func(c *C) error { _, err := tryOn(c, store.OpAck, l); return err },
			"Cancel": func(c *C) error { _, err := tryOn(c, store.OpCancel, l); return err },
			"Count":  func(c *C) error { _, err := c.Store.Count(c.Ctx, store.Filter{}); return err },
		} {
			served[name] = c.beside(call)
		}
		t.commit()
	})
	c.True(!served["Ack"] && !served["Cancel"], "who decides about a locked job waits for its transaction: %v", served)
	c.Equal(c.Get(l.ID).Phase(), store.Succeeded, "the job after all that")
	c.Equal(c.Ack(l).Status, store.StatusOK, "Ack once more after the commit")
	c.Equal(len(c.List(store.Filter{UniqueKey: "key"}, 10)), 1, "jobs with the key")
}

func txEndOfItsContextRollsBack(c *C) {
	held := c.JobIn(store.InFlight)
	ctx, cancel := context.WithCancel(c.Ctx)
	defer cancel()
	c.inTxUnder(ctx, func(t *txCase) {
		t.in.EnqueueOne()
		t.acks(held.Lease())
		cancel()
		c.True(t.tx.Commit() != nil, "the commit of a transaction whose context has ended fails")
	})
	c.Equal(c.everything(), []store.JobDetail{held}, "all jobs after the context of a transaction ended")
	c.Equal(c.Ack(held.Lease()).Status, store.StatusOK, "Ack after the context of a transaction ended")
}

func txEndedContextAppliesNothing(c *C) {
	l := c.JobIn(store.InFlight).Lease()
	c.changesNothing("calls in a transaction under an ended context", func() {
		c.inTx(func(t *txCase) {
			calls := map[string]func(context.Context) error{}
			for _, op := range append([]store.Op{""}, finishOps...) {
				calls["a call in a transaction: "+string(op)] = func(ctx context.Context) error {
					_, err := t.in.under(ctx).callOf(op, l, 1)
					return err
				}
			}
			c.endedContexts(calls)
			t.rollback()
		})
	})
}

func txPingWaitsForNone(c *C) {
	l := c.JobIn(store.InFlight).Lease()
	c.inTx(func(t *txCase) {
		t.acks(l)
		c.OK(c.monitor().Ping(c.Ctx), "Ping beside a transaction that holds a job")
		t.rollback()
	})
}

// What time does to a transaction that stays open, and to the keys that it has written.

func txEachCallHasItsOwnNow(c *C) {
	held := holding(c, queue, 1)[0]
	var added []store.Job
	c.inTx(func(t *txCase) {
		for range 3 {
			added = append([]store.Job{t.adds(plain(), "without one")}, added...)
			c.Advance(time.Second)
		}
		c.Equal(underLease(t.in, store.OpAck, held.Lease()).Status, store.StatusOK, "Ack in the same transaction")
		held = becomes(store.OpAck, held, c.Now())
		c.Advance(time.Second)
		t.commit()
	})
	c.Equal(c.List(store.Filter{States: []store.State{store.Ready}}, 10), added, "jobs that one transaction enqueued at different times")
	c.Equal(c.Get(held.ID), held, "the job that it finished")
}

// adds enqueues one job in the transaction, whose key must be free.
func (t *txCase) adds(n store.NewJob, what string) store.Job {
	answer := t.in.answers(n)[0]
	t.c.Equal(answer, store.Enqueued{ID: answer.ID, State: store.Ready}, "a job in a transaction whose key is free: %s", what)
	return n.Row(answer.ID, t.c.Now())
}

// asks enqueues n plain jobs in the transaction under a request key.
func (t *txCase) asks(key string, n int) []store.Enqueued {
	return t.in.asked(store.EnqueueRequest{Jobs: slices.Repeat([]store.NewJob{plain()}, n), RequestKey: key})
}

func txKeysEndWithinOne(c *C) {
	job := keyed("key", store.RequestKeyLife)
	first := c.free(job, "before the transaction")
	c.asked(request("key"))
	c.Advance(store.RequestKeyLife)
	var second, third store.Job
	var last []store.Enqueued
	c.inTx(func(t *txCase) {
		second = t.adds(job, "the window ended before the transaction")
		answers := t.asks("key", 1)
		c.Advance(store.RequestKeyLife - store.Resolution)
		t.in.held(job, second.ID, store.Ready, "one tick before the window ends in the transaction")
		c.Equal(t.asks("key", 1), answers, "the answer one tick before a day has passed in the transaction")
		c.Advance(store.Resolution)
		third = t.adds(job, "the window ended in the transaction")
		last = t.in.asked(request("key"))
		t.commit()
	})
	c.Equal(c.List(store.Filter{UniqueKey: "key"}, 10), []store.Job{third, second, c.Get(first).Job}, "jobs with the unique key after the commit")
	c.held(job, third.ID, store.Ready, "by the last job of the transaction")
	c.Equal(len(c.All()), 3+3+1+3, "all jobs, those of three days under one request key among them")
	c.Equal(c.asked(request("key")), last, "the answer after the commit")
	c.Advance(store.RequestKeyLife)
	c.free(job, "the last window of the transaction has ended")
}

// The transaction meets the ends of its own windows and of those of others, and lets go of them; then all is taken back. What ends
// later under the same keys must not be taken for theirs.
func txRollbackLeavesNothing(c *C) {
	bystander := c.free(keyed("bystander", 10*time.Second), "before the transaction")
	c.free(keyed("ending", 2*time.Second), "before the transaction")
	answer := c.asked(request("others"))
	before := c.everything()
	c.inTx(func(t *txCase) {
		t.adds(keyed("live", 0), "at first")
		t.adds(keyed("own", time.Second), "at first")
		t.asks("own", 1)
		c.Advance(2 * time.Second)
		t.adds(keyed("another", 3*time.Second), "after its first window")
		t.adds(keyed("own", time.Hour), "its first window has ended")
		t.adds(keyed("ending", time.Hour), "the window of another has ended")
		t.rollback()
	})
	c.Equal(c.everything(), before, "all jobs after the rollback")
	c.held(keyed("bystander", 0), bystander, store.Ready, "by a job outside the transaction")
	free := map[string]int64{}
	for _, key := range []string{"live", "own", "another", "ending"} {
		free[key] = c.free(keyed(key, 0), "the transaction that had the key %q was rolled back", key)
	}
	own := c.asked(request("own"))
	c.Advance(8*time.Second - store.Resolution)
	c.held(keyed("another", 0), free["another"], store.Ready, "when the window has ended that was rolled back")
	c.held(keyed("bystander", 0), bystander, store.Ready, "one tick before its window ends")
	c.Advance(store.Resolution)
	c.free(keyed("bystander", 0), "the window has ended")
	c.Equal(c.asked(request("others")), answer, "the answer to a request outside the transaction")
	c.Advance(store.RequestKeyLife - 9*time.Second)
	c.Equal(c.asked(request("own")), own, "the answer when the request key ends that was rolled back")
	c.True(c.asked(request("others"))[0].ID > own[2].ID, "the request key outside the transaction has ended")
	c.Advance(time.Second)
	c.True(c.asked(request("own"))[0].ID > own[2].ID, "its own day has passed")
}
