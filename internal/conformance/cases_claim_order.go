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
func (c *C) checkOrder(enqueued []int64, list []place, what string) {
	var got, want []int64
	for _, i := range inLine(list) {
		want = append(want, enqueued[i])
	}
	for bite := 1; len(got) < len(want); bite += 3 {
		jobs := c.Claim(bite)
		c.Equal(len(jobs), min(bite, len(want)-len(got)), "how many %s a claim took with limit %d", what, bite)
		if len(jobs) == 0 {
			break
		}
		got = append(got, ids(jobs)...)
	}
	c.Equal(got, want, "the order of claims of %s", what)
}

// claimOrder has the order of retries decided by RetryAt, where RunAt would decide otherwise.
func claimOrder(c *C) {
	list := places()
	enqueue := func(delay func(p place) time.Duration) []int64 {
		var jobs []store.NewJob
		for _, p := range list {
			jobs = append(jobs, plainBut(func(n *store.NewJob) { n.Priority, n.Delay = p.priority, delay(p) }))
		}
		return c.Enqueue(jobs...)
	}
	fresh := enqueue(func(p place) time.Duration { return p.wait })
	c.Advance(time.Minute)
	c.checkOrder(fresh, list, "fresh jobs")

	retries := enqueue(func(p place) time.Duration { return 10*time.Second - p.wait })
	c.Advance(10 * time.Second)
	for _, j := range c.Claim(store.MaxItems) {
		c.NAck(j.Lease(), store.After, list[slices.Index(retries, j.ID)].wait, "boom")
	}
	c.Advance(time.Minute)
	c.checkOrder(retries, list, "retries")
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

// lanes fills both lanes of a queue of its own with due jobs: fresh ones that by priority would come before every retry.
func (c *C) lanes(name string, retries, fresh int) (retryIDs, freshIDs []int64) {
	low := plainBut(func(n *store.NewJob) { n.Queue, n.Priority = name, -9 })
	high := plainBut(func(n *store.NewJob) { n.Queue, n.Priority = name, 9 })
	retryIDs = c.Enqueue(slices.Repeat([]store.NewJob{low}, retries)...)
	c.endAll(c.claimFrom(name, max(retries, 1), 0), store.After, 0)
	return retryIDs, c.Enqueue(slices.Repeat([]store.NewJob{high}, fresh)...)
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
}

// mostHeavy is how many of the largest documents an answer can just hold.
const mostHeavy = store.MaxAnswerBytes / store.MaxDocBytes

// enqueueHeavy adds n jobs with the largest payload, which can be too many for one call.
func (c *C) enqueueHeavy(n int) []int64 {
	var list []int64
	for range n {
		list = append(list, c.Enqueue(plainBut(func(n *store.NewJob) { n.Payload = docOf(store.MaxDocBytes) }))...)
	}
	return list
}

// saveHeavy keeps the largest checkpoint and progress with the job.
func (c *C) saveHeavy(j store.Job) {
	doc := docOf(store.MaxDocBytes)
	outcome := c.One(c.Store.Save(c.Ctx, []store.Save{{Lease: j.Lease(), Checkpoint: doc, Progress: doc}}))
	c.Equal(outcome.Status, store.StatusOK, "a save of two documents of 1 MiB")
}

// drop removes the jobs, so that nothing reads them once more.
func (c *C) drop(list []int64) {
	for _, id := range list {
		c.Cancel(id)
		c.Delete(id)
	}
}

func claimLaneEndsBeforeItWeighsTooMuch(c *C) {
	heavy := c.enqueueHeavy(mostHeavy + 1)
	fresh := c.Claim(100)
	c.Equal(ids(fresh), heavy[:mostHeavy], "claimed of fresh jobs that weigh 1 MiB each")
	c.endAll(fresh, store.After, 0)

	both := c.claimFrom(queue, 100, 0)
	c.Equal(ids(both), heavy, "claimed of as many retries as there is room for, and a fresh job, which takes none of it")
	c.endAll(both, store.After, 0)

	light := c.EnqueueN(3)
	got := c.claimFrom(queue, mostHeavy+2, mostHeavy+2)
	want := slices.Concat(heavy[:mostHeavy], light[:2])
	c.Equal(ids(got), want, "claimed of heavy retries, and of light jobs that fill what they leave")
	c.drop(heavy)
}

// claimWhatWasTooMuchIsClaimedNext has a light job behind the one that finds no room, which it must not overtake: a heavy job
// would wait for as long as light ones come.
func claimWhatWasTooMuchIsClaimedNext(c *C) {
	jobs := slices.Repeat([]store.NewJob{plain()}, mostHeavy/2+1)
	for i := range jobs {
		jobs[i].Priority = -i // each in a range of its own
	}
	list := c.Enqueue(jobs...)
	last := len(list) - 1 // which stays light
	held := c.Claim(last)
	for _, j := range held {
		c.saveHeavy(j) // and a bit more with its payload
	}
	c.endAll(held, store.Release, 0)
	left := c.Get(list[last-1])

	c.Equal(ids(c.Claim(100)), list[:last-1], "claimed while one job finds no room, and the light one behind it would")
	c.Equal(c.Get(list[last-1]), left, "the job that found no room")
	c.Equal(ids(c.Claim(100)), list[last-1:], "claimed after that")
	c.drop(list)
}
