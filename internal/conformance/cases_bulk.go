package conformance

import (
	"context"
	"math"
	"slices"

	"github.com/seed-ed332417/jq/internal/store"
)

// A bulk is one of Cancel, Requeue and Delete, which choose their jobs in the same way.
type bulk struct {
	call func(s store.Store, ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error)
	from store.State // a phase that it leaves
	to   store.State // the phase it leads to
	not  store.State // a phase that it does not leave
}

var (
	cancelling = bulk{store.Store.Cancel, store.InFlight, store.Cancelled, store.Succeeded}
	requeueing = bulk{store.Store.Requeue, store.Dead, store.Ready, store.InFlight}
	deleting   = bulk{store.Store.Delete, store.Succeeded, store.Gone, store.Retrying}
)

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

// refusesAnEmptyFilter: a filter with nothing but After would mean every job.
func (b bulk) refusesAnEmptyFilter(c *C) {
	first := c.JobIn(b.from).ID
	c.JobIn(b.from)
	c.changesNothing("empty filters", func() {
		for _, filter := range []store.Filter{{}, {After: first - 1}, {IDs: []int64{}, States: []store.State{}}} {
			outcomes, err := b.call(c.Store, c.Ctx, filter, 10)
			c.ErrorIs(err, store.ErrInvalid, "an empty filter %+v", filter)
			c.Equal(outcomes, []store.Outcome(nil), "outcomes for an empty filter %+v", filter)
		}
	})
}

// keepsItsLimits: the limit is 1 to 1,000, with ids too, of which there are at most 1,000.
func (b bulk) keepsItsLimits(c *C) {
	id := c.JobIn(b.from).ID
	c.changesNothing("calls beyond the limits", func() {
		for _, limit := range []int{-1, 0, store.MaxItems + 1} {
			for _, filter := range []store.Filter{only(id), {Queue: queue}} {
				_, err := b.call(c.Store, c.Ctx, filter, limit)
				c.ErrorIs(err, store.ErrInvalid, "limit %d with %+v", limit, filter)
			}
		}
		_, err := b.call(c.Store, c.Ctx, only(slices.Repeat([]int64{id}, store.MaxItems+1)...), 1)
		c.ErrorIs(err, store.ErrInvalid, "1,001 ids")
		for _, filter := range wrongFilters() {
			_, err := b.call(c.Store, c.Ctx, filter, 1)
			c.ErrorIs(err, store.ErrInvalid, "filter %+v", filter)
		}
	})
	outcomes := b.on(c, only(slices.Repeat([]int64{id}, store.MaxItems)...), store.MaxItems)
	c.Equal(len(outcomes), store.MaxItems, "outcomes for 1,000 ids")
	c.Equal(outcomes[0], b.done(c, id)[0], "the first of 1,000 outcomes for one id")
}

// answersEachID: in the order of the ids, and whatever the limit.
func (b bulk) answersEachID(c *C) {
	list := c.manyIn(b.from, 4)
	other := c.JobIn(b.not).Job
	bystander := c.Get(list[3])

	outcomes := b.on(c, only(list[2], noJob, list[0], other.ID, list[1]), 1)

	done := b.done(c, list[2], list[0], list[1])
	want := []store.Outcome{
		done[0], {ID: noJob, Status: store.StatusNotFound}, done[1], store.OutcomeOf(other, store.StatusWrongState), done[2],
	}
	c.Equal(outcomes, want, "outcomes by id, with limit 1")
	c.Equal(c.Get(other.ID).Job, other, "the job in the wrong state")
	c.Equal(c.Get(bystander.ID), bystander, "the job that was not named")
}

// heedsTheRestOfTheFilter: an id chooses only with every other field that is set.
func (b bulk) heedsTheRestOfTheFilter(c *C) {
	list := c.manyIn(b.from, 2)
	missed := func(filter store.Filter) {
		c.changesNothing("ids that do not match the rest", func() {
			c.Equal(b.on(c, filter, 10), []store.Outcome{{ID: list[0], Status: store.StatusNotFound}}, "outcomes of %+v", filter)
		})
	}
	missed(store.Filter{IDs: list[:1], Queue: "another"})
	missed(store.Filter{IDs: list[:1], Queues: []string{"another", "another*"}})
	missed(store.Filter{IDs: list[:1], Kind: "another"})
	missed(store.Filter{IDs: list[:1], Tag: "another"})
	missed(store.Filter{IDs: list[:1], After: list[0]})
	missed(store.Filter{IDs: list[:1], States: []store.State{b.not}})
	missed(store.Filter{IDs: list[:1], FinishedFor: store.Resolution})

	outcomes := b.on(c, store.Filter{IDs: []int64{list[1], list[0]}, Queue: queue, After: list[0], States: []store.State{b.from}}, 10)
	want := append(b.done(c, list[1]), store.Outcome{ID: list[0], Status: store.StatusNotFound})
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
	for _, name := range []string{"a_b", "ab", "aXb", "A_b", "a_", "b", "a_c"} {
		list[name] = c.leaving(b.from, name)
	}
	changes := func(filter store.Filter, limit int, names ...string) {
		outcomes := b.on(c, filter, limit)
		var want []int64
		for _, name := range names {
			want = append(want, list[name])
		}
		c.Equal(outcomes, append([]store.Outcome{}, b.done(c, want...)...), "outcomes of %+v, at most %d", filter, limit)
	}
	changes(store.Filter{Queues: []string{"a_*"}}, 1, "a_b")
	changes(store.Filter{Queues: []string{"a_*", "a_c"}}, 10, "a_", "a_c")
	changes(store.Filter{Queues: []string{"a_*"}}, 10)
	changes(store.Filter{Queues: []string{"a*"}, Queue: "b"}, 10)
	changes(store.Filter{Queues: []string{"a*"}, Queue: "ab"}, 10, "ab")

	named := store.Filter{Queues: []string{"a*"}, IDs: []int64{list["b"], list["aXb"]}}
	outcomes := b.on(c, named, 10)
	want := append([]store.Outcome{{ID: list["b"], Status: store.StatusNotFound}}, b.done(c, list["aXb"])...)
	c.Equal(outcomes, want, "outcomes of ids, of which one is in a queue that was chosen")
	changes(store.Filter{Queues: []string{"*"}}, 10, "A_b", "b")
}

// leaving is a new job of the queue in a phase that a bulk call leaves.
func (c *C) leaving(phase store.State, name string) int64 {
	id := c.Enqueue(plainBut(func(n *store.NewJob) { n.Queue = name }))[0]
	l := c.ClaimBy(store.ClaimRequest{Queue: name, Limit: 1, Worker: worker, TTL: ttl})[0].Lease()
	switch phase {
	case store.Dead:
		c.NAck(l, store.Never, 0, "boom")
	case store.Succeeded:
		c.Ack(l)
	}
	return id
}

// changesEachOnce: calls at the same time share the jobs, and each is changed by one of them.
func (b bulk) changesEachOnce(c *C, again store.Status) {
	list := c.manyIn(b.from, 20)
	answers := make([][]store.Outcome, 8)
	c.Parallel(len(answers), func(i int) {
		outcomes, err := b.call(c.Store, c.Ctx, only(list...), 1)
		if err != nil {
			c.Errorf("the call: %v", err)
		}
		answers[i] = outcomes
	})
	for i, id := range list {
		var got []store.Status
		for _, outcomes := range answers {
			got = append(got, outcomes[i].Status)
		}
		slices.Sort(got)
		want := slices.Repeat([]store.Status{again}, len(answers))
		want[0] = store.StatusOK
		slices.Sort(want)
		c.Equal(got, want, "outcomes for job %d, by eight callers", id)
	}
}
