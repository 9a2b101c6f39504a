package conformance

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

var rescheduleCases = append([]Case{
	{"Reschedule/GivesJobsThatWaitAnotherDueTime", "Reschedule gives jobs that are ready or retrying another due time: the later of now and at, or now if at is the zero time.\nA ready job gets the due time as its RunAt. A retrying job gets it as its RetryAt and stays retrying. The token grows, and nothing else changes.", rescheduleGivesAnotherDueTime},
	{"Reschedule/DueAlreadyChangesNothing", "A job does not change if it is due at that time already, or if that time is now and it is due.", rescheduleDueAlready},
	{"Reschedule/UnchangedJobsCountForTheLimit", "Without IDs, the outcomes include jobs that do not change, and these jobs count toward the limit.", rescheduleUnchangedCount},
	{"Reschedule/TimeHasTheLimitsOfRunAt", "No requested time may lie after the year 9999.", rescheduleLimits},
	{"Reschedule/RacingClaimsTakeAJobOnce", sentenceWholeCall, rescheduleRacesClaims},
}, rescheduling.cases("Reschedule")...)

// waitingJobs are ways for a job to wait for an hour or longer.
var waitingJobs = map[string]func(c *C) int64{
	"delayed": func(c *C) int64 { return c.Enqueue(plainBut(func(n *store.NewJob) { n.Delay = time.Hour }))[0] },
	"snoozed": func(c *C) int64 { return c.putOff(store.Snooze) },
	"retried": func(c *C) int64 { return c.putOff(store.After) },
}

// putOff makes a job that has a checkpoint, one retry and its error, and waits for two hours.
func (c *C) putOff(form store.Form) int64 {
	id := c.EnqueueOne()
	c.NAck(c.ClaimOne().Lease(), store.After, 0, "the first try failed")
	l := c.ClaimOne().Lease()
	underLease(c, store.OpSave, l)
	c.NAck(l, form, 2*time.Hour, "not yet")
	return id
}

// rescheduleGivesAnotherDueTime compares the whole row, and claims the job when it is due and not one tick before.
func rescheduleGivesAnotherDueTime(c *C) {
	for name, wait := range waitingJobs {
		for _, way := range []struct {
			name    string
			at, due func(now time.Time) time.Time
		}{
			{"now", func(time.Time) time.Time { return time.Time{} }, func(now time.Time) time.Time { return now }},
			{"at a time that is past", func(now time.Time) time.Time { return now.Add(-time.Hour) }, func(now time.Time) time.Time { return now }},
			{"to the tick", func(now time.Time) time.Time { return now.Add(2*time.Second - 1) }, func(now time.Time) time.Time { return now.Add(2*time.Second - store.Resolution) }},
			{"in another zone", func(now time.Time) time.Time { return now.Add(time.Minute).In(time.FixedZone("z", 3600)) }, func(now time.Time) time.Time { return now.Add(time.Minute) }},
			{"later than it was", func(now time.Time) time.Time { return now.Add(3 * time.Hour) }, func(now time.Time) time.Time { return now.Add(3 * time.Hour) }},
		} {
			id := wait(c)
			c.Advance(time.Minute)
			want, now := c.Get(id), c.Now()
			due := way.due(now)
			want.Token++
			if want.State == store.Ready {
				want.RunAt = due
			} else {
				want.RetryAt = due
			}

			got := c.Reschedule(id, way.at(now))

			c.Equal(got, store.OutcomeOf(want.Job, store.StatusOK), "the outcome for a %s job that is rescheduled %s", name, way.name)
			c.Equal(c.Get(id), want, "a %s job that is rescheduled %s", name, way.name)
			if early := due.Sub(now) - store.Resolution; early > 0 {
				c.Advance(early)
				c.Equal(ids(c.Claim(10)), []int64{}, "claimed one tick before the %s job is due, rescheduled %s", name, way.name)
				c.Advance(store.Resolution)
			}
			c.Equal(c.Claim(10), []store.Job{becomes(store.OpClaim, want, c.Now()).Job}, "claimed when the %s job is due, rescheduled %s", name, way.name)
			c.Cancel(id)
		}
	}
}

func rescheduleDueAlready(c *C) {
	for name, wait := range waitingJobs {
		id := wait(c)
		due := c.Get(id).Next()
		for _, k := range []struct {
			after time.Duration // the due time
			at    time.Time
		}{{-time.Minute, due}, {-time.Minute, due.Add(store.Resolution - 1)}, {0, due}, {0, time.Time{}}, {time.Second, time.Time{}}, {time.Second, due}, {time.Second, due.Add(time.Second)}} {
			c.Advance(due.Add(k.after).Sub(c.Now()))
			c.changesNothing("Reschedule of a "+name+" job that is due then", func() {
				c.Equal(c.Reschedule(id, k.at), store.OutcomeOf(c.Get(id).Job, store.StatusOK), "the outcome for %v, %v after it is due", k.at, k.after)
			})
		}
		c.Cancel(id)
	}
}

func rescheduleUnchangedCount(c *C) {
	due, late := c.EnqueueOne(), waitingJobs["delayed"](c)
	answers := func(id int64) []store.Outcome { return []store.Outcome{store.OutcomeOf(c.Get(id).Job, store.StatusOK)} }
	before := c.Get(due)
	filter := store.Filter{Queue: queue}
	c.Equal(rescheduling.on(c, filter, 1), answers(due), "outcomes with limit 1, of which the first job is due")
	c.Equal(c.Get(due), before, "the job that was due")
	filter.After = due
	c.Equal(rescheduling.on(c, filter, 1), answers(late), "outcomes of the next call")
	c.Equal(c.Get(late).RunAt, c.Now(), "the due time of the second job")
	filter.After = 0
	c.changesNothing("the same once more", func() {
		c.Equal(rescheduling.on(c, filter, 10), append(answers(due), answers(late)...), "outcomes for two jobs that are due")
	})
}

func rescheduleLimits(c *C) {
	ready, retrying := waitingJobs["delayed"](c), waitingJobs["retried"](c)
	last := store.MaxTime.Add(-store.Resolution)
	c.changesNothing("calls beyond the limits", func() {
		for _, at := range []time.Time{store.MaxTime, store.MaxTime.AddDate(1, 0, 0), time.Time{}.Add(-store.Resolution)} {
			outcomes, err := c.Store.Reschedule(c.Ctx, only(ready, retrying), at, 1)
			c.ErrorIs(err, store.ErrInvalid, "Reschedule at %v", at)
			c.Equal(outcomes, []store.Outcome(nil), "outcomes of Reschedule at %v", at)
		}
	})
	for _, id := range []int64{ready, retrying} {
		c.Equal(c.Reschedule(id, last).Next, last, "the due time of a job that is rescheduled to the last tick of all")
	}
}

// besideClaims makes a change for each job, in no order, while others claim. It returns what was claimed, by id.
func (c *C) besideClaims(list []int64, change func(id int64)) map[int64]store.Job {
	claimed := make([][]store.Job, 4)
	c.Parallel(1+len(claimed), func(i int) {
		if i > 0 {
			for range len(list) / len(claimed) / 3 {
				claimed[i-1] = append(claimed[i-1], c.Claim(2)...)
			}
			return
		}
		for _, at := range rand.Perm(len(list)) {
			change(list[at])
		}
	})
	taken := map[int64]store.Job{}
	for _, j := range slices.Concat(claimed...) {
		taken[j.ID] = j
	}
	return taken
}

// rescheduleRacesClaims puts jobs off while others claim them. Whichever comes first decides: a job that was put off is not
// claimed, and one that was claimed is not put off.
func rescheduleRacesClaims(c *C) {
	list := c.EnqueueN(200)
	later := c.Now().Add(time.Hour)
	outcomes := map[int64]store.Outcome{}
	claimed := c.besideClaims(list, func(id int64) { outcomes[id] = c.Reschedule(id, later) })
	for _, id := range list {
		j := c.Get(id).Job
		taken, was := claimed[id]
		status := store.StatusOK
		if was {
			status = store.StatusWrongState
			c.Equal(taken.Token, int64(1), "the token of the lease on job %d", id)
		}
		c.Equal(outcomes[id], store.OutcomeOf(j, status), "the outcome for job %d, which was claimed: %v", id, was)
		c.Equal(j.State == store.InFlight, was, "whether job %d is in flight", id)
	}
}
