package conformance

import (
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// keeper is the Writer of the transaction, for schedules.
func (t *txCase) keeper() store.ScheduleKeeper {
	keeper, ok := t.c.transactor().InTx(t.tx).(store.ScheduleKeeper)
	if !ok {
		t.c.Fatalf("the Writer of a store that keeps schedules does not keep them")
	}
	return keeper
}

func txSchedulesArePartOfIt(c *C) {
	fires, goes := c.setSchedule(c.daily("fires")), c.setSchedule(c.daily("goes"))
	for _, commit := range []bool{false, true} {
		before := c.allSchedules()
		c.Advance(time.Second)
		var added store.Schedule
		var fired []store.Fired
		c.inTx(func(t *txCase) {
			keeper := t.keeper()
			var err error
			added, err = keeper.SetSchedule(c.Ctx, c.full("new"))
			c.OK(err, "SetSchedule in a transaction")
			fired, err = keeper.Fire(c.Ctx, []store.Firing{c.firing(fires), {Name: "new", Revision: added.Revision}})
			c.OK(err, "Fire in a transaction")
			c.Equal(c.statusesOf(fired), []store.Status{store.StatusOK, store.StatusOK}, "the outcomes in a transaction")
			c.OK(keeper.DeleteSchedule(c.Ctx, goes.Name), "DeleteSchedule in a transaction")
			page, err := keeper.Schedules(c.Ctx, store.ScheduleFilter{}, store.Page{Limit: 10})
			c.OK(err, "Schedules in a transaction")
			c.Equal(scheduleNames(page.Schedules), []string{"fires", "new"}, "schedules as the transaction sees them")
			t.end(commit)
		})
		if !commit {
			c.Equal(c.allSchedules(), before, "schedules after a rollback")
			c.Equal(c.All(), []store.Job{}, "jobs after a rollback")
			continue
		}
		c.Equal(scheduleNames(c.allSchedules()), []string{"fires", "new"}, "schedules after a commit")
		c.Equal(c.scheduleNow("fires").LastJob, fired[0].Job.ID, "the last job of the schedule that fired")
		c.Equal(c.Get(fired[0].Job.ID).Scheduled(), &store.Scheduled{Name: "fires", For: c.Now()}, "the schedule of its job")
	}
}
