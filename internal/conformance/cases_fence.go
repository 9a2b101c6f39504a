package conformance

import (
	"context"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

const (
	sentenceFloor     = "Once Fence has returned, each change that raises a token raises it to at least epoch·2³²+1, and each new job gets an id of at least epoch·2³²+1."
	sentenceFenceOnly = "Nothing else changes: a lease in force stays valid, and the store still remembers how each lease was ended."
)

var fenceCases = []Case{
	{"Fence/RaisesTheEpochByOne", "Fence raises the store's epoch by one, or to the requested epoch if that is higher, and returns the new epoch.\nThe epoch of a new store is 0.\nIt is safe to repeat a Fence: it raises the epoch once more.", fenceRaisesTheEpoch},
	{"Fence/EveryRaisedTokenIsAboveTheFloor", sentenceFloor, fenceTokensAboveTheFloor},
	{"Fence/NoLostPairIsGivenAgain", sentenceFloor + "\nSo the store never again gives out a pair of id and token that it gave out before and lost.", fenceNoLostPair},
	{"Fence/LeasesInForceGoOn", sentenceFenceOnly, fenceLeasesGoOn},
	{"Fence/HowLeasesWereEndedIsRemembered", sentenceFenceOnly, fenceRemembersHowLeasesWereEnded},
	{"Fence/EndLeasesRaisesTokensOfJobsInFlight", "With EndLeases, Fence also raises the tokens of the jobs in flight: their leases are stale from then on, and the jobs are recovered when these leases expire.", fenceEndsLeases},
	{"Fence/EpochHasALimit", "Fence returns ErrInvalid for an epoch above MaxEpoch.", fenceEpochHasALimit},
	{"Fence/RefusesAsTheCoreDoes", sentenceRefusals, fenceRefusesAsTheCoreDoes},
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
	job := c.JobIn(store.InFlight)
	c.Equal(job.Token, int64(1), "the first token of a new store")
	for _, k := range []struct{ asked, want int64 }{{0, 1}, {0, 2}, {2, 3}, {1, 4}, {7, 7}, {8, 8}, {0, 9}} {
		c.Equal(c.fence(store.FenceRequest{Epoch: k.asked}), k.want*store.FenceStep+1, "the first token, asked for epoch %d", k.asked)
		c.Equal(c.Get(job.ID), job, "a job in flight, after Fence")
	}
	c.Equal(c.Cancel(job.ID).Token, int64(9)*store.FenceStep+1, "the token of a job that is cancelled then")
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
	c.Equal(c.Reschedule(jobs[store.Retrying], c.Now().Add(time.Minute)).Token, first, "the token after a reschedule")
	c.Equal(c.Cancel(jobs[store.Retrying]).Token, first+1, "the token after the cancel that follows")
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
	added := c.answers(keyed("key", 0), replacing("key", nil))[0].ID
	c.Equal(c.Get(added).Token, first, "the token of a job that was replaced in the call that added it")
	c.answers(replacing("key", nil))
	c.Equal(c.Get(added).Token, first+1, "its token after it was replaced once more")
}

// fenceNoLostPair takes the floor for what was lost: whatever was given in an earlier epoch is no greater.
func fenceNoLostPair(c *C) {
	last := c.EnqueueN(3)[2]
	lost := c.ClaimOne()
	c.NAck(lost.Lease(), store.Snooze, 0, "")
	for _, epoch := range []int64{0, 5} {
		floor := c.fence(store.FenceRequest{Epoch: epoch}) - 1
		next := c.EnqueueN(3)
		c.True(next[0] > floor && next[0] > last, "the next id is %d, not above the floor of %d and the last of %d", next[0], floor, last)
		for round := range 3 {
			for _, j := range c.Claim(10) {
				c.True(j.Token > floor, "round %d: job %d has the token %d of the lost time", round, j.ID, j.Token)
				c.NAck(j.Lease(), store.Release, 0, "")
			}
		}
		last = next[2]
	}
	c.Equal(c.Ack(lost.Lease()).Status, store.StatusStale, "Ack under a lease of the lost time")
}

func fenceLeasesGoOn(c *C) {
	before := c.oneOfEach()
	c.fence(store.FenceRequest{})
	c.Equal(c.everything(), before, "all jobs after Fence")
	for _, op := range finishOps {
		l := holding(c, string(op), 1)[0].Lease()
		c.fence(store.FenceRequest{})
		for _, under := range []store.Op{store.OpExtend, store.OpSave, op} {
			c.Equal(underLease(c, under, l).Status, store.StatusOK, "%s after Fence", under)
		}
		c.Equal(c.Get(l.ID).Token, l.Token, "the token after %s", op)
	}
}

func fenceRemembersHowLeasesWereEnded(c *C) {
	for _, op := range finishOps {
		done := finishedBy(c, op, string(op))
		c.fence(store.FenceRequest{})
		again(c, op, done, done.Lease(), store.StatusOK, "after Fence")
		c.fence(store.FenceRequest{EndLeases: true})
		again(c, op, done, done.Lease(), store.StatusOK, "after Fence with EndLeases")
	}
}

func fenceEndsLeases(c *C) {
	held := c.oneOfEach()[1]
	c.Advance(time.Second)
	for range 2 {
		before := c.everything()
		first := c.fence(store.FenceRequest{EndLeases: true})
		c.Equal(c.everything(), fenced(before, first), "all jobs after Fence with EndLeases")
		c.True(c.EnqueueOne() >= first, "the next id is above the floor")
		held.Token = first
	}
	c.Advance(ttl - time.Second - store.Resolution)
	c.Equal(c.Recover(10), []store.Recovered{}, "recovered one tick before the lease expires")
	c.Advance(store.Resolution)

	d := becomes(store.OpRecover, held, c.Now())
	c.Equal(c.Recover(10), []store.Recovered{{
		ID: d.ID, Queue: queue, Kind: d.Kind, Worker: worker, State: store.Failed, Token: d.Token, Next: d.RetryAt,
	}}, "recovered after Fence")
	c.Equal(c.Get(d.ID), d, "the recovered job")
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
