package conformance

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

var requeueCases = []Case{
	{"Requeue/MakesTerminalJobsReadyAgain", "Requeue makes terminal jobs ready again: due now, with no retries counted.", requeueMakesTerminalJobsReadyAgain},
	{"Requeue/ClearsErrorAndResultKeepsCheckpointUnlessSucceeded", "The token grows and attempts stay. Error and result are cleared; checkpoint and progress stay, unless the job had succeeded: then they go too, with their numbers.", requeueClearsErrorAndResult},
	{"Requeue/EmptyFilterIsRefused", "Filter, limit and order are as for Cancel.", func(c *C) { requeueing.refusesAnEmptyFilter(c) }},
	{"Requeue/LimitsAreKept", "Filter, limit and order are as for Cancel.", func(c *C) { requeueing.keepsItsLimits(c) }},
	{"Requeue/AnswersEachIDInOrderWhateverTheLimit", "Filter, limit and order are as for Cancel.", func(c *C) { requeueing.answersEachID(c) }},
	{"Requeue/IDsAreChosenByTheRestOfTheFilterToo", "Filter, limit and order are as for Cancel.", func(c *C) { requeueing.heedsTheRestOfTheFilter(c) }},
	{"Requeue/FirstOnesByRisingID", "Filter, limit and order are as for Cancel.", func(c *C) { requeueing.goesByRisingID(c) }},
	{"Requeue/PatternsChooseQueues", "in one of these: a name, or the beginning of names with a * behind it", func(c *C) { requeueing.heedsQueues(c) }},
	{"Requeue/TakesItsUniqueKeyAgain", "A job whose unique key another one holds stays as it was; a job without a window takes its key again.", requeueTakesItsUniqueKeyAgain},
	{"Requeue/WindowIsNotProlonged", "A job whose unique key another one holds stays as it was; a job without a window takes its key again.", requeueWindowIsNotProlonged},
	{"Requeue/EndedWindowHeldByAnotherIsDuplicate", "duplicate another job, which Reason names, holds its unique key; this one stays as it was;", requeueEndedWindowHeldByAnotherIsDuplicate},
	{"Requeue/EndedWindowOfAnotherHoldsNothing", "A window ends when now reaches it.", requeueEndedWindowOfAnotherHoldsNothing},
	{"Requeue/DeadJobWhoseKeyIsHeldBlocksNothingElse", "duplicate another job, which Reason names, holds its unique key; this one stays as it was;", requeueDeadJobWhoseKeyIsHeldBlocksNothingElse},
	{"Requeue/TwoDeadJobsOfOneKey", "duplicate another job, which Reason names, holds its unique key; this one stays as it was;", requeueTwoDeadJobsOfOneKey},
	{"Requeue/DuplicatesCountForTheLimit", "Without IDs, duplicates are among the outcomes and count for the limit.", requeueDuplicatesCountForTheLimit},
	{"Requeue/NoJobTwiceInACall", "A call requeues no job twice.", requeueNoJobTwiceInACall},
	{"Requeue/NoJobTwiceInACallBesideItsWorker", "A call requeues no job twice.", requeueNoJobTwiceBesideItsWorker},
	{"Requeue/ManyCallersRequeueEachJobOnce", "Any method may be called at any time, from any goroutine, also for one job.", func(c *C) { requeueing.changesEachOnce(c, store.StatusWrongState) }},
	{"Requeue/RacingEnqueueOfItsKeyIsDecidedOnce", "A unique key is its own scope, over all queues and kinds, and has at most one holder.", requeueRacingEnqueueIsDecidedOnce},
}

var terminalPhases = []store.State{store.Succeeded, store.Dead, store.Cancelled}

// requeuedNow is the job as it must be after it was requeued at now.
func requeuedNow(before store.JobDetail, now time.Time) store.JobDetail {
	after := before
	after.State, after.Token, after.Retries, after.RunAt = store.Ready, before.Token+1, 0, now
	after.Error, after.Result, after.FinishedAt = "", nil, time.Time{}
	if before.State == store.Succeeded {
		after.Checkpoint, after.CheckpointSeq, after.Progress, after.ProgressSeq = nil, 0, nil, 0
	}
	return after
}

func requeueMakesTerminalJobsReadyAgain(c *C) {
	for _, phase := range terminalPhases {
		before := c.JobIn(phase)
		c.Advance(time.Second)

		got := c.Requeue(before.ID)

		want := requeuedNow(before, c.Now())
		c.Equal(c.Get(before.ID), want, "a job that was %s and is requeued", phase)
		c.Equal(got, store.OutcomeOf(want.Job, store.StatusOK), "the outcome")

		c.Advance(time.Second)
		claimed := want.Job
		claimed.State, claimed.Token, claimed.Attempts = store.InFlight, want.Token+1, want.Attempts+1
		claimed.Worker, claimed.LeaseExpiresAt = worker, c.Now().Add(ttl)
		claimed.CheckpointSeq, claimed.ProgressSeq = 0, 0
		c.Equal(c.Claim(10), []store.Job{claimed}, "claimed after it was requeued")
	}
}

func requeueClearsErrorAndResult(c *C) {
	for _, phase := range terminalPhases {
		id := c.EnqueueOne()
		c.NAck(c.ClaimOne().Lease(), store.After, 0, "the first try failed")
		held := c.ClaimBy(store.ClaimRequest{Queue: queue, Limit: 1, RetryQuota: 1, Worker: worker, TTL: ttl})[0]
		c.One(c.Store.Save(c.Ctx, []store.Save{{Lease: held.Lease(), Seq: 5, Checkpoint: []byte(`"c"`), Progress: []byte(`"p"`)}}))
		switch phase {
		case store.Succeeded:
			c.One(c.Store.Ack(c.Ctx, []store.Ack{{Lease: held.Lease(), Result: []byte(`"r"`)}}))
		case store.Dead:
			c.NAck(held.Lease(), store.Never, 0, "boom")
		case store.Cancelled:
			c.Cancel(id)
		}
		before := c.Get(id)
		c.Equal(before.Phase(), phase, "the phase before Requeue")

		c.Requeue(id)

		c.Equal(c.Get(id), requeuedNow(before, c.Now()), "a %s job with documents that is requeued", phase)
		c.Cancel(id)
	}
}

func requeueNoJobTwiceInACall(c *C) {
	before := c.JobIn(store.Dead)
	outcomes := requeueing.on(c, only(before.ID, before.ID), 10)
	want := requeuedNow(before, c.Now())
	c.Equal(outcomes, []store.Outcome{
		store.OutcomeOf(want.Job, store.StatusOK), store.OutcomeOf(want.Job, store.StatusWrongState),
	}, "outcomes of a job that stands twice")
	c.Equal(c.Get(before.ID), want, "the requeued job")
}

// A worker that kills jobs as fast as they come back must not keep one call busy.
func requeueNoJobTwiceBesideItsWorker(c *C) {
	c.manyIn(store.Dead, 10)
	var done atomic.Bool
	c.Parallel(2, func(i int) {
		if i == 0 {
			for !done.Load() {
				c.killOne()
			}
			return
		}
		defer done.Store(true)
		for range 30 {
			outcomes, err := c.Store.Requeue(c.Ctx, store.Filter{Queue: queue}, 100)
			if err != nil {
				c.Errorf("Requeue: %v", err)
			}
			var list []int64
			for _, o := range outcomes {
				c.Equal(o.Status, store.StatusOK, "the outcome of job %d", o.ID)
				list = append(list, o.ID)
			}
			c.True(slices.IsSorted(list) && len(slices.Compact(slices.Clone(list))) == len(list), "each job once, by rising id: %v", list)
		}
	})
}

func (c *C) killOne() {
	jobs, err := c.Store.FetchAndClaim(c.Ctx, claimOf(1))
	if err != nil {
		c.Errorf("FetchAndClaim: %v", err)
	}
	for _, j := range jobs {
		if _, err := c.Store.NAck(c.Ctx, []store.NAck{{Lease: j.Lease(), Form: store.Never}}); err != nil {
			c.Errorf("NAck: %v", err)
		}
	}
}
