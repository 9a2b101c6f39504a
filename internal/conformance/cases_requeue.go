package conformance

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

var requeueCases = append([]Case{
	{"Requeue/MakesTerminalJobsReadyAgain", "Requeue makes terminal jobs ready again: they are due now, and their retries are 0.\nThe token grows, and the attempts do not change. Error, result and ExpiresAt are cleared. Checkpoint and progress stay, unless the job had succeeded: then they and their numbers are cleared too.", requeueMakesTerminalJobsReadyAgain},
	{"Requeue/TakesItsUniqueKeyAgain", "A job does not change if another job holds its unique key. Otherwise a job without a window takes its key again.", requeueTakesItsUniqueKeyAgain},
	{"Requeue/EndedWindowOfAnotherHoldsNothing", "A window ends when now reaches its end.", requeueEndedWindowOfAnotherHoldsNothing},
	{"Requeue/DuplicateBlocksNothingElse", "duplicate another job, which Reason names, holds the unique key; this job does not change;", requeueDuplicateBlocksNothingElse},
	{"Requeue/DuplicatesCountForTheLimit", "Without IDs, the outcomes include duplicates, and duplicates count toward the limit.", requeueDuplicatesCountForTheLimit},
	{"Requeue/NoJobTwiceInACall", "A call never requeues a job twice.", requeueNoJobTwiceInACall},
	{"Requeue/RacingEnqueueOfItsKeyIsDecidedOnce", "A unique key applies across all queues and kinds, and at most one job holds it.", requeueRacingEnqueueIsDecidedOnce},
}, requeueing.cases("Requeue")...)

var terminalPhases = []store.State{store.Succeeded, store.Dead, store.Cancelled}

// requeueMakesTerminalJobsReadyAgain has jobs with all that a job can have: a retry, documents, and a result or an error.
func requeueMakesTerminalJobsReadyAgain(c *C) {
	for _, phase := range terminalPhases {
		id := c.EnqueueOne()
		c.NAck(c.ClaimOne().Lease(), store.After, 0, "the first try failed")
		l := c.ClaimOne().Lease()
		underLease(c, store.OpSave, l)
		switch phase {
		case store.Succeeded:
			underLease(c, store.OpAck, l)
		case store.Dead:
			underLease(c, store.OpNever, l)
		case store.Cancelled:
			c.Cancel(id)
		}
		before := c.Get(id)
		c.Equal(before.Phase(), phase, "the phase before Requeue")
		c.Advance(time.Second)

		got := c.Requeue(id)

		want := becomes(store.OpRequeue, before, c.Now())
		c.Equal(c.Get(id), want, "a job that was %s and is requeued", phase)
		c.Equal(got, store.OutcomeOf(want.Job, store.StatusOK), "the outcome")
		c.Advance(time.Second)
		c.Equal(c.Claim(10), []store.Job{becomes(store.OpClaim, want, c.Now()).Job}, "claimed after it was requeued")
	}
}

// requeueNoJobTwiceInACall names a job twice. Then a worker kills jobs as fast as they come back: it must not keep a call busy.
func requeueNoJobTwiceInACall(c *C) {
	before := c.JobIn(store.Dead)
	outcomes := requeueing.on(c, only(before.ID, before.ID), 10)
	want := becomes(store.OpRequeue, before, c.Now())
	c.Equal(outcomes, []store.Outcome{
		store.OutcomeOf(want.Job, store.StatusOK), store.OutcomeOf(want.Job, store.StatusWrongState),
	}, "outcomes of a job that stands twice")
	c.Equal(c.Get(before.ID), want, "the requeued job")

	c.Cancel(before.ID)
	c.manyIn(store.Dead, 10)
	var done atomic.Bool
	c.Parallel(2, func(i int) {
		if i == 0 {
			for !done.Load() {
				for _, j := range c.Claim(1) {
					c.NAck(j.Lease(), store.Never, 0, "")
				}
			}
			return
		}
		defer done.Store(true)
		for range 30 {
			var list []int64
			for _, o := range requeueing.on(c, store.Filter{Queue: queue}, 100) {
				c.Equal(o.Status, store.StatusOK, "the outcome of job %d", o.ID)
				list = append(list, o.ID)
			}
			c.True(slices.IsSorted(list) && len(slices.Compact(slices.Clone(list))) == len(list), "each job once, by rising id: %v", list)
		}
	})
}

// deadWithKey makes a dead job with a unique key, held for the window or while it lives.
func (c *C) deadWithKey(key string, window time.Duration) store.JobDetail {
	id := c.Enqueue(keyed(key, window))[0]
	c.NAck(c.ClaimOne().Lease(), store.Never, 0, "boom")
	return c.Get(id)
}

// requeueTakesItsUniqueKeyAgain has a job that holds its key while it lives, and one that holds it for a window, which a requeue does
// not prolong.
func requeueTakesItsUniqueKeyAgain(c *C) {
	live, windowed := c.deadWithKey("live", 0), c.deadWithKey("windowed", time.Hour)
	c.Advance(time.Minute)
	c.Equal(statuses(requeueing.on(c, only(live.ID, windowed.ID), 2)), []store.Status{store.StatusOK, store.StatusOK}, "Requeue of both")
	c.Equal(c.Get(windowed.ID), becomes(store.OpRequeue, windowed, c.Now()), "the job with a window")
	c.held(keyed("live", 0), live.ID, store.Ready, "by the requeued job")
	c.Ack(c.ClaimOne().Lease())
	c.free(keyed("live", 0), "the requeued job has ended")
	c.Advance(59*time.Minute - store.Resolution)
	c.held(keyed("windowed", 0), windowed.ID, store.Ready, "one tick before the window ends")
	c.Advance(store.Resolution)
	c.free(keyed("windowed", 0), "the window has ended, although the requeued job is live")
}

// No Enqueue comes between the end of the window and the Requeue, which therefore has to notice that end by itself.
func requeueEndedWindowOfAnotherHoldsNothing(c *C) {
	for i, window := range []time.Duration{0, time.Second, 0, time.Second} {
		key := fmt.Sprint(i)
		dead := c.deadWithKey(key, window)
		filter := only(dead.ID)
		if i > 1 {
			filter = store.Filter{Queue: queue, States: []store.State{store.Dead}}
		}
		c.Advance(window)
		holder := c.free(keyed(key, time.Minute), "the first job is dead, and its window has ended")
		c.Advance(time.Minute - store.Resolution)
		c.Equal(statuses(requeueing.on(c, filter, 1)), []store.Status{store.StatusDuplicate}, "Requeue %+v one tick before the window of another ends", filter)
		c.Advance(store.Resolution)
		c.Equal(requeueing.on(c, filter, 1), requeueing.done(c, dead.ID), "Requeue %+v when the window of another ends", filter)
		c.Equal(c.Get(dead.ID), becomes(store.OpRequeue, dead, c.Now()), "the requeued job")
		if window == 0 {
			c.held(keyed(key, 0), dead.ID, store.Ready, "by the requeued job")
		}
		cancelling.on(c, only(dead.ID, holder), 2)
	}
}

// requeueDuplicateBlocksNothingElse has two jobs whose key a third one holds, and two of one free key, of which the first takes it.
// A whole call must not fail, nor any other item, because of one key.
func requeueDuplicateBlocksNothingElse(c *C) {
	blocked, ended := c.deadWithKey("held", 0), c.deadWithKey("ended", time.Hour)
	c.Advance(time.Hour)
	first, twin, last := c.deadWithKey("free", 0), c.deadWithKey("free", 0), c.JobIn(store.Dead)
	holders := c.Enqueue(keyed("held", 0), keyed("ended", 0))

	outcomes := requeueing.on(c, only(first.ID, blocked.ID, ended.ID, twin.ID, last.ID), 10)

	var want []store.Outcome
	for _, k := range []struct {
		job    store.JobDetail
		holder int64 // of its key; 0 if the job is requeued
	}{{first, 0}, {blocked, holders[0]}, {ended, holders[1]}, {twin, first.ID}, {last, 0}} {
		after, outcome := k.job, store.OutcomeOf(k.job.Job, store.StatusDuplicate)
		outcome.Reason = fmt.Sprintf("job %d holds the unique key", k.holder)
		if k.holder == 0 {
			after = becomes(store.OpRequeue, k.job, c.Now())
			outcome = store.OutcomeOf(after.Job, store.StatusOK)
		}
		c.Equal(c.Get(k.job.ID), after, "job %d, of which %d holds the key", k.job.ID, k.holder)
		want = append(want, outcome)
	}
	c.Equal(outcomes, want, "outcomes, in the order of the ids")
	c.Cancel(holders[1])
	c.Equal(c.Requeue(ended.ID).Status, store.StatusOK, "Requeue when nobody holds the key")
}

func requeueDuplicatesCountForTheLimit(c *C) {
	free, blocked, more := c.JobIn(store.Dead), c.deadWithKey("key", 0), c.JobIn(store.Dead)
	c.Enqueue(keyed("key", 0))

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
		var outcome store.Outcome
		var answer store.Enqueued
		c.Parallel(2, func(i int) {
			if i == 0 {
				outcome = c.Requeue(dead.ID)
			} else {
				answer = c.answers(keyed("key", 0))[0]
			}
		})
		requeued := outcome.Status == store.StatusOK
		c.True(requeued == answer.Duplicate, "one of Requeue (%+v) and Enqueue (%+v) gets the key", outcome, answer)
		c.Equal(answer.ID == dead.ID, requeued, "the duplicate names the holder")
		c.Cancel(answer.ID)
	}
}
