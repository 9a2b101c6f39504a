package conformance

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// endAll ends the leases of the jobs in one call.
func (c *C) endAll(jobs []store.Job, form store.Form, delay time.Duration) {
	outcomes := c.many(c.Store.NAck(c.Ctx, each(jobs, func(j store.Job) store.NAck {
		return store.NAck{Lease: j.Lease(), Form: form, Delay: delay}
	})))
	c.Equal(statuses(outcomes), slices.Repeat([]store.Status{store.StatusOK}, len(jobs)), "statuses of NAck %s", form)
}

func claimNothingStaysHidden(c *C) {
	const writers, calls, size = 4, 5, 10
	var mu sync.Mutex
	var claimed []store.Job
	take := func(limit int) {
		jobs := c.Claim(limit)
		mu.Lock()
		defer mu.Unlock()
		claimed = append(claimed, jobs...)
	}
	c.Parallel(2*writers, func(i int) {
		for range calls {
			if i < writers {
				c.EnqueueN(size)
			} else {
				take(size / 2)
			}
		}
	})
	c.Advance(time.Second)
	for range writers*calls*size/7 + 1 {
		take(7)
	}
	seen := map[int64]bool{}
	for _, j := range claimed {
		c.True(!seen[j.ID], "job %d was claimed once", j.ID)
		c.Equal(c.Get(j.ID).Job, j, "a job as it is stored, against what its claimer got")
		seen[j.ID] = true
	}
	c.Equal(len(seen), writers*calls*size, "how many jobs were claimed, of all that were enqueued")
}

func claimIsSeenAsAWhole(c *C) {
	const calls, size = 20, 10
	c.EnqueueN(calls * size)
	whole, seen := []int{0}, []int(nil) // how many jobs are in flight after each claim, and how many a reader saw
	var done atomic.Bool
	c.Parallel(2, func(i int) {
		if i == 0 {
			defer done.Store(true)
			for range calls {
				whole = append(whole, whole[len(whole)-1]+len(c.Claim(size)))
			}
			return
		}
		for !done.Load() {
			seen = append(seen, int(c.countOf(store.Filter{})[queue+" "+string(store.InFlight)]))
		}
	})
	for _, n := range seen {
		c.True(slices.Contains(whole, n), "%d jobs in flight were seen, which no number of whole claims makes", n)
	}
}
