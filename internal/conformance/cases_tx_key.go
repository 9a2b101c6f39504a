package conformance

import (
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

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

func txWindowEndsWithinOne(c *C) {
	job := keyed("key", time.Second)
	first := c.free(job, "before the transaction")
	c.Advance(time.Second)
	var second, third store.Job
	c.inTx(func(t *txCase) {
		second = t.adds(job, "the window ended before the transaction")
		c.Advance(time.Second - store.Resolution)
		t.in.held(job, second.ID, store.Ready, "one tick before the window ends in the transaction")
		c.Advance(store.Resolution)
		third = t.adds(job, "the window ended in the transaction")
		t.commit()
	})
	c.Equal(c.All(), []store.Job{third, second, c.Get(first).Job}, "jobs after the commit")
	c.held(job, third.ID, store.Ready, "by the last job of the transaction")
	c.Advance(time.Second)
	c.free(job, "the last window of the transaction has ended")
}

func txRequestKeyIsForgottenWithinOne(c *C) {
	c.asked(request("key"))
	c.Advance(store.RequestKeyLife)
	var last []store.Enqueued
	c.inTx(func(t *txCase) {
		answers := t.asks("key", 1)
		c.Advance(store.RequestKeyLife - store.Resolution)
		c.Equal(t.asks("key", 1), answers, "the answer one tick before a day has passed in the transaction")
		c.Advance(store.Resolution)
		last = t.in.asked(request("key"))
		t.commit()
	})
	c.Equal(len(c.All()), 3+1+3, "jobs of three days under one request key")
	c.Equal(c.asked(request("key")), last, "the answer after the commit")
}

// The transaction meets the ends of its own windows and of those of others, and lets go of them; then all is taken back.
func txRollbackLeavesTheKeysOfOthersAlone(c *C) {
	bystander := c.free(keyed("bystander", 10*time.Second), "before the transaction")
	c.free(keyed("ending", 2*time.Second), "before the transaction")
	answer := c.asked(request("others"))
	before := c.everything()
	c.inTx(func(t *txCase) {
		t.adds(keyed("own", time.Second), "at first")
		t.asks("own", 1)
		c.Advance(2 * time.Second)
		t.adds(keyed("another", time.Second), "after its first window")
		t.adds(keyed("own", time.Hour), "its first window has ended")
		t.adds(keyed("ending", time.Hour), "the window of another has ended")
		t.rollback()
	})
	c.Equal(c.everything(), before, "all jobs after the rollback")
	c.held(keyed("bystander", 0), bystander, store.Ready, "by a job outside the transaction")
	for _, key := range []string{"own", "another", "ending"} {
		c.free(keyed(key, 0), "the transaction that had the key %q was rolled back", key)
	}
	c.Advance(8*time.Second - store.Resolution)
	c.held(keyed("bystander", 0), bystander, store.Ready, "one tick before its window ends")
	c.Advance(store.Resolution)
	c.free(keyed("bystander", 0), "the window has ended")
	c.Equal(c.asked(request("others")), answer, "the answer to a request outside the transaction")
}

func txRollbackLeavesNoWindow(c *C) {
	c.inTx(func(t *txCase) {
		t.adds(keyed("key", time.Second), "at first")
		t.adds(keyed("live", time.Second), "at first")
		t.rollback()
	})
	window := c.free(keyed("key", time.Minute), "the transaction was rolled back")
	live := c.free(keyed("live", 0), "the transaction was rolled back")
	c.Advance(time.Second)
	c.held(keyed("key", 0), window, store.Ready, "when the window ends that was rolled back")
	c.held(keyed("live", 0), live, store.Ready, "when the window ends that was rolled back")
	c.Advance(time.Minute - time.Second)
	c.free(keyed("key", 0), "its own window has ended")
}

func txRollbackLeavesNoRequestKey(c *C) {
	other := c.asked(request("other"))
	c.inTx(func(t *txCase) {
		t.asks("key", 1)
		c.Advance(store.RequestKeyLife)
		t.asks("key", 2)
		t.asks("other", 1)
		t.rollback()
	})
	c.Equal(len(c.All()), len(other), "jobs after the rollback")
	c.inTx(func(t *txCase) {
		t.asks("key", 1)
		t.rollback()
	})
	c.Advance(time.Hour)
	first := c.asked(request("key"))
	c.Advance(store.RequestKeyLife - time.Hour)
	c.Equal(c.asked(request("key")), first, "the answer when the request key ends that was rolled back")
	c.True(c.asked(request("other"))[0].ID > first[2].ID, "a request key that a rolled-back transaction used anew has ended")
	c.Advance(time.Hour)
	c.True(c.asked(request("key"))[0].ID > first[2].ID, "its own day has passed")
}
