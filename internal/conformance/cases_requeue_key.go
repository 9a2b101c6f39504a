package conformance

import (
	"fmt"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// deadWithKey makes a dead job with a unique key, held for the window or while it lives.
func (c *C) deadWithKey(key string, window time.Duration) store.JobDetail {
	id := c.Enqueue(plainBut(func(n *store.NewJob) { n.UniqueKey, n.UniqueFor = key, window }))[0]
	c.NAck(c.ClaimOne().Lease(), store.Never, 0, "boom")
	return c.Get(id)
}

func requeueTakesItsUniqueKeyAgain(c *C) {
	dead := c.deadWithKey("key", 0)
	c.Equal(c.Requeue(dead.ID).Status, store.StatusOK, "Requeue with the key free")

	again := plainBut(func(n *store.NewJob) { n.UniqueKey = "key" })
	answers, err := c.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: []store.NewJob{again}})
	c.OK(err, "Enqueue under the key")
	c.Equal(answers, []store.Enqueued{{ID: dead.ID, State: store.Ready, Duplicate: true}}, "Enqueue under the key of a requeued job")

	c.Ack(c.ClaimOne().Lease())
	c.True(c.Enqueue(again)[0] != dead.ID, "the key is free again when the requeued job has ended")
}

func requeueWindowIsNotProlonged(c *C) {
	started := c.Now()
	dead := c.deadWithKey("key", time.Hour)
	c.Advance(time.Minute)
	c.Equal(c.Requeue(dead.ID).Status, store.StatusOK, "Requeue of the job that holds the key for a window")
	c.Equal(c.Get(dead.ID), requeuedNow(dead, c.Now()), "the requeued job")

	enqueue := func() store.Enqueued {
		job := plainBut(func(n *store.NewJob) { n.UniqueKey = "key" })
		answers, err := c.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: []store.NewJob{job}})
		c.OK(err, "Enqueue under the key")
		return answers[0]
	}
	c.Advance(started.Add(time.Hour - store.Resolution).Sub(c.Now()))
	c.Equal(enqueue(), store.Enqueued{ID: dead.ID, State: store.Ready, Duplicate: true}, "one tick before the window ends")
	c.Advance(store.Resolution)
	c.True(!enqueue().Duplicate, "the key is free when the window ends, although the requeued job is live")
}

func requeueEndedWindowHeldByAnotherIsDuplicate(c *C) {
	dead := c.deadWithKey("key", time.Hour)
	c.Advance(time.Hour)
	holder := c.Enqueue(plainBut(func(n *store.NewJob) { n.UniqueKey = "key" }))[0]
	c.changesNothing("Requeue of a job whose key another holds", func() {
		got := c.Requeue(dead.ID)
		c.Equal([]any{got.ID, got.Status, got.State, got.Token}, []any{dead.ID, store.StatusDuplicate, store.Failed, dead.Token}, "the outcome")
	})
	c.Cancel(holder)
	c.Equal(c.Requeue(dead.ID).Status, store.StatusOK, "Requeue when nobody holds the key")
}

// No Enqueue comes between the end of the window and the Requeue, which therefore has to notice that end by itself.
func requeueEndedWindowOfAnotherHoldsNothing(c *C) {
	requeues := map[string]func(id int64) store.Outcome{
		"by id": func(id int64) store.Outcome { return c.Requeue(id) },
		"by filter": func(int64) store.Outcome {
			return c.One(c.Store.Requeue(c.Ctx, store.Filter{Queue: queue, States: []store.State{store.Dead}}, 1))
		},
	}
	for how, requeue := range requeues {
		for _, window := range []time.Duration{0, time.Second} {
			dead := c.deadWithKey(how, window)
			c.Advance(window)
			holder := c.free(keyed(how, time.Minute), "the first job is dead, and its window has ended")
			c.Advance(time.Minute - store.Resolution)
			c.Equal(requeue(dead.ID).Status, store.StatusDuplicate, "Requeue %s one tick before the window of another ends", how)
			c.Advance(store.Resolution)
			want := requeuedNow(dead, c.Now())
			c.Equal(requeue(dead.ID), store.OutcomeOf(want.Job, store.StatusOK), "Requeue %s when the window of another ends", how)
			c.Equal(c.Get(dead.ID), want, "the requeued job")
			if window == 0 {
				c.held(keyed(how, 0), dead.ID, store.Ready, "by the requeued job")
			}
			cancelling.on(c, only(dead.ID, holder), 2)
		}
	}
}

// A whole call must not fail, nor any other item, because of one key.
func requeueDeadJobWhoseKeyIsHeldBlocksNothingElse(c *C) {
	first, blocked, last := c.JobIn(store.Dead), c.deadWithKey("key", 0), c.JobIn(store.Dead)
	holder := c.Enqueue(plainBut(func(n *store.NewJob) { n.UniqueKey = "key" }))[0]

	outcomes := requeueing.on(c, only(first.ID, blocked.ID, last.ID), 10)

	c.Equal(statuses(outcomes), []store.Status{store.StatusOK, store.StatusDuplicate, store.StatusOK}, "outcomes")
	want := store.OutcomeOf(blocked.Job, store.StatusDuplicate)
	want.Reason = fmt.Sprintf("job %d holds the unique key", holder)
	c.Equal(outcomes[1], want, "the outcome of the duplicate")
	c.Equal(c.Get(blocked.ID), blocked, "the duplicate")
	c.Equal(c.Get(first.ID), requeuedNow(first, c.Now()), "the item before it")
	c.Equal(c.Get(last.ID), requeuedNow(last, c.Now()), "the item after it")
}

func requeueTwoDeadJobsOfOneKey(c *C) {
	a, b := c.deadWithKey("key", 0), c.deadWithKey("key", 0)
	outcomes := requeueing.on(c, only(b.ID, a.ID), 10)
	c.Equal(statuses(outcomes), []store.Status{store.StatusOK, store.StatusDuplicate}, "outcomes, in the order of the ids")
	c.Equal(c.Get(b.ID), requeuedNow(b, c.Now()), "the first item")
	c.Equal(c.Get(a.ID), a, "the second item")
}

func requeueDuplicatesCountForTheLimit(c *C) {
	free, blocked, more := c.JobIn(store.Dead), c.deadWithKey("key", 0), c.JobIn(store.Dead)
	c.Enqueue(plainBut(func(n *store.NewJob) { n.UniqueKey = "key" }))

	outcomes := requeueing.on(c, store.Filter{Queue: queue, States: []store.State{store.Dead}}, 2)
	c.Equal(statuses(outcomes), []store.Status{store.StatusOK, store.StatusDuplicate}, "outcomes with limit 2")
	c.Equal([]int64{outcomes[0].ID, outcomes[1].ID}, []int64{free.ID, blocked.ID}, "ids, with limit 2")
	c.Equal(c.Get(more.ID), more, "the job beyond the limit")

	outcomes = requeueing.on(c, store.Filter{Queue: queue, States: []store.State{store.Dead}, After: blocked.ID}, 2)
	c.Equal(outcomes, requeueing.done(c, more.ID), "outcomes of the next call")
}

func requeueRacingEnqueueIsDecidedOnce(c *C) {
	for range 30 {
		dead := c.deadWithKey("key", 0)
		var outcomes []store.Outcome
		var answers []store.Enqueued
		c.Parallel(2, func(i int) {
			var err error
			if i == 0 {
				outcomes, err = c.Store.Requeue(c.Ctx, only(dead.ID), 1)
			} else {
				job := plainBut(func(n *store.NewJob) { n.UniqueKey = "key" })
				answers, err = c.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: []store.NewJob{job}})
			}
			if err != nil {
				c.Errorf("caller %d: %v", i, err)
			}
		})
		requeued, enqueued := outcomes[0].Status == store.StatusOK, !answers[0].Duplicate
		c.True(requeued != enqueued, "one of Requeue (%+v) and Enqueue (%+v) gets the key", outcomes[0], answers[0])
		c.Equal(answers[0].ID == dead.ID, requeued, "the duplicate names the holder")
		c.Cancel(answers[0].ID)
	}
}
