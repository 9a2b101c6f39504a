package conformance

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

var claimCases = []Case{
	{"Claim/DelayedJobIsHiddenUntilDue", "If nothing matches, the call returns an empty answer and no error.\nNo method waits for work to appear. A call may wait for other calls and for open transactions, but only until its context ends.\nA job is claimable when it is ready and its RunAt is due, or retrying and its RetryAt is due, and it has not expired.", claimHiddenUntilDue},
	{"Claim/HandsOutNoSliceThatItKeeps", "A store must not keep a slice that it was given, and must not return a slice that it keeps.", claimHandsOutNoSlice},
	{"Claim/HigherPriorityThenEarlierDueThenSmallerID", "In each lane, jobs with a higher priority come first, then jobs with an earlier due time, then jobs with a smaller id.", claimOrder},
	{"Claim/WaitingJobOfHighPriorityHidesNothing", "A job is claimable when it is ready and its RunAt is due, or retrying and its RetryAt is due, and it has not expired.", claimWaitingHidesNothing},
	{"Claim/EachLaneFillsWhatTheOtherLeaves", "It takes up to RetryQuota retries and then fresh jobs up to Limit. If one lane has too few jobs, the other lane fills the places that are left.\nThe answer lists the retries before the fresh jobs.", claimLanes},
	{"Claim/LaneEndsBeforeItWeighsTooMuch", "A lane ends before the first job that would raise the total size of the lane's documents above MaxAnswerBytes.", claimLaneEndsBeforeItWeighsTooMuch},
	{"Claim/WhatWasTooMuchIsClaimedNext", "A lane ends before the first job that would raise the total size of the lane's documents above MaxAnswerBytes.", claimWhatWasTooMuchIsClaimedNext},
	{"Claim/SnoozedReleasedAndRequeuedJobsAreFresh", "A claim fills two lanes: retries, which are the retrying jobs, and fresh jobs, which are the ready ones.", claimLaneIsTheState},
	{"Claim/TakesAsManyAsThereAre", "A claim that overlaps no other call takes every claimable job of its queue, up to these limits.", claimTakesAsManyAsThereAre},
	{"Claim/NothingStaysHiddenAfterARace", "The store must not hand out a job twice with the same token.\nA claim that overlaps other calls may leave out jobs that those calls hold. Some claim must still find every committed, claimable job within a bound: at once, or within one second if the adapter says so.", claimNothingStaysHidden},
	{"Claim/IsSeenAsAWholeOrNotAtAll", "A call takes effect as a whole, at one moment between its start and its return, or not at all.", claimIsSeenAsAWhole},
}

func claimHiddenUntilDue(c *C) {
	c.Equal(ids(c.Claim(10)), []int64{}, "claimed where there is no job")
	c.Equal(c.Recover(10), []store.Recovered{}, "recovered where there is no lease")
	id := c.Enqueue(plainBut(func(n *store.NewJob) { n.Delay = time.Minute }))[0]
	for _, waits := range []struct {
		why   string
		begin func() // what the job waits after
	}{
		{"a delayed job", func() {}},
		{"a failure with a delay", func() { c.NAck(c.ClaimOne().Lease(), store.After, time.Minute, "boom") }},
		{"a snooze", func() { c.NAck(c.ClaimOne().Lease(), store.Snooze, time.Minute, "") }},
		{"a failure", func() { c.NAck(c.ClaimOne().Lease(), store.Fail, 0, "boom") }},
		{"an expired lease", func() { c.ClaimOne(); c.Advance(ttl); c.Recover(1) }},
	} {
		waits.begin()
		wait := c.Get(id).Next().Sub(c.Now())
		c.True(wait > store.Resolution, "there is a wait of %v: %s", wait, waits.why)
		c.Advance(wait - store.Resolution)
		c.Equal(ids(c.Claim(10)), []int64{}, "claimed one tick before the job is due: %s", waits.why)
		c.Advance(store.Resolution)
		c.Equal(ids(c.Claim(10)), []int64{id}, "claimed when the job is due: %s", waits.why)
		c.NAck(c.Get(id).Lease(), store.Release, 0, "")
	}
}

// claimHandsOutNoSlice spells out what it expects: a row that was read before could share the slice that is spoiled.
func claimHandsOutNoSlice(c *C) {
	id := c.Enqueue(plainBut(func(n *store.NewJob) { n.Payload, n.Tags = []byte(`{"a":1}`), []string{"t1", "t2"} }))[0]
	underLease(c, store.OpSave, c.ClaimOne().Lease())
	c.NAck(c.Get(id).Lease(), store.Release, 0, "")
	spoiled := func(j store.Job, where string) {
		documents := []string{string(j.Payload), string(j.Checkpoint), string(j.Progress)}
		c.Equal(documents, []string{`{"a":1}`, savedDoc, savedDoc}, "the documents %s", where)
		c.Equal(j.Tags, []string{"t1", "t2"}, "the tags %s", where)
		for _, doc := range [][]byte{j.Payload, j.Checkpoint, j.Progress, j.Result} {
			spoil(doc)
		}
		clear(j.Tags)
	}
	for range 2 {
		claimed := c.ClaimOne()
		l := claimed.Lease()
		spoiled(claimed, "of the claimed job")
		c.NAck(l, store.Release, 0, "")
	}
	underLease(c, store.OpAck, c.ClaimOne().Lease())
	for range 2 {
		got := c.Get(id)
		c.Equal(string(got.Result), resultDoc, "the result")
		c.Equal([]any{len(got.History), got.History[0].Worker}, []any{4, worker}, "attempts, and who made the first")
		spoiled(got.Job, "of the stored job")
		clear(got.History)
		spoiled(c.List(only(id), 1)[0], "of the listed job")
		counts := c.count(only(id))
		c.Equal(counts.Queues[0].Jobs, map[store.State]int64{store.Succeeded: 1}, "the counts")
		clear(counts.Queues[0].Jobs)
	}
}

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
