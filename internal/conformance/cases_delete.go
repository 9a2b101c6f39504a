package conformance

import (
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

var deleteCases = []Case{
	{"Delete/RemovesTerminalJobsWithTheirHistory", "Delete removes terminal jobs with their history.", deleteRemovesTerminalJobs},
	{"Delete/EmptyFilterIsRefused", "Filter, limit and order are as for Cancel.", func(c *C) { deleting.refusesAnEmptyFilter(c) }},
	{"Delete/LimitsAreKept", "Filter, limit and order are as for Cancel.", func(c *C) { deleting.keepsItsLimits(c) }},
	{"Delete/AnswersEachIDInOrderWhateverTheLimit", "Filter, limit and order are as for Cancel.", func(c *C) { deleting.answersEachID(c) }},
	{"Delete/IDsAreChosenByTheRestOfTheFilterToo", "Filter, limit and order are as for Cancel.", func(c *C) { deleting.heedsTheRestOfTheFilter(c) }},
	{"Delete/FirstOnesByRisingID", "Filter, limit and order are as for Cancel.", func(c *C) { deleting.goesByRisingID(c) }},
	{"Delete/PatternsChooseQueues", "in one of these: a name, or the beginning of names with a * behind it", func(c *C) { deleting.heedsQueues(c) }},
	{"Delete/IDsAreNeverUsedAgain", "Ids are never used again.", deleteIDsAreNeverUsedAgain},
	{"Delete/ByAgeIsExact", "finished so long ago, or longer", deleteByAgeIsExact},
	{"Delete/FreesNothingThatAWindowHolds", "of that job at that moment; empty if it holds its key beyond its deletion", deleteFreesNothingThatAWindowHolds},
	{"Delete/ManyCallersDeleteEachJobOnce", "Any method may be called at any time, from any goroutine, also for one job.", func(c *C) { deleting.changesEachOnce(c, store.StatusNotFound) }},
}

func deleteRemovesTerminalJobs(c *C) {
	for _, phase := range terminalPhases {
		left := c.JobIn(phase)
		gone := c.JobIn(phase)

		c.Equal(c.Delete(gone.ID), store.Outcome{ID: gone.ID, Status: store.StatusOK}, "Delete of a %s job", phase)

		_, err := c.Store.Get(c.Ctx, gone.ID)
		c.ErrorIs(err, store.ErrNotFound, "Get after Delete of a %s job", phase)
		filter := store.Filter{States: []store.State{phase}}
		c.Equal(ids(c.List(filter, 10)), []int64{left.ID}, "the %s jobs after Delete", phase)
		c.Equal(c.countOf(filter), map[string]int64{queue + " " + string(phase): 1}, "Count after Delete of a %s job", phase)
		c.Equal(c.Get(left.ID), left, "the neighbour of a deleted job")
	}
}

func deleteIDsAreNeverUsedAgain(c *C) {
	highest := int64(0)
	for round := range 4 {
		list := c.EnqueueN(3)
		c.True(list[0] > highest && slices.IsSorted(list), "round %d: ids %v are above %d, which were deleted", round, list, highest)
		highest = list[2]
		cancelling.on(c, only(list...), 3)
		if round%2 == 0 {
			deleting.on(c, only(list...), 3) // the store is empty now
		} else {
			c.Delete(highest) // only the newest is gone
		}
	}
}

func deleteByAgeIsExact(c *C) {
	for _, phase := range terminalPhases {
		id := c.JobIn(phase).ID
		filter := store.Filter{States: []store.State{phase}, FinishedFor: 24*time.Hour + 999}

		c.Advance(24*time.Hour - store.Resolution)
		c.Equal(deleting.on(c, filter, 10), []store.Outcome{}, "a %s job, one tick too early", phase)
		c.Advance(store.Resolution)
		c.Equal(deleting.on(c, filter, 10), deleting.done(c, id), "a %s job of that age", phase)
	}
}

func deleteFreesNothingThatAWindowHolds(c *C) {
	dead := c.deadWithKey("key", time.Hour)
	live := c.deadWithKey("another", 0)
	deleting.on(c, only(dead.ID, live.ID), 2)
	enqueue := func(key string) store.Enqueued {
		job := plainBut(func(n *store.NewJob) { n.UniqueKey = key })
		answers, err := c.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: []store.NewJob{job}})
		c.OK(err, "Enqueue under the key %s", key)
		return answers[0]
	}
	c.True(!enqueue("another").Duplicate, "the key of a deleted job is free if it was held while live")
	c.Advance(time.Hour - store.Resolution)
	c.Equal(enqueue("key"), store.Enqueued{ID: dead.ID, Duplicate: true}, "Enqueue under the key of a deleted job, in its window")
	c.Advance(store.Resolution)
	c.True(!enqueue("key").Duplicate, "the key is free when the window ends")
}
