package conformance

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// joinsUp reads pages of every size: each is as long as it can be, the last has an empty Next, and all together are what is wanted.
func joinsUp[T any](c *C, want []T, read func(store.Page) ([]T, string)) {
	for size := 1; size <= len(want)+1; size++ {
		var got []T
		pages := 0
		for page := (store.Page{Limit: size}); pages == 0 || page.Cursor != ""; pages++ {
			part, next := read(page)
			c.Equal(len(part), min(size, len(want)-len(got)), "how long page %d of size %d is", pages, size)
			got = append(got, part...)
			page.Cursor = next
			if pages > len(want) {
				c.Fatalf("pages of size %d do not end", size)
			}
		}
		c.Equal(got, want, "all pages of size %d", size)
		c.Equal(pages, (len(want)+size-1)/size, "pages of size %d", size)
	}
}

func inspectPagesOfEverySizeJoinUp(c *C) {
	list := c.EnqueueN(12)
	slices.Reverse(list)
	joinsUp(c, list, func(page store.Page) ([]int64, string) {
		part := c.page(store.Filter{Queue: queue}, page)
		return ids(part.Jobs), part.Next
	})
}

// wrongCursors are none, made from one that is.
func wrongCursors(right string) []string {
	return []string{"x", right[1:], right + "A", strings.Repeat("A", len(right)), "1", "ä\x00"}
}

// Between the pages the store lives on: jobs come, go and change, the one at the edge of the page first of all.
func inspectPagesSkipAndRepeatNothing(c *C) {
	const size = 3
	list := c.EnqueueN(30)
	filter := store.Filter{Queue: queue, States: []store.State{store.Ready}}
	gone := map[int64]bool{}
	var got []int64
	for page := (store.Page{Limit: size}); ; {
		part := c.page(filter, page)
		got = append(got, ids(part.Jobs)...)
		if part.Next == "" {
			break
		}
		page.Cursor = part.Next
		edge := part.Jobs[len(part.Jobs)-1].ID
		c.Cancel(edge)
		c.Delete(edge)
		if next := slices.Index(list, edge) - 1; next > 0 && len(got)%2 == 0 {
			gone[list[next]] = true
			c.Cancel(list[next])
		}
		c.EnqueueN(2)
	}
	want := slices.DeleteFunc(slices.Clone(list), func(id int64) bool { return gone[id] })
	slices.Reverse(want)
	c.Equal(got, want, "jobs that were there before the first page and did not change")
	c.True(len(gone) > 2, "jobs changed ahead of the reader: %d", len(gone))
}

// The ids come in no order, and some twice.
func inspectPagesOfChosenIDs(c *C) {
	list := c.EnqueueN(9)
	c.Equal(c.Claim(2)[1].ID, list[1], "the second job, which is claimed")
	filter := only(list[4], list[7], noJob, list[1], list[0], list[7], list[8], list[4], list[3])
	want := []int64{list[8], list[7], list[4], list[3], list[1], list[0]}
	ready := filter
	ready.States = []store.State{store.Ready}
	for size := 1; size <= len(want)+1; size++ {
		c.Equal(ids(c.List(filter, size)), want, "the chosen jobs, in pages of %d", size)
		c.Equal(ids(c.List(ready, size)), want[:4], "the chosen jobs that are ready, in pages of %d", size)
	}
}

// inspectPageEndsBeforeItWeighsTooMuch has jobs with four documents each, so that two of them are just not too much.
func inspectPageEndsBeforeItWeighsTooMuch(c *C) {
	list := c.enqueueHeavy(3)
	for _, j := range c.Claim(3) {
		c.saveHeavy(j)
		outcome := c.One(c.Store.Ack(c.Ctx, []store.Ack{{Lease: j.Lease(), Result: docOf(store.MaxDocBytes)}}))
		c.Equal(outcome.State, store.Succeeded, "an Ack with a result of 1 MiB")
	}
	slices.Reverse(list)

	filter := store.Filter{Queue: queue}
	first := c.page(filter, store.Page{Limit: 100})
	c.Equal(ids(first.Jobs), list[:2], "the first page of jobs that weigh 4 MiB each")
	c.True(first.Next != "", "the first page is not the last")
	second := c.page(filter, store.Page{Limit: 100, Cursor: first.Next})
	c.Equal(ids(second.Jobs), list[2:], "the second page")
	c.Equal(second.Next, "", "what follows the second page")

	c.drop(list[:1])
	only := c.page(filter, store.Page{Limit: 100})
	c.Equal(ids(only.Jobs), list[1:], "the only page, once the newest job is gone")
	c.Equal(only.Next, "", "what follows the only page")
	c.drop(list[1:])
}

func inspectCursorOfAnotherFilterIsRefused(c *C) {
	c.EnqueueN(4)
	filter := store.Filter{Queue: queue}
	first := c.page(filter, store.Page{Limit: 1})
	c.Equal(len(c.page(filter, store.Page{Limit: 2, Cursor: first.Next}).Jobs), 2, "jobs of a second page of another size")
	for _, other := range []store.Filter{
		{}, {Queue: "another"}, {Kind: queue}, {Queue: queue, After: 1}, {Queue: queue, States: []store.State{store.Ready}},
		{Queue: queue, FinishedFor: time.Hour}, {Queue: queue, IDs: []int64{1}},
	} {
		page, err := c.Store.List(c.Ctx, other, store.Page{Limit: 1, Cursor: first.Next})
		c.ErrorIs(err, store.ErrInvalid, "the cursor of %+v with %+v", filter, other)
		c.Equal(page, store.JobPage{}, "the page of a refused cursor")
	}
	for _, cursor := range wrongCursors(first.Next) {
		_, err := c.Store.List(c.Ctx, filter, store.Page{Limit: 1, Cursor: cursor})
		c.ErrorIs(err, store.ErrInvalid, "the cursor %q", cursor)
	}
}

// A store that keeps finished jobs apart may lose sight of one while it moves.
func inspectRacingReadersNeverMissAJob(c *C) {
	job := plainBut(func(n *store.NewJob) { n.UniqueKey, n.UniqueFor = "key", time.Hour })
	id := c.Enqueue(job)[0]
	var done atomic.Bool
	c.Parallel(5, func(i int) {
		if i == 0 {
			defer done.Store(true)
			c.liveAndFinish(id, 50)
			return
		}
		for reads := 0; reads == 0 || !done.Load(); reads++ {
			c.seesOnce(job, id)
		}
	})
}

// liveAndFinish takes the job from ready to terminal and back, n times. It runs beside others, so it ends nothing.
func (c *C) liveAndFinish(id int64, n int) {
	for i := range n {
		jobs, err := c.Store.FetchAndClaim(c.Ctx, claimOf(1))
		if err != nil || len(jobs) != 1 {
			c.Errorf("claiming the job: got %d jobs, error %v", len(jobs), err)
			return
		}
		outcomes, err := c.Store.Ack(c.Ctx, []store.Ack{{Lease: jobs[0].Lease()}})
		if err != nil || outcomes[0].Status != store.StatusOK {
			c.Errorf("finishing the job: got %+v, error %v", outcomes, err)
		}
		outcomes, err = c.Store.Requeue(c.Ctx, only(id), 1)
		if err != nil || outcomes[0].Status != store.StatusOK {
			c.Errorf("requeueing the job, time %d: got %+v, error %v", i, outcomes, err)
		}
	}
}

// seesOnce checks that every way of looking finds the job exactly once.
func (c *C) seesOnce(job store.NewJob, id int64) {
	if detail, err := c.Store.Get(c.Ctx, id); err != nil || detail.ID != id {
		c.Errorf("Get: got job %d, error %v", detail.ID, err)
	}
	for _, filter := range []store.Filter{{}, only(id), {UniqueKey: job.UniqueKey}, {States: store.Phases}} {
		page, err := c.Store.List(c.Ctx, filter, store.Page{Limit: 10})
		if err != nil || len(page.Jobs) != 1 {
			c.Errorf("List %+v: got %d jobs, error %v, want one", filter, len(page.Jobs), err)
		}
	}
	counts, err := c.Store.Count(c.Ctx, store.Filter{})
	if err != nil || len(counts.Queues) != 1 || len(counts.Queues[0].Jobs) != 1 {
		c.Errorf("Count: got %+v, error %v, want one job", counts, err)
	}
	answers, err := c.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: []store.NewJob{job}})
	if err != nil || len(answers) != 1 || answers[0].ID != id || !answers[0].Duplicate || answers[0].State == "" {
		c.Errorf("Enqueue under its key: got %+v, error %v, want a duplicate of job %d", answers, err, id)
	}
	outcomes, err := c.Store.Ack(c.Ctx, []store.Ack{{Lease: store.Lease{ID: id, Token: -1}}})
	if err != nil || len(outcomes) != 1 || outcomes[0].Status != store.StatusStale {
		c.Errorf("Ack under no token of the job: got %+v, error %v, want stale", outcomes, err)
	}
}
