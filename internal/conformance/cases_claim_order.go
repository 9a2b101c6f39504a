package conformance

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// A place is a job's place in the line: what decides it, apart from the id.
type place struct {
	priority int
	wait     time.Duration
}

// places has every priority, and due times that disagree with it and with the order of enqueueing; some are equal.
func places() []place {
	var list []place
	for i := range 57 {
		list = append(list, place{priority: i*7%19 - 9, wait: time.Duration(i%2) * time.Second})
	}
	return list
}

// inLine sorts the numbers of the places as a claim must take them.
func inLine(list []place) []int {
	numbers := make([]int, len(list))
	for i := range numbers {
		numbers[i] = i
	}
	slices.SortStableFunc(numbers, func(a, b int) int {
		if list[a].priority != list[b].priority {
			return list[b].priority - list[a].priority
		}
		return int(list[a].wait - list[b].wait)
	})
	return numbers
}

// checkOrder claims in bites of several sizes and checks that the jobs come in the order of their places.
func (c *C) checkOrder(enqueued []int64, list []place) {
	var got, want []int64
	for _, i := range inLine(list) {
		want = append(want, enqueued[i])
	}
	for bite := 1; len(got) < len(want); bite += 3 {
		jobs := c.Claim(bite)
		c.Equal(len(jobs), min(bite, len(want)-len(got)), "how many a claim took with limit %d", bite)
		if len(jobs) == 0 {
			break
		}
		got = append(got, ids(jobs)...)
	}
	c.Equal(got, want, "the order of claims")
}

func claimOrderOfFresh(c *C) {
	list := places()
	var jobs []store.NewJob
	for _, p := range list {
		jobs = append(jobs, plainBut(func(n *store.NewJob) { n.Priority, n.Delay = p.priority, p.wait }))
	}
	enqueued := c.Enqueue(jobs...)
	c.Advance(time.Minute)
	c.checkOrder(enqueued, list)
}

// claimOrderOfRetries has the order decided by RetryAt, where RunAt would decide otherwise.
func claimOrderOfRetries(c *C) {
	list := places()
	var jobs []store.NewJob
	for _, p := range list {
		jobs = append(jobs, plainBut(func(n *store.NewJob) { n.Priority, n.Delay = p.priority, 10*time.Second-p.wait }))
	}
	enqueued := c.Enqueue(jobs...)
	c.Advance(10 * time.Second)
	var nacks []store.NAck
	for _, j := range c.Claim(store.MaxItems) {
		wait := list[slices.Index(enqueued, j.ID)].wait
		nacks = append(nacks, store.NAck{Lease: j.Lease(), Form: store.After, Delay: wait, Error: "boom"})
	}
	_, err := c.Store.NAck(c.Ctx, nacks)
	c.OK(err, "NAck")
	c.Advance(time.Minute)
	c.checkOrder(enqueued, list)
}

func claimWaitingHidesNothing(c *C) {
	waiting := plainBut(func(n *store.NewJob) { n.Priority, n.Delay = 9, time.Hour })
	retry := plainBut(func(n *store.NewJob) { n.Priority = 9 })
	c.Enqueue(slices.Repeat([]store.NewJob{retry}, 20)...)
	c.endAll(c.Claim(20), store.After, time.Hour)
	c.Enqueue(slices.Repeat([]store.NewJob{waiting}, 20)...)
	due := c.Enqueue(plainBut(func(n *store.NewJob) { n.Priority = -9 }))

	c.Equal(ids(c.Claim(1)), due, "claimed while jobs of higher priority are not due")
	c.Equal(c.Claim(1), []store.Job{}, "claimed while nothing else is due")
	c.Advance(time.Hour)
	c.Equal(len(c.Claim(100)), 40, "how many were claimed once they were due")
}

// lanes fills both lanes of a queue of its own with due jobs.
func (c *C) lanes(name string, retries, fresh int) (retryIDs, freshIDs []int64) {
	job := plainBut(func(n *store.NewJob) { n.Queue = name })
	retryIDs = c.Enqueue(slices.Repeat([]store.NewJob{job}, retries)...)
	c.endAll(c.claimFrom(name, max(retries, 1), 0), store.After, 0)
	return retryIDs, c.Enqueue(slices.Repeat([]store.NewJob{job}, fresh)...)
}

func (c *C) claimFrom(name string, limit, quota int) []store.Job {
	return c.ClaimBy(store.ClaimRequest{Queue: name, Limit: limit, RetryQuota: quota, Worker: worker, TTL: ttl})
}

func claimLanes(c *C) {
	for i, k := range []struct{ retries, fresh, limit, quota, wantRetries, wantFresh int }{
		{20, 20, 10, 2, 2, 8},  // both lanes wait
		{20, 0, 10, 2, 10, 0},  // only retries
		{5, 2, 6, 1, 4, 2},     // two fresh, five due
		{5, 2, 6, 4, 4, 2},     //
		{5, 2, 6, 5, 5, 1},     // the quota comes first
		{0, 20, 10, 2, 0, 10},  // only fresh
		{1, 20, 10, 2, 1, 9},   // fewer retries than the quota
		{20, 20, 10, 0, 0, 10}, // no quota
		{20, 3, 10, 0, 7, 3},   // no quota, and retries fill all the same
		{20, 20, 10, 10, 10, 0},
		{3, 20, 10, 10, 3, 7},
		{20, 20, 1, 0, 0, 1},
		{20, 20, 1, 1, 1, 0},
		{3, 4, 10, 2, 3, 4}, // fewer than the limit
		{0, 0, 10, 2, 0, 0},
	} {
		name := fmt.Sprint("lanes", i)
		retries, fresh := c.lanes(name, k.retries, k.fresh)
		want := slices.Concat(retries[:k.wantRetries], fresh[:k.wantFresh])
		c.Equal(ids(c.claimFrom(name, k.limit, k.quota)), want, "claimed of %d retries %v and %d fresh %v with limit %d and quota %d",
			k.retries, retries, k.fresh, fresh, k.limit, k.quota)
	}
}

// claimRetriesComeFirst has fresh jobs that by priority and due time would come before every retry.
func claimRetriesComeFirst(c *C) {
	fresh := c.Enqueue(slices.Repeat([]store.NewJob{plainBut(func(n *store.NewJob) { n.Priority, n.Delay = 9, time.Second })}, 3)...)
	low := plainBut(func(n *store.NewJob) { n.Priority = -9 })
	retries := c.Enqueue(low, low, low)
	c.endAll(c.Claim(3), store.After, time.Minute)
	c.Advance(time.Minute)
	got := c.ClaimBy(store.ClaimRequest{Queue: queue, Limit: 4, RetryQuota: 2, Worker: worker, TTL: ttl})
	c.Equal(ids(got), slices.Concat(retries[:2], fresh[:2]), "claimed with limit 4 and quota 2 of retries %v and fresh %v", retries, fresh)
}

// claimLaneIsTheState has jobs that were retried before, and are ready now: quota or not, they are fresh. The one that is
// retrying would come first if they all stood in one lane.
func claimLaneIsTheState(c *C) {
	enqueued := c.EnqueueN(4)
	c.endAll(c.Claim(4), store.After, 0)
	again := c.Claim(4)
	c.endAll(again[:1], store.After, 0)
	c.endAll(again[1:2], store.Snooze, 0)
	c.endAll(again[2:3], store.Release, 0)
	c.Cancel(again[3].ID)
	c.Requeue(again[3].ID)

	c.Equal(ids(c.claimFrom(queue, 3, 0)), enqueued[1:], "claimed with no quota, of one retrying job %v and ready ones that were retried before", enqueued[:1])
	c.Equal(ids(c.claimFrom(queue, 3, 0)), enqueued[:1], "claimed after that")
}

func claimTakesAsManyAsThereAre(c *C) {
	const size = 1001
	enqueued := c.EnqueueN(size)
	c.Equal(ids(c.Claim(1000)), enqueued[:1000], "claimed with limit 1,000 of 1,001 jobs")
	c.Equal(ids(c.Claim(1000)), enqueued[1000:], "claimed after that")
	c.Equal(c.Claim(1000), []store.Job{}, "claimed after all were")

	for n, name := range []string{"none", "one", "two", "three"} {
		few := c.Enqueue(slices.Repeat([]store.NewJob{plainBut(func(j *store.NewJob) { j.Queue = name })}, n)...)
		for limit := 1; limit <= 3; limit++ {
			got := c.claimFrom(name, limit, 0)
			c.Equal(ids(got), few[:min(limit, n)], "claimed with limit %d of %d jobs", limit, n)
			c.endAll(got, store.Release, 0)
		}
	}
}
