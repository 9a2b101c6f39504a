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
func txRollbackLeavesOthersKeys(c *C) {
	bystander := c.free(keyed("bystander", 10*time.Second), "before the transaction")
	c.free(keyed("ending", 2*time.Second), "before the transaction")
	answer := c.asked(request("others"))
	before := c.everything()
	c.inTx(func(t *txCase) {
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
	for _, key := range []string{"own", "another", "ending"} {
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
