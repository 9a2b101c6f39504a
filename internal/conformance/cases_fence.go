package conformance

import (
	"context"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

var fenceCases = []Case{
	{"Fence/RaisesTokensOfEveryJobAndTheNextID", []int{70}, "Fence raises the token of every job, and the id of the next one, by 2³², so that no lease of the lost time fits anything.", fenceRaisesTokensAndTheNextID},
	{"Fence/NoLeaseOfTheLostTimeFits", []int{20, 21, 70}, "Fence raises the token of every job, and the id of the next one, by 2³², so that no lease of the lost time fits anything.", fenceNoLeaseOfTheLostTimeFits},
	{"Fence/NothingElseChanges", []int{70}, "Nothing else changes: jobs in flight are recovered when their leases expire.", fenceNothingElseChanges},
	{"Fence/WindowsOutliveTheirJobsStill", []int{2, 70}, "Nothing else changes: jobs in flight are recovered when their leases expire.", fenceWindowsOutliveTheirJobs},
	{"Fence/JobsInFlightAreRecovered", []int{17, 70}, "Nothing else changes: jobs in flight are recovered when their leases expire.", fenceJobsInFlightAreRecovered},
	{"Fence/LeaseIsGoodUntilSomebodyEndsIt", []int{22, 70}, "A lease that ran out goes on being good until somebody ends it: RecoverExpiredLeases, Cancel or Fence.", fenceLeaseIsGoodUntilSomebodyEndsIt},
	{"Fence/ForgetsHowLeasesWereEnded", []int{27, 70}, sentenceHolds, fenceForgetsHowLeasesWereEnded},
	{"Fence/EmptyStoreToo", []int{70}, "Fence raises the token of every job, and the id of the next one, by 2³², so that no lease of the lost time fits anything.", fenceEmptyStoreToo},
	{"Fence/NewClaimsWork", []int{70}, "Run it before workers start.", fenceNewClaimsWork},
	{"Fence/EndedContextAppliesNothing", []int{71}, "A context that has ended before the call keeps it from being applied: the error is ErrUnavailable and matches the context's own.", fenceEndedContextAppliesNothing},
	{"Fence/ClosedStoreSaysSo", []int{71}, "Every later call is ErrClosed.", fenceClosedStoreSaysSo},
}

func (c *C) fencer() store.Fencer {
	fencer, ok := c.Store.(store.Fencer)
	if !ok {
		c.Fatalf("the store is no Fencer: exclude the case with a reason")
	}
	return fencer
}

func (c *C) fence() { c.OK(c.fencer().Fence(c.Ctx), "Fence") }

// oneOfEach brings a job into each phase, with a unique key for the live ones, and returns them by falling id.
func (c *C) oneOfEach() []store.JobDetail {
	for _, phase := range []store.State{store.Succeeded, store.Dead, store.Cancelled, store.Retrying, store.InFlight, store.Ready} {
		c.JobIn(phase)
	}
	return c.everything()
}

func raised(jobs []store.JobDetail) []store.JobDetail {
	jobs = slices.Clone(jobs)
	for i := range jobs {
		jobs[i].Token += store.FenceStep
	}
	return jobs
}

func fenceRaisesTokensAndTheNextID(c *C) {
	before := c.oneOfEach()
	c.fence()
	c.Equal(c.everything(), raised(before), "all jobs after Fence")
	next := c.EnqueueOne()
	c.True(next > before[0].ID+store.FenceStep, "the next id is %d after %d, less than a step on", next, before[0].ID)

	middle := c.everything()
	c.fence()
	c.Equal(c.everything(), raised(middle), "all jobs after a second Fence")
	c.True(c.EnqueueOne() > next+store.FenceStep, "the next id is a step on after a second Fence")
}

func fenceNoLeaseOfTheLostTimeFits(c *C) {
	leases := map[store.State]store.Lease{}
	for _, j := range c.oneOfEach() {
		leases[j.Phase()] = j.Lease()
	}
	c.fence()
	c.changesNothing("writing under leases of before Fence", func() {
		for phase, l := range leases {
			c.Equal(c.Ack(l).Status, store.StatusStale, "Ack of a %s job", phase)
			for _, form := range []store.Form{store.Fail, store.Never, store.After, store.Snooze, store.Release} {
				c.Equal(c.NAck(l, form, 0, "late").Status, store.StatusStale, "NAck %s of a %s job", form, phase)
			}
			c.Equal(c.SaveCheckpoint(l, 1, `1`).Status, store.StatusStale, "Save of a %s job", phase)
			if phase != store.Cancelled {
				c.Equal(c.Extend(l).Status, store.StatusStale, "Extend of a %s job", phase)
			}
		}
	})
}

func fenceNothingElseChanges(c *C) {
	job := plainBut(func(n *store.NewJob) { n.UniqueKey = "key" })
	req := store.EnqueueRequest{Jobs: []store.NewJob{job, plain()}, RequestKey: "request"}
	first, err := c.Store.Enqueue(c.Ctx, req)
	c.OK(err, "Enqueue")
	c.fence()

	again, err := c.Store.Enqueue(c.Ctx, req)
	c.OK(err, "the same Enqueue after Fence")
	c.Equal(again, first, "answers to the same request")
	duplicates, err := c.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: []store.NewJob{job}})
	c.OK(err, "Enqueue under the key after Fence")
	c.Equal(duplicates, []store.Enqueued{{ID: first[0].ID, State: store.Ready, Duplicate: true}}, "answers under a key that is held")
	c.Equal(ids(c.Claim(10)), []int64{first[0].ID, first[1].ID}, "claimed after Fence")
}

func fenceWindowsOutliveTheirJobs(c *C) {
	finished, deleted := c.free(keyed("finished", time.Hour), "before Fence"), c.free(keyed("deleted", time.Hour), "before Fence")
	for _, j := range c.Claim(2) {
		c.Ack(j.Lease())
	}
	c.Delete(deleted)
	c.Advance(time.Minute)
	c.fence()
	c.Advance(time.Hour - time.Minute - store.Resolution)
	c.held(keyed("finished", 0), finished, store.Succeeded, "after Fence, by a job that has finished")
	c.held(keyed("deleted", 0), deleted, "", "after Fence, by a job that is gone")
	c.Advance(store.Resolution)
	c.free(keyed("finished", 0), "the window has ended after Fence, the job has finished")
	c.free(keyed("deleted", 0), "the window has ended after Fence, the job is gone")
}

func fenceJobsInFlightAreRecovered(c *C) {
	before := c.JobIn(store.InFlight)
	c.Advance(time.Second)
	c.fence()
	c.Advance(ttl - time.Second - store.Resolution)
	c.Equal(c.Recover(10), []store.Recovered{}, "recovered one tick before the lease expires")
	c.Advance(store.Resolution)

	want := before.Failed(store.LeaseExpired, c.Now())
	want.Token += store.FenceStep + 1
	c.Equal(c.Recover(10), []store.Recovered{{
		ID: want.ID, Queue: queue, Kind: want.Kind, Worker: worker, State: store.Failed, Token: want.Token, Next: want.RetryAt,
	}}, "recovered after Fence")
	attempt := before.History[0]
	attempt.EndedAt, attempt.Ending, attempt.Error = c.Now(), store.EndExpired, want.Error
	c.Equal(c.Get(want.ID), store.JobDetail{Job: want, History: []store.Attempt{attempt}}, "the recovered job")
}

func fenceLeaseIsGoodUntilSomebodyEndsIt(c *C) {
	for name, end := range map[string]func(id int64){
		"RecoverExpiredLeases": func(int64) { c.Recover(10) },
		"Cancel":               func(id int64) { c.Cancel(id) },
		"Fence":                func(int64) { c.fence() },
	} {
		l := c.JobIn(store.InFlight).Lease()
		c.Advance(ttl + time.Second)
		c.Equal(c.SaveCheckpoint(l, 1, `1`).Status, store.StatusOK, "Save after expiry, before %s", name)
		end(l.ID)
		c.changesNothing("writing after "+name, func() {
			c.Equal(c.SaveCheckpoint(l, 2, `2`).Status, store.StatusStale, "Save after %s", name)
			c.Equal(c.Ack(l).Status, store.StatusStale, "Ack after %s", name)
		})
		c.Cancel(l.ID)
	}
}

func fenceEmptyStoreToo(c *C) {
	last := c.JobIn(store.Succeeded).ID
	c.Delete(last)
	c.fence()
	next := c.EnqueueOne()
	c.True(next > last+store.FenceStep, "the next id is %d after %d, which was deleted before Fence", next, last)
}

func fenceNewClaimsWork(c *C) {
	before := c.JobIn(store.Ready)
	c.fence()
	held := c.ClaimOne()
	c.Equal(held.Token, before.Token+store.FenceStep+1, "the token of a claim after Fence")
	c.Equal(c.Extend(held.Lease()).Status, store.StatusOK, "Extend after Fence")
	c.Equal(c.Ack(held.Lease()).Status, store.StatusOK, "Ack after Fence")
	c.Equal(c.Ack(held.Lease()).Status, store.StatusOK, "Ack once more")
	c.Equal(c.Requeue(held.ID).Token, held.Token+1, "the token of a requeue after Fence")
}

func fenceEndedContextAppliesNothing(c *C) {
	fencer := c.fencer()
	c.oneOfEach()
	c.changesNothing("Fence under an ended context", func() {
		c.endedContexts(map[string]func(context.Context) error{"Fence": fencer.Fence})
	})
}

func fenceClosedStoreSaysSo(c *C) {
	fencer := c.fencer()
	c.OK(c.Store.Close(), "Close")
	c.ErrorIs(fencer.Fence(c.Ctx), store.ErrClosed, "Fence")
}

func fenceForgetsHowLeasesWereEnded(c *C) {
	for _, op := range []store.Op{store.OpAck, store.OpFail, store.OpNever, store.OpAfter, store.OpSnooze, store.OpRelease} {
		done := finishedBy(c, op, string(op))
		c.fence()
		fenced := c.Get(done.ID)
		for _, l := range []store.Lease{done.Lease(), fenced.Lease()} {
			again(c, op, fenced, l, store.StatusStale, "after fence")
		}
	}
}
