package conformance

import (
	"slices"

	"github.com/seed-ed332417/jq/internal/store"
)

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
