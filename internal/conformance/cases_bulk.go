package conformance

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// A bulk is one of Cancel, Requeue, Reschedule and Delete, which choose their jobs in the same way.
type bulk struct {
	op    store.Op
	call  func(s store.Store, ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error)
	from  store.State  // a phase that it leaves
	to    store.State  // the phase it leads to
	not   store.State  // a phase that it does not leave
	again store.Status // the outcome of a job that was just changed
	stays bool         // a job that was just changed still matches
}

var (
	cancelling   = bulk{store.OpCancel, store.Store.Cancel, store.InFlight, store.Cancelled, store.Succeeded, store.StatusOK, false}
	requeueing   = bulk{store.OpRequeue, store.Store.Requeue, store.Dead, store.Ready, store.InFlight, store.StatusWrongState, false}
	rescheduling = bulk{store.OpReschedule, func(s store.Store, ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
		return s.Reschedule(ctx, filter, time.Time{}, limit) // to now
	}, store.Retrying, store.Retrying, store.InFlight, store.StatusOK, true}
	deleting = bulk{store.OpDelete, store.Store.Delete, store.Succeeded, store.Gone, store.Retrying, store.StatusNotFound, false}
)

// cases are those that Cancel, Requeue, Reschedule and Delete share. The contract says for Cancel what they prove.
func (b bulk) cases(group string) []Case {
	cases := []Case{
		{"/AnswersEachIDInOrderWhateverTheLimit", "If the filter has IDs, the answer has one outcome per id, in the order of the filter's IDs, whatever the limit. A job that does not match the rest of the filter is not_found.", b.answersEachID},
		{"/FirstOnesByRisingID", "If the filter has no IDs, the answer has one outcome per job that was changed: the first jobs that match and can be changed, in ascending order of id, and at most limit of them.\nTo continue, set the filter's After to the last id of the answer.", b.goesByRisingID},
		{"/LimitsAreKept", "The call returns ErrInvalid for an empty filter.\nA call has at most 1,000 items, and a call of Fire at most 100. Its strings and documents, without the request key, have at most 8 MiB in all.", b.keepsItsLimits},
		{"/PatternsChooseQueues", "the queue matches one of these: a name, or a prefix followed by *", b.heedsQueues},
		{"/ManyCallersChangeEachJobOnce", "Any goroutine may call any method at any time, even while other goroutines make calls for the same job.", b.changesEachOnce},
	}
	for i := range cases {
		cases[i].Name = group + cases[i].Name
		cases[i].Sentence += "\nFilter, limit and order work as in Cancel."
	}
	return cases
}

// noJob is an id that no case reaches.
const noJob = math.MaxInt64 / 2

// on calls the operation and ends the case if it fails.
func (b bulk) on(c *C, filter store.Filter, limit int) []store.Outcome {
	outcomes, err := b.call(c.Store, c.Ctx, filter, limit)
	c.OK(err, "the call with %+v and limit %d", filter, limit)
	return outcomes
}

// done are the outcomes of jobs that were just changed, as they now stand.
func (b bulk) done(c *C, ids ...int64) []store.Outcome {
	var want []store.Outcome
	for _, id := range ids {
		if b.to == store.Gone {
			want = append(want, store.Outcome{ID: id, Status: store.StatusOK})
			continue
		}
		j := c.Get(id).Job
		c.Equal(j.Phase(), b.to, "the phase of job %d", id)
		want = append(want, store.OutcomeOf(j, store.StatusOK))
	}
	return want
}

// manyIn brings n new jobs of the queue into the phase.
func (c *C) manyIn(phase store.State, n int) []int64 {
	var list []int64
	for range n {
		list = append(list, c.JobIn(phase).ID)
	}
	return list
}

// everything is all that the store shows of its jobs.
func (c *C) everything() []store.JobDetail {
	var all []store.JobDetail
	for _, j := range c.All() {
		all = append(all, c.Get(j.ID))
	}
	return all
}

// changesNothing checks that f leaves every job and its history as they are.
func (c *C) changesNothing(what string, f func()) {
	before := c.everything()
	f()
	c.Equal(c.everything(), before, "all jobs after %s", what)
}

// keepsItsLimits: the limit is 1 to 1,000, with ids too, of which there are at most 1,000. A filter with nothing but After is
// empty too: it would mean every job.
func (b bulk) keepsItsLimits(c *C) {
	id := c.JobIn(b.from).ID
	c.changesNothing("calls beyond the limits", func() {
		refused := func(filter store.Filter, limit int) {
			outcomes, err := b.call(c.Store, c.Ctx, filter, limit)
			c.ErrorIs(err, store.ErrInvalid, "limit %d with filter %.200v", limit, filter)
			c.Equal(outcomes, []store.Outcome(nil), "outcomes with limit %d and filter %.200v", limit, filter)
		}
		for _, limit := range []int{-1, 0, store.MaxItems + 1} {
			refused(only(id), limit)
			refused(store.Filter{Queue: queue}, limit)
		}
		wrong := append(wrongFilters(), only(slices.Repeat([]int64{id}, store.MaxItems+1)...))
		for _, filter := range append(wrong, store.Filter{}, store.Filter{After: id - 1}, store.Filter{IDs: []int64{}, States: []store.State{}}) {
			refused(filter, 1)
		}
	})
	outcomes := b.on(c, only(slices.Repeat([]int64{id}, store.MaxItems)...), store.MaxItems)
	c.Equal(len(outcomes), store.MaxItems, "outcomes for 1,000 ids")
	c.Equal(outcomes[0], b.done(c, id)[0], "the first of 1,000 outcomes for one id")
}

// answersEachID: in the order of the ids, and whatever the limit. An id chooses only with every other field that is set.
func (b bulk) answersEachID(c *C) {
	list := c.manyIn(b.from, 4)
	other := c.JobIn(b.not).Job
	bystander := c.Get(list[3])
	for _, rest := range []store.Filter{
		{Queue: "another"}, {Queues: []string{"another", "another*"}}, {Kind: "another"}, {Tag: "another"}, {After: list[0]},
		{States: []store.State{b.not}}, {FinishedFor: store.Resolution},
	} {
		rest.IDs = list[:1]
		c.changesNothing("ids that do not match the rest", func() {
			c.Equal(b.on(c, rest, 10), []store.Outcome{{ID: list[0], Status: store.StatusNotFound}}, "outcomes of %+v", rest)
		})
	}

	outcomes := b.on(c, only(list[2], noJob, list[0], other.ID, list[1]), 1)

	done := b.done(c, list[2], list[0], list[1])
	want := []store.Outcome{
		done[0], {ID: noJob, Status: store.StatusNotFound}, done[1], store.OutcomeOf(other, store.StatusWrongState), done[2],
	}
	c.Equal(outcomes, want, "outcomes by id, with limit 1")
	c.Equal(c.Get(other.ID).Job, other, "the job in the wrong state")
	c.Equal(c.Get(bystander.ID), bystander, "the job that was not named")

	outcomes = b.on(c, store.Filter{IDs: []int64{list[3], list[0]}, Queue: queue, After: list[0], States: []store.State{b.from}}, 10)
	want = append(b.done(c, list[3]), store.Outcome{ID: list[0], Status: store.StatusNotFound})
	c.Equal(outcomes, want, "outcomes of ids of which one matches the rest")
}

// goesByRisingID: without ids the first jobs that can be changed, at most limit of them, and After leads on.
func (b bulk) goesByRisingID(c *C) {
	var list []int64
	for range 5 {
		list = append(list, c.JobIn(b.from).ID)
		c.JobIn(b.not)
	}
	filter := store.Filter{Queue: queue}
	for _, want := range [][]int64{list[:2], list[2:4], list[4:], nil} {
		outcomes := b.on(c, filter, 2)
		c.Equal(outcomes, b.done(c, want...), "outcomes with %+v and limit 2", filter)
		if len(want) > 0 {
			filter.After = want[len(want)-1]
		}
	}
}

// heedsQueues: the first jobs of the queues that the patterns choose, also beside Queue and ids. Queues alone are a choice, even if they
// choose every queue.
func (b bulk) heedsQueues(c *C) {
	list := map[string]int64{}
	end := map[store.State]store.Op{store.Dead: store.OpNever, store.Succeeded: store.OpAck, store.InFlight: store.OpExtend, store.Retrying: store.OpAfter}[b.from]
	for _, name := range []string{"a_b", "ab", "aXb", "A_b", "a_", "b", "a_c"} {
		held := holding(c, name, 1)[0]
		takes(c, end, held, "in queue %s", name)
		list[name] = held.ID
	}
	changed := map[string]bool{}
	changes := func(filter store.Filter, limit int, matching ...string) {
		outcomes := b.on(c, filter, limit)
		var want []int64
		for _, name := range matching {
			if len(want) < limit && (b.stays || !changed[name]) {
				want, changed[name] = append(want, list[name]), true
			}
		}
		c.Equal(outcomes, b.done(c, want...), "outcomes of %+v, at most %d", filter, limit)
	}
	changes(store.Filter{Queues: []string{"a_*"}}, 1, "a_b", "a_", "a_c")
	changes(store.Filter{Queues: []string{"a_*", "a_c"}}, 10, "a_b", "a_", "a_c")
	changes(store.Filter{Queues: []string{"a_*"}}, 10, "a_b", "a_", "a_c")
	changes(store.Filter{Queues: []string{"a*"}, Queue: "b"}, 10)
	changes(store.Filter{Queues: []string{"a*"}, Queue: "ab"}, 10, "ab")

	named := store.Filter{Queues: []string{"a*"}, IDs: []int64{list["b"], list["aXb"]}}
	outcomes := b.on(c, named, 10)
	changed["aXb"] = true
	want := append([]store.Outcome{{ID: list["b"], Status: store.StatusNotFound}}, b.done(c, list["aXb"])...)
	c.Equal(outcomes, want, "outcomes of ids, of which one is in a queue that was chosen")
	changes(store.Filter{Queues: []string{"*"}}, 10, "a_b", "ab", "aXb", "A_b", "a_", "b", "a_c")
}

// changesEachOnce: calls at the same time, by ids and by filter, share the jobs, and each is changed by one of them.
func (b bulk) changesEachOnce(c *C) {
	list := c.manyIn(b.from, 20)
	before := map[int64]store.JobDetail{}
	for _, d := range c.everything() {
		before[d.ID] = d
	}
	answers := make([][]store.Outcome, 8)
	c.Parallel(len(answers), func(i int) {
		filter := only(list...)
		if i%2 == 1 {
			filter = store.Filter{Queue: queue}
		}
		answers[i] = b.on(c, filter, len(list))
	})
	changed := map[int64]int{}
	for _, o := range slices.Concat(answers...) {
		if o.Status == store.StatusOK {
			changed[o.ID]++
			continue
		}
		c.Equal(o.Status, b.again, "the outcome of job %d, which another caller has changed", o.ID)
	}
	for _, id := range list {
		if b.again != store.StatusOK {
			c.Equal(changed[id], 1, "how many of eight callers changed job %d", id)
		}
		if after, there := lookAt(c, id); there {
			c.Equal(after, becomes(b.op, before[id], c.Now()), "job %d", id)
		}
	}
}

var cancelCases = append([]Case{
	{"Cancel/FencedNotStopped", "Cancel fences a job in flight but does not stop its handler. The worker learns of the cancellation at its next Extend, and until then the handler may run at the same time as a new job with the same unique key.", cancelFencedNotStopped},
}, cancelling.cases("Cancel")...)

func cancelFencedNotStopped(c *C) {
	first := c.Enqueue(keyed("key", 0))[0]
	running := c.ClaimOne()
	c.Cancel(first)
	second := c.free(keyed("key", 0), "its holder was cancelled")
	beside := c.ClaimOne()
	c.Equal(beside.ID, second, "the job that runs beside the cancelled one")
	c.Equal(c.Extend(running.Lease()).Status, store.StatusCancelled, "the next Extend of the cancelled one")
	c.Equal(c.Ack(beside.Lease()).Status, store.StatusOK, "Ack of the new one")
}

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

func deleteIDsAreNeverUsedAgain(c *C) { c.usesNoIDAgain(func() {}) }

// usesNoIDAgain deletes jobs, in turns all of them and only the newest, and adds others after what comes between.
func (c *C) usesNoIDAgain(between func()) {
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
		between()
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
