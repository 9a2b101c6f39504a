package conformance

import (
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

var deleteCases = append([]Case{
	{"Delete/RemovesTerminalJobsWithTheirHistory", "Delete removes terminal jobs and their history.", deleteRemovesTerminalJobs},
	{"Delete/IDsAreNeverUsedAgain", "The store must never use an id again.", deleteIDsAreNeverUsedAgain},
	{"Delete/ByAgeIsExact", "finished at least this long ago", deleteByAgeIsExact},
}, deleting.cases("Delete")...)

func deleteRemovesTerminalJobs(c *C) {
	for _, phase := range terminalPhases {
		left, gone := c.JobIn(phase), c.JobIn(phase)

		c.Equal(c.Delete(gone.ID), store.Outcome{ID: gone.ID, Status: store.StatusOK}, "Delete of a %s job", phase)

		_, there := lookAt(c, gone.ID)
		c.True(!there, "a %s job that was deleted is not there", phase)
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
