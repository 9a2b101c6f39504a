package conformance

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

func claimTwoNeverGetOne(c *C) {
	want := slices.Sorted(slices.Values(c.EnqueueN(200)))
	var mu sync.Mutex
	var got []store.Job
	c.Parallel(8, func(int) {
		for range 20 {
			jobs := c.Claim(3)
			mu.Lock()
			got = append(got, jobs...)
			mu.Unlock()
		}
	})
	got = append(got, c.Claim(store.MaxItems)...)
	c.Equal(slices.Sorted(slices.Values(ids(got))), want, "all that eight claimers got")
	for _, j := range got {
		c.Equal(c.Get(j.ID).Job, j, "a job as it is stored, against what its claimer got")
	}
}

// claimNoTokenTwice lets jobs go round between claimers: with no other transition, tokens count the claims without a gap.
func claimNoTokenTwice(c *C) {
	c.EnqueueN(10)
	var mu sync.Mutex
	claims, given := map[int64]int64{}, map[store.Lease]bool{}
	c.Parallel(8, func(int) {
		for range 12 {
			jobs := c.Claim(3)
			mu.Lock()
			for _, j := range jobs {
				c.True(!given[j.Lease()], "lease %+v was given once only", j.Lease())
				given[j.Lease()] = true
				claims[j.ID]++
			}
			mu.Unlock()
			c.endAll(jobs, store.Release, 0)
		}
	})
	for _, j := range c.All() {
		want := plain().Row(j.ID, c.Now())
		want.Token, want.Worker = claims[j.ID], j.Worker
		c.Equal(j, want, "a job that was claimed and released %d times", claims[j.ID])
	}
}

// endAll ends the leases of the jobs in one call.
func (c *C) endAll(jobs []store.Job, form store.Form, delay time.Duration) {
	nacks := make([]store.NAck, len(jobs))
	for i, j := range jobs {
		nacks[i] = store.NAck{Lease: j.Lease(), Form: form, Delay: delay}
	}
	outcomes, err := c.Store.NAck(c.Ctx, nacks)
	c.OK(err, "NAck of %d jobs", len(jobs))
	c.Equal(statuses(outcomes), slices.Repeat([]store.Status{store.StatusOK}, len(jobs)), "statuses of NAck %s", form)
}

func claimNothingStaysHidden(c *C) {
	const writers, calls, size = 4, 5, 10
	var mu sync.Mutex
	claimed := map[int64]int{}
	take := func(jobs []store.Job) {
		mu.Lock()
		defer mu.Unlock()
		for _, j := range jobs {
			claimed[j.ID]++
		}
	}
	c.Parallel(2*writers, func(i int) {
		for range calls {
			if i < writers {
				c.EnqueueN(size)
			} else {
				take(c.Claim(size / 2))
			}
		}
	})
	c.Advance(time.Second)
	for range writers * calls * size / 7 {
		take(c.Claim(7))
	}
	take(c.Claim(7))
	c.Equal(len(claimed), writers*calls*size, "how many jobs were claimed, of all that were enqueued")
	for id, times := range claimed {
		c.Equal(times, 1, "how often job %d was claimed", id)
	}
}

func claimIsSeenAsAWhole(c *C) {
	const size = 10
	c.EnqueueN(200)
	var whole sync.Map // how many jobs are in flight after each claim
	whole.Store(0, true)
	var seen []int
	var done atomic.Bool
	c.Parallel(2, func(i int) {
		if i == 0 {
			defer done.Store(true)
			n := 0
			for range 200 / size {
				n += len(c.Claim(size))
				whole.Store(n, true)
			}
			return
		}
		for !done.Load() {
			counts, err := c.Store.Count(c.Ctx, store.Filter{States: []store.State{store.InFlight}})
			c.OK(err, "Count")
			for _, q := range counts.Queues {
				seen = append(seen, int(q.Jobs[store.InFlight]))
			}
		}
	})
	for _, n := range seen {
		_, ok := whole.Load(n)
		c.True(ok, "%d jobs in flight were seen, which no number of whole claims makes", n)
	}
}
