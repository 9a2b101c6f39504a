package conformance

import (
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// What time does to a transaction that stays open, and to the keys that it has written.

func txEachCallHasItsOwnNow(c *C) {
	held := c.JobIn(store.InFlight)
	var want []store.Job
	c.inTx(func(t *txCase) {
		for range 3 {
			answers := t.enqueue(store.EnqueueRequest{Jobs: []store.NewJob{plain()}})
			want = append([]store.Job{plain().Row(answers[0].ID, c.Now())}, want...)
			c.Advance(time.Second)
		}
		c.Equal(t.ack(held.Lease()).Status, store.StatusOK, "Ack in the same transaction")
		held.State, held.Result, held.LeaseExpiresAt, held.FinishedAt = store.Succeeded, []byte(`1`), time.Time{}, c.Now()
		held.History[0].EndedAt, held.History[0].Ending = c.Now(), store.EndSucceeded
		c.Advance(time.Second)
		t.commit()
	})
	c.Equal(c.List(store.Filter{States: []store.State{store.Ready}}, 10), want, "jobs that one transaction enqueued at different times")
	c.Equal(c.Get(held.ID), held, "the job that it finished")
}

// adds enqueues one job in the transaction, whose key must be free.
func (t *txCase) adds(n store.NewJob, what string) store.Job {
	answers := t.enqueue(store.EnqueueRequest{Jobs: []store.NewJob{n}})
	if len(answers) != 1 {
		t.c.Fatalf("Enqueue of a job in a transaction: got %d answers", len(answers))
	}
	t.c.Equal(answers, []store.Enqueued{{ID: answers[0].ID, State: store.Ready}}, "a job in a transaction whose key is free: %s", what)
	return n.Row(answers[0].ID, t.c.Now())
}

func txWindowEndsWithinOne(c *C) {
	job := keyed("key", time.Second)
	first := c.free(job, "before the transaction")
	c.Advance(time.Second)
	var second, third store.Job
	c.inTx(func(t *txCase) {
		second = t.adds(job, "the window ended before the transaction")
		c.Advance(time.Second - store.Resolution)
		c.Equal(t.enqueue(store.EnqueueRequest{Jobs: []store.NewJob{job}}), []store.Enqueued{{ID: second.ID, State: store.Ready, Duplicate: true}},
			"one tick before the window ends in the transaction")
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
	one, two := request("key"), store.EnqueueRequest{Jobs: []store.NewJob{plain()}, RequestKey: "key"}
	c.asked(one)
	c.Advance(store.RequestKeyLife)
	var last []store.Enqueued
	c.inTx(func(t *txCase) {
		answers := t.enqueue(two)
		c.Advance(store.RequestKeyLife - store.Resolution)
		c.Equal(t.enqueue(two), answers, "the answer one tick before a day has passed in the transaction")
		c.Advance(store.Resolution)
		last = t.enqueue(one)
		t.commit()
	})
	c.Equal(len(c.All()), 3+1+3, "jobs of three days under one request key")
	c.Equal(c.asked(one), last, "the answer after the commit")
}

// The transaction meets the ends of its own windows and of those of others, and lets go of them; then all is taken back.
func txRollbackLeavesTheKeysOfOthersAlone(c *C) {
	bystander := c.free(keyed("bystander", 10*time.Second), "before the transaction")
	c.free(keyed("ending", 2*time.Second), "before the transaction")
	asked := store.EnqueueRequest{Jobs: []store.NewJob{plain()}, RequestKey: "others"}
	answer := c.asked(asked)
	before := c.everything()
	c.inTx(func(t *txCase) {
		t.adds(keyed("own", time.Second), "at first")
		t.enqueue(store.EnqueueRequest{Jobs: []store.NewJob{plain()}, RequestKey: "own"})
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
	c.Equal(c.asked(asked), answer, "the answer to a request outside the transaction")
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
		t.enqueue(store.EnqueueRequest{Jobs: []store.NewJob{plain()}, RequestKey: "key"})
		c.Advance(store.RequestKeyLife)
		t.enqueue(store.EnqueueRequest{Jobs: []store.NewJob{plain(), plain()}, RequestKey: "key"})
		t.enqueue(store.EnqueueRequest{Jobs: []store.NewJob{plain()}, RequestKey: "other"})
		t.rollback()
	})
	c.Equal(len(c.All()), len(other), "jobs after the rollback")
	c.inTx(func(t *txCase) {
		t.enqueue(store.EnqueueRequest{Jobs: []store.NewJob{plain()}, RequestKey: "key"})
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
