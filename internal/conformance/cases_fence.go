package conformance

import (
	"context"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

const (
	sentenceEpoch     = "Fence raises the store's epoch by one, or to the requested epoch if that is higher, and returns the new epoch."
	sentenceFloor     = "Once Fence has returned, each change that raises a token raises it to at least epoch·2³²+1, and each new job gets an id of at least epoch·2³²+1."
	sentenceFenceOnly = "Nothing else changes: a lease in force stays valid, and the store still remembers how each lease was ended."
	sentenceEndLeases = "With EndLeases, Fence also raises the tokens of the jobs in flight: their leases are stale from then on, and the jobs are recovered when these leases expire."
)

var fenceCases = []Case{
	{"Fence/RaisesTheEpochByOne", sentenceEpoch, fenceRaisesTheEpoch},
	{"Fence/NewStoreIsInEpochZero", "The epoch of a new store is 0.", fenceNewStore},
	{"Fence/RepeatRaisesItOnceMore", "It is safe to repeat a Fence: it raises the epoch once more.", fenceRepeat},
	{"Fence/EveryRaisedTokenIsAboveTheFloor", sentenceFloor, fenceTokensAboveTheFloor},
	{"Fence/NewIDsAreAboveTheFloor", sentenceFloor, fenceIDsAboveTheFloor},
	{"Fence/NoLostPairIsGivenAgain", "So the store never again gives out a pair of id and token that it gave out before and lost.", fenceNoLostPair},
	{"Fence/LeasesInForceGoOn", sentenceFenceOnly, fenceLeasesGoOn},
	{"Fence/NothingElseChanges", sentenceFenceOnly, fenceNothingElseChanges},
	{"Fence/WindowsOutliveTheirJobsStill", sentenceFenceOnly, fenceWindowsOutliveTheirJobs},
	{"Fence/HowLeasesWereEndedIsRemembered", sentenceFenceOnly, fenceRemembersHowLeasesWereEnded},
	{"Fence/EndLeasesRaisesTokensOfJobsInFlight", sentenceEndLeases, fenceEndsLeases},
	{"Fence/EndLeasesLeavesThemToRecovery", sentenceEndLeases, fenceJobsInFlightAreRecovered},
	{"Fence/EpochHasALimit", "Fence returns ErrInvalid for an epoch above MaxEpoch.", fenceEpochHasALimit},
	{"Fence/RefusesAsTheCoreDoes", "If the context has ended before the call, the store must not apply the call: the error is ErrUnavailable and matches the context's own error.\nEvery later call returns ErrClosed.", fenceRefusesAsTheCoreDoes},
}

func (c *C) fencer() store.Fencer { return ability[store.Fencer](c) }

// fence raises the epoch, and returns the first token, and the first id, of the new one.
func (c *C) fence(req store.FenceRequest) int64 {
	epoch, err := c.fencer().Fence(c.Ctx, req)
	c.OK(err, "Fence %+v", req)
	return epoch*store.FenceStep + 1
}

// oneOfEach brings a job into each phase, with a unique key for the live ones, and returns them by falling id.
func (c *C) oneOfEach() []store.JobDetail {
	for _, phase := range []store.State{store.Succeeded, store.Dead, store.Cancelled, store.Retrying, store.InFlight, store.Ready} {
		c.JobIn(phase)
	}
	return c.everything()
}

// fenced are the jobs as EndLeases leaves them.
func fenced(jobs []store.JobDetail, first int64) []store.JobDetail {
	jobs = slices.Clone(jobs)
	for i := range jobs {
		if jobs[i].State == store.InFlight {
			jobs[i].Token = first
		}
	}
	return jobs
}

func fenceRaisesTheEpoch(c *C) {
	for _, k := range []struct{ asked, want int64 }{{0, 1}, {0, 2}, {2, 3}, {1, 4}, {7, 7}, {8, 8}, {0, 9}} {
		epoch, err := c.fencer().Fence(c.Ctx, store.FenceRequest{Epoch: k.asked})
		c.OK(err, "Fence, asked for epoch %d", k.asked)
		c.Equal(epoch, k.want, "the epoch, asked for %d", k.asked)
	}
}

func fenceNewStore(c *C) {
	c.Equal(c.JobIn(store.InFlight).Token, int64(1), "the first token of a new store")
	epoch, err := c.fencer().Fence(c.Ctx, store.FenceRequest{})
	c.OK(err, "Fence")
	c.Equal(epoch, int64(1), "the epoch after the first Fence")
}

func fenceRepeat(c *C) {
	job := c.JobIn(store.InFlight)
	for epoch := range int64(3) {
		c.Equal(c.fence(store.FenceRequest{}), (epoch+1)*store.FenceStep+1, "the first token after Fence %d", epoch+1)
		c.Equal(c.Get(job.ID), job, "a job in flight, after Fence %d", epoch+1)
	}
	c.Equal(c.Cancel(job.ID).Token, int64(3)*store.FenceStep+1, "the token of a job that is cancelled then")
}

// fenceTokensAboveTheFloor makes every change that raises a token, twice: to the floor, and on from there.
func fenceTokensAboveTheFloor(c *C) {
	jobs := map[store.State]int64{}
	for _, phase := range []store.State{store.Succeeded, store.Cancelled, store.Retrying, store.InFlight} {
		jobs[phase] = c.JobIn(phase).ID
	}
	first := c.fence(store.FenceRequest{})
	c.Equal(c.Requeue(jobs[store.Succeeded]).Token, first, "the token after a requeue")
	c.Equal(c.Cancel(jobs[store.Succeeded]).Token, first+1, "the token after the cancel that follows")
	c.Equal(c.Requeue(jobs[store.Cancelled]).Token, first, "the token of a cancelled job after a requeue")
	c.Equal(c.Cancel(jobs[store.Retrying]).Token, first, "the token after a cancel")
	held := c.ClaimOne()
	c.Equal(held.Lease(), store.Lease{ID: jobs[store.Cancelled], Token: first + 1}, "the lease of a claim that follows")
	c.Advance(ttl)
	recovered := c.Recover(10)
	c.Equal(len(recovered), 2, "recovered")
	for _, r := range recovered {
		want := first // of the job that was in flight before
		if r.ID == held.ID {
			want = held.Token + 1
		}
		c.Equal(r.Token, want, "the token of job %d after its recovery", r.ID)
	}
	c.Advance(time.Hour)
	for _, j := range c.Claim(10) {
		c.True(j.Token > first, "token %d of a retry", j.Token)
	}
	fresh := c.EnqueueOne()
	c.Equal(c.ClaimOne().Lease(), store.Lease{ID: fresh, Token: first}, "the first lease of a job that was added afterwards")
	c.Equal(c.Get(fresh).History[0].Token, first, "its token in the history")
}

func fenceIDsAboveTheFloor(c *C) {
	last := c.EnqueueN(3)[2]
	first := c.fence(store.FenceRequest{})
	next := c.EnqueueN(3)
	c.True(next[0] >= first && next[0] > last, "the next id is %d, not above the floor of %d", next[0], first-1)
	first = c.fence(store.FenceRequest{Epoch: 5})
	c.Equal(first, int64(5)*store.FenceStep+1, "the first token of epoch 5")
	c.True(c.EnqueueOne() >= first, "the next id after a second Fence is above its floor")
}

// fenceNoLostPair takes the floor for what was lost: whatever was given in an earlier epoch is no greater.
func fenceNoLostPair(c *C) {
	c.EnqueueN(3)
	lost := c.ClaimOne()
	c.NAck(lost.Lease(), store.Snooze, 0, "")
	floor := c.fence(store.FenceRequest{}) - 1
	c.EnqueueN(3)
	for round := range 3 {
		for _, j := range c.Claim(10) {
			c.True(j.Token > floor, "round %d: job %d has the token %d of the lost time", round, j.ID, j.Token)
			c.NAck(j.Lease(), store.Release, 0, "")
		}
	}
	c.Equal(c.Ack(lost.Lease()).Status, store.StatusStale, "Ack under a lease of the lost time")
}

func fenceLeasesGoOn(c *C) {
	before := c.oneOfEach()
	c.fence(store.FenceRequest{})
	c.Equal(c.everything(), before, "all jobs after Fence")
	for _, op := range []store.Op{store.OpAck, store.OpFail, store.OpNever, store.OpAfter, store.OpSnooze, store.OpRelease} {
		l := holding(c, string(op), 1)[0].Lease()
		c.fence(store.FenceRequest{})
		c.Equal(c.Extend(l).Status, store.StatusOK, "Extend after Fence")
		c.Equal(c.SaveCheckpoint(l, 1, `1`).Status, store.StatusOK, "Save after Fence")
		c.Equal(underLease(c, op, l).Status, store.StatusOK, "%s after Fence", op)
		c.Equal(c.Get(l.ID).Token, l.Token, "the token after %s", op)
	}
}

func fenceNothingElseChanges(c *C) {
	job := plainBut(func(n *store.NewJob) { n.UniqueKey = "key" })
	req := store.EnqueueRequest{Jobs: []store.NewJob{job, plain()}, RequestKey: "request"}
	first, err := c.Store.Enqueue(c.Ctx, req)
	c.OK(err, "Enqueue")
	c.fence(store.FenceRequest{})

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
	c.fence(store.FenceRequest{})
	c.Advance(time.Hour - time.Minute - store.Resolution)
	c.held(keyed("finished", 0), finished, store.Succeeded, "after Fence, by a job that has finished")
	c.held(keyed("deleted", 0), deleted, "", "after Fence, by a job that is gone")
	c.Advance(store.Resolution)
	c.free(keyed("finished", 0), "the window has ended after Fence, the job has finished")
	c.free(keyed("deleted", 0), "the window has ended after Fence, the job is gone")
}

func fenceRemembersHowLeasesWereEnded(c *C) {
	for _, op := range []store.Op{store.OpAck, store.OpFail, store.OpNever, store.OpAfter, store.OpSnooze, store.OpRelease} {
		done := finishedBy(c, op, string(op))
		c.fence(store.FenceRequest{})
		again(c, op, done, done.Lease(), store.StatusOK, "after Fence")
		c.fence(store.FenceRequest{EndLeases: true})
		again(c, op, done, done.Lease(), store.StatusOK, "after Fence with EndLeases")
	}
}

func fenceEndsLeases(c *C) {
	before := c.oneOfEach()
	first := c.fence(store.FenceRequest{EndLeases: true})
	c.Equal(c.everything(), fenced(before, first), "all jobs after Fence with EndLeases")
	c.True(c.EnqueueOne() >= first, "the next id is above the floor")
	first = c.fence(store.FenceRequest{EndLeases: true})
	for _, j := range c.everything() {
		c.Equal(j.Token >= first, j.State == store.InFlight, "a %s job is raised once more", j.Phase())
	}
}

func fenceJobsInFlightAreRecovered(c *C) {
	before := c.JobIn(store.InFlight)
	c.Advance(time.Second)
	first := c.fence(store.FenceRequest{EndLeases: true})
	c.Advance(ttl - time.Second - store.Resolution)
	c.Equal(c.Recover(10), []store.Recovered{}, "recovered one tick before the lease expires")
	c.Advance(store.Resolution)

	want := before.Failed(store.LeaseExpired, c.Now())
	want.Token = first + 1
	c.Equal(c.Recover(10), []store.Recovered{{
		ID: want.ID, Queue: queue, Kind: want.Kind, Worker: worker, State: store.Failed, Token: want.Token, Next: want.RetryAt,
	}}, "recovered after Fence")
	attempt := before.History[0]
	attempt.EndedAt, attempt.Ending, attempt.Error = c.Now(), store.EndExpired, want.Error
	c.Equal(c.Get(want.ID), store.JobDetail{Job: want, History: []store.Attempt{attempt}}, "the recovered job")
}

func fenceEpochHasALimit(c *C) {
	held := c.JobIn(store.InFlight)
	for _, epoch := range []int64{-1, store.MaxEpoch + 1} {
		_, err := c.fencer().Fence(c.Ctx, store.FenceRequest{Epoch: epoch})
		c.refused(err, -1, "epoch", "Fence")
	}
	first := c.fence(store.FenceRequest{Epoch: store.MaxEpoch})
	c.Equal(first, int64(store.MaxEpoch)*store.FenceStep+1, "the first token of the last epoch")
	c.True(c.EnqueueOne() >= first, "ids of the last epoch")
	c.Equal(c.Cancel(held.ID).Token, first, "the token of a cancelled job in the last epoch")
	c.changesNothing("Fence in the last epoch", func() {
		for _, end := range []bool{false, true} {
			_, err := c.fencer().Fence(c.Ctx, store.FenceRequest{EndLeases: end})
			c.refused(err, -1, "epoch", "Fence in the last epoch")
		}
	})
	c.True(c.EnqueueOne() >= first, "ids of the last epoch still")
}

func fenceRefusesAsTheCoreDoes(c *C) {
	fencer := c.fencer()
	c.oneOfEach()
	before := c.All()
	c.refusesAsTheCoreDoes(abilityCalls{"Fence": unnamed(func(ctx context.Context) error {
		_, err := fencer.Fence(ctx, store.FenceRequest{EndLeases: true})
		return err
	})}, func() {
		c.Equal(c.All(), before, "all jobs after the refusals")
		c.Equal(c.fence(store.FenceRequest{}), int64(store.FenceStep)+1, "the first token after the first Fence that was applied")
	})
}
