package conformance

import (
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

var cancelCases = []Case{
	{"Cancel/EndsEveryLiveJob", "Cancel ends jobs that are not terminal, also those in flight: their leases are stale from then on.", cancelEndsEveryLiveJob},
	{"Cancel/EmptyFilterIsRefused", "An empty filter is ErrInvalid.", func(c *C) { cancelling.refusesAnEmptyFilter(c) }},
	{"Cancel/LimitsAreKept", "A call has at most 1,000 items and 8 MiB in all, counted over its strings and documents, its request key aside.", func(c *C) { cancelling.keepsItsLimits(c) }},
	{"Cancel/AnswersEachIDInOrderWhateverTheLimit", "With IDs, the answer has one outcome per id, in their order, whatever the limit; a job that does not match the rest of the filter is not_found.", func(c *C) { cancelling.answersEachID(c) }},
	{"Cancel/IDsAreChosenByTheRestOfTheFilterToo", "a job that does not match the rest of the filter is not_found.", func(c *C) { cancelling.heedsTheRestOfTheFilter(c) }},
	{"Cancel/FirstOnesByRisingID", "Without, it has one per job that was changed: the first ones that match and can be changed, by rising id, at most limit.", func(c *C) { cancelling.goesByRisingID(c) }},
	{"Cancel/PatternsChooseQueues", "in one of these: a name, or the beginning of names with a * behind it", func(c *C) { cancelling.heedsQueues(c) }},
	{"Cancel/AfterContinues", "Continue with After.", cancelAfterContinues},
	{"Cancel/EveryFieldOfTheFilterChooses", "the first ones that match and can be changed, by rising id, at most limit.", cancelEveryFieldOfTheFilterChooses},
	{"Cancel/FencedNotStopped", "A cancelled job is fenced, not stopped: its handler learns of it at its next Extend, and until then may run beside a new job with the same unique key.", cancelFencedNotStopped},
	{"Cancel/ManyCallersCancelEachJobOnce", "Any method may be called at any time, from any goroutine, also for one job.", cancelManyCallersCancelEachJobOnce},
	{"Cancel/RacingAckIsDecidedOnce", "A call takes effect as a whole, at one moment between its start and its return, or not at all.", cancelRacingAckIsDecidedOnce},
}

// cancelledNow is the job as it must be after it was cancelled at now.
func cancelledNow(before store.JobDetail, now time.Time) store.JobDetail {
	after := before
	after.History = slices.Clone(before.History)
	if last := len(after.History) - 1; before.State == store.InFlight {
		after.History[last].EndedAt, after.History[last].Ending = now, store.EndCancelled
	}
	after.State, after.Token, after.FinishedAt = store.Cancelled, before.Token+1, now
	after.LeaseExpiresAt, after.RetryAt = time.Time{}, time.Time{}
	return after
}

func cancelEndsEveryLiveJob(c *C) {
	for _, phase := range []store.State{store.InFlight, store.Retrying, store.Ready} {
		before := c.JobIn(phase)
		c.Advance(time.Millisecond)

		got := c.Cancel(before.ID)

		want := cancelledNow(before, c.Now())
		c.Equal(c.Get(before.ID), want, "a job that was %s and is cancelled", phase)
		c.Equal(got, store.OutcomeOf(want.Job, store.StatusOK), "the outcome")
	}
	c.Advance(time.Hour)
	c.Equal(ids(c.Claim(10)), []int64{}, "claimed of cancelled jobs")
	c.Equal(c.Recover(10), []store.Recovered{}, "recovered of cancelled jobs")
}

func cancelAfterContinues(c *C) {
	list := c.EnqueueN(7)
	filter := store.Filter{Queue: queue, States: []store.State{store.Ready}}
	for at := 0; at < len(list); at += 3 {
		part := list[at:min(at+3, len(list))]
		c.Equal(cancelling.on(c, filter, 3), cancelling.done(c, part...), "cancelled by %+v", filter)
		filter.After = part[len(part)-1]
	}
	c.Equal(cancelling.on(c, filter, 3), []store.Outcome{}, "cancelled after the last")
}

// Each filter is tried on its own crowd of jobs, which differ in everything that a filter knows.
func cancelEveryFieldOfTheFilterChooses(c *C) {
	live := []int{0, 1, 2, 6}
	for _, number := range []int{4, 7, 9, 12, 13, 14, 15, 16, 18, 21, 25, 26} {
		crowd := c.crowd()
		k := crowd.choices()[number]
		k.filter.After = max(k.filter.After, crowd.ids[0]-1) // not those of the crowds before
		var want []int64
		for _, n := range k.want {
			if slices.Contains(live, n) {
				want = append(want, crowd.ids[n])
			}
		}
		outcomes := cancelling.on(c, k.filter, 100)
		c.Equal(outcomes, cancelling.done(c, want...), "cancelled by %+v", k.filter)
		for n, id := range crowd.ids {
			changed := slices.Contains(want, id) || n == 5 || n == 7
			c.Equal(c.Get(id).State == store.Cancelled, changed, "job %d is cancelled after %+v", n, k.filter)
		}
		cancelling.on(c, store.Filter{After: crowd.ids[0] - 1, States: store.Phases}, 100)
	}
}

func cancelFencedNotStopped(c *C) {
	job := plainBut(func(n *store.NewJob) { n.UniqueKey = "key" })
	first := c.Enqueue(job)[0]
	running := c.ClaimOne()
	c.Cancel(first)

	second := c.Enqueue(job)[0]
	c.True(second != first, "the key of a cancelled job is free")
	beside := c.ClaimOne()
	c.Equal(beside.ID, second, "the job that runs beside the cancelled one")
	c.Equal(c.Extend(running.Lease()).Status, store.StatusCancelled, "the next Extend of the cancelled one")
	c.Equal(c.Ack(beside.Lease()).Status, store.StatusOK, "Ack of the new one")
}

func cancelManyCallersCancelEachJobOnce(c *C) {
	list := c.manyIn(store.InFlight, 20)
	before := map[int64]store.JobDetail{}
	for _, id := range list {
		before[id] = c.Get(id)
	}
	c.Parallel(8, func(i int) {
		filter := only(list...)
		if i%2 == 1 {
			filter = store.Filter{Queue: queue}
		}
		outcomes, err := c.Store.Cancel(c.Ctx, filter, len(list))
		if err != nil {
			c.Errorf("Cancel %+v: %v", filter, err)
		}
		for _, o := range outcomes {
			c.Equal(o.Status, store.StatusOK, "the outcome of job %d", o.ID)
		}
	})
	for _, id := range list {
		c.Equal(c.Get(id), cancelledNow(before[id], c.Now()), "job %d", id)
	}
}

func cancelRacingAckIsDecidedOnce(c *C) {
	list := c.manyIn(store.InFlight, 40)
	for _, id := range list {
		before := c.Get(id)
		var ack, cancel []store.Outcome
		c.Parallel(2, func(i int) {
			var err error
			if i == 0 {
				ack, err = c.Store.Ack(c.Ctx, []store.Ack{{Lease: before.Lease()}})
			} else {
				cancel, err = c.Store.Cancel(c.Ctx, only(id), 1)
			}
			if err != nil {
				c.Errorf("caller %d: %v", i, err)
			}
		})
		want := []store.Status{store.StatusOK, store.StatusWrongState}
		if after := c.Get(id); after.State == store.Cancelled {
			want = []store.Status{store.StatusStale, store.StatusOK}
			c.Equal(after, cancelledNow(before, c.Now()), "the cancelled job")
		}
		c.Equal(statuses(slices.Concat(ack, cancel)), want, "Ack and Cancel of job %d at once", id)
	}
}
