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

// inspectPagesOfEverySizeJoinUp also chooses jobs by their ids, in no order, and some twice.
func inspectPagesOfEverySizeJoinUp(c *C) {
	list := c.EnqueueN(12)
	chosen := only(list[4], list[7], noJob, list[1], list[0], list[7], list[8], list[4], list[3])
	pages := func(filter store.Filter, want ...int64) {
		joinsUp(c, want, func(page store.Page) ([]int64, string) {
			part := c.page(filter, page)
			return ids(part.Jobs), part.Next
		})
	}
	pages(chosen, list[8], list[7], list[4], list[3], list[1], list[0])
	c.Claim(2)
	chosen.States = []store.State{store.Ready}
	pages(chosen, list[8], list[7], list[4], list[3])
	slices.Reverse(list)
	pages(store.Filter{Queue: queue}, list...)
}

// wrongCursors are none, made from one that is.
func wrongCursors(right string) []string {
	return []string{"x", right[1:], right + "A", strings.Repeat("A", len(right)), "1", "ä\x00"}
}

// skipsNothing reads pages of three while the store lives on: change lets others come between two pages,
// and returns those that may be read; then the last of the page is removed and, after every second one, also the one that would come next.
func skipsNothing[T comparable](c *C, list []T, read func(store.Page) ([]T, string), remove func(T), change func(part []T, even bool) []T) {
	gone, come := map[T]bool{}, []T{}
	var got []T
	for page := (store.Page{Limit: 3}); len(got) == 0 || page.Cursor != ""; {
		part, next := read(page)
		got = append(got, part...)
		if page.Cursor = next; next == "" {
			break
		}
		if len(got) > 2*len(list) {
			c.Fatalf("the pages do not end: %v", got)
		}
		edge, even := part[len(part)-1], len(got)%2 == 0
		come = append(come, change(part, even)...)
		remove(edge)
		if next := slices.Index(list, edge) + 1; next > 0 && next < len(list) && even {
			gone[list[next]] = true
			remove(list[next])
		}
	}
	got = slices.DeleteFunc(got, func(t T) bool { return slices.Contains(come, t) })
	want := slices.DeleteFunc(slices.Clone(list), func(t T) bool { return gone[t] })
	c.Equal(got, want, "what was there before the first page and was not removed")
	c.True(len(gone) > 2, "removed ahead of the reader: %d", len(gone))
}

func inspectPagesSkipAndRepeatNothing(c *C) {
	list := c.EnqueueN(30)
	slices.Reverse(list)
	skipsNothing(c, list, func(page store.Page) ([]int64, string) {
		part := c.page(store.Filter{Queue: queue, States: []store.State{store.Ready}}, page)
		return ids(part.Jobs), part.Next
	}, func(id int64) { c.Cancel(id); c.Delete(id) }, func([]int64, bool) []int64 { c.EnqueueN(2); return nil })
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
	job := keyed("key", time.Hour)
	id := c.Enqueue(job)[0]
	var done atomic.Bool
	c.Parallel(5, func(i int) {
		if i == 0 {
			defer done.Store(true)
			for range 50 {
				c.Ack(c.ClaimOne().Lease())
				c.Equal(c.Requeue(id).Status, store.StatusOK, "Requeue of the job")
			}
			return
		}
		for reads := 0; reads == 0 || !done.Load(); reads++ {
			c.Equal(c.Get(id).ID, id, "the job that Get finds")
			for _, filter := range []store.Filter{{}, only(id), {UniqueKey: job.UniqueKey}, {States: store.Phases}} {
				c.Equal(ids(c.page(filter, store.Page{Limit: 10}).Jobs), []int64{id}, "List %+v", filter)
			}
			c.Equal(len(c.countOf(store.Filter{})), 1, "phases that Count finds a job in")
			answer := c.answers(job)[0]
			c.Equal(answer, store.Enqueued{ID: id, State: answer.State, Duplicate: true}, "Enqueue under its key")
			c.True(answer.State != "", "the holder is there")
			c.Equal(c.Ack(store.Lease{ID: id, Token: -1}).Status, store.StatusStale, "Ack under no token of the job")
		}
	})
}
