package conformance

import (
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

const (
	sentenceExtend       = "Extend is the heartbeat: the lease of each job runs until now plus ttl, also where that is earlier than before."
	sentenceExtendLate   = "A lease that has run out but was not recovered yet can be extended."
	sentenceNeverRevives = "Extend never brings back a job that is not in flight."
	sentenceExtendDone   = "finished the holder of this lease has finished the job;"
	sentenceExtendTTL    = "A duration is 0 to ten years, a lease or a window at least a microsecond, a jitter 0 to 100 percent, a cap no less than its base, and no time that is asked for lies after the year 9999."
)

var extendCases = []Case{
	{"Extend/LeaseRunsUntilNowPlusTTLAndNothingElseChanges", sentenceExtend, extendRunsUntilNowPlusTTL},
	{"Extend/ShortensALeaseToo", sentenceExtend, extendShortens},
	{"Extend/HoldsTheLeaseAgainstRecoveryToTheMicrosecond", "A claim gives a lease: the right to finish the job, until LeaseExpiresAt.", extendHoldsAgainstRecovery},
	{"Extend/LateButUnrecoveredIsExtended", sentenceExtendLate, extendLate},
	{"Extend/FinishedByItsHolderInAnyWay", sentenceExtendDone, extendFinished},
	{"Extend/ItemsAreHandledInOrderAndSpoilNoOther", sentencePositional, extendInOrder},
	{"Extend/TTLAtItsLimits", sentenceExtendTTL, extendTTLLimits},
	{"Extend/TTLIsTruncatedToAMicrosecond", "times and durations that come in are truncated to it", extendTTLIsTruncated},
	{"Extend/KeepsToTheLimitOfItems", sentenceCallLimit, extendItemLimit},
	{"Extend/NeverUndoesAFinishAtTheSameTime", sentenceNeverRevives, extendAgainstFinishing},
}

func extendRunsUntilNowPlusTTL(c *C) {
	before := holding(c, queue, 1)[0]
	for _, wait := range []time.Duration{store.Resolution, time.Second, ttl - store.Resolution} {
		c.Advance(wait)
		c.Extend(before.Lease())
		c.Equal(c.Get(before.ID), becomes(store.OpExtend, before, c.Now()), "the job, after a heartbeat %v after the one before", wait)
	}
}

// extendShortens gives a lease of half a minute a second only, and it ends after that second.
func extendShortens(c *C) {
	before := holding(c, queue, 1)[0]
	o := c.One(c.Store.Extend(c.Ctx, []store.Lease{before.Lease()}, time.Second))
	want := before
	want.LeaseExpiresAt = c.Now().Add(time.Second)
	c.True(want.LeaseExpiresAt.Before(before.LeaseExpiresAt), "the new end of the lease is earlier")
	c.Equal(o, store.OutcomeOf(want.Job, store.StatusOK), "the outcome")
	c.Equal(c.Get(before.ID), want, "the job")
	c.Advance(time.Second - store.Resolution)
	c.Equal(len(c.Recover(1)), 0, "recovered a tick before the shortened lease ends")
	c.Advance(store.Resolution)
	c.Equal(len(c.Recover(1)), 1, "recovered when the shortened lease ends")
}

// extendHoldsAgainstRecovery has beats hold a job for ten minutes, each at the last tick, and then stop.
func extendHoldsAgainstRecovery(c *C) {
	before := holding(c, queue, 1)[0]
	c.Extend(before.Lease())
	for range 20 {
		c.Advance(ttl - store.Resolution)
		c.Equal(len(c.Recover(1)), 0, "recovered of a lease that is held")
		c.Equal(c.Extend(before.Lease()).Status, store.StatusOK, "the heartbeat")
	}
	c.Equal(c.Get(before.ID), becomes(store.OpExtend, before, c.Now()), "the job after ten minutes")
	c.Advance(ttl)
	c.Equal(len(c.Recover(1))+len(c.Recover(1)), 1, "recovered, by two calls, when the beats have stopped")
}

func extendLate(c *C) {
	for _, late := range []time.Duration{0, store.Resolution, time.Hour} {
		before := holding(c, late.String(), 1)[0]
		c.Advance(before.LeaseExpiresAt.Add(late).Sub(c.Now()))
		want := becomes(store.OpExtend, before, c.Now())
		c.Equal(c.Extend(before.Lease()), store.OutcomeOf(want.Job, store.StatusOK), "the outcome %v after the lease's end", late)
		c.Equal(c.Get(before.ID), want, "the job, extended %v after its lease's end", late)
		c.Equal(len(c.Recover(10)), 0, "recovered of a lease that was extended late")
		c.Ack(before.Lease())
	}
}

func extendFinished(c *C) {
	for _, op := range finishOps {
		done := finishedBy(c, op, string(op))
		again(c, store.OpExtend, done, done.Lease(), store.StatusFinished, "after "+string(op))
	}
	held := holding(c, queue, 1)[0]
	c.One(c.Store.Ack(c.Ctx, []store.Ack{{Lease: held.Lease(), Result: []byte("{")}}))
	again(c, store.OpExtend, c.Get(held.ID), held.Lease(), store.StatusFinished, "after an Ack whose result was refused")
}

func extendInOrder(c *C) {
	jobs := holding(c, queue, 3)
	c.Ack(jobs[1].Lease())
	c.Cancel(jobs[2].ID)
	done, cancelled := c.Get(jobs[1].ID), c.Get(jobs[2].ID)
	good, older := jobs[0].Lease(), store.Lease{ID: jobs[0].ID, Token: jobs[0].Token - 1}

	got, err := c.Store.Extend(c.Ctx, []store.Lease{older, good, done.Lease(), notThere(0), good, cancelled.Lease(), older}, ttl)

	c.OK(err, "Extend under seven leases")
	want := becomes(store.OpExtend, jobs[0], c.Now())
	c.Equal(statuses(got), []store.Status{
		store.StatusStale, store.StatusOK, store.StatusFinished, store.StatusNotFound, store.StatusOK, store.StatusCancelled, store.StatusStale,
	}, "the statuses")
	c.Equal([]store.Outcome{got[1], got[3], got[4], got[6]}, []store.Outcome{
		store.OutcomeOf(want.Job, store.StatusOK), {ID: notThere(0).ID, Status: store.StatusNotFound},
		store.OutcomeOf(want.Job, store.StatusOK), store.OutcomeOf(want.Job, store.StatusStale),
	}, "the outcomes of the good lease, of the job that is not there, and of the older lease at the end")
	for _, d := range []store.JobDetail{want, done, cancelled} {
		c.Equal(c.Get(d.ID), d, "the job, after Extend under seven leases")
	}
}

func extendTTLLimits(c *C) {
	before := holding(c, queue, 1)[0]
	for _, bad := range []time.Duration{-1, 0, store.Resolution - 1, store.DefaultMaxLease + 1} {
		_, err := c.Store.Extend(c.Ctx, []store.Lease{before.Lease()}, bad)
		c.ErrorIs(err, store.ErrInvalid, "Extend by %v", bad)
		c.Equal(c.Get(before.ID), before, "the job, after Extend by %v", bad)
	}
	for _, good := range []time.Duration{store.Resolution, store.DefaultMaxLease} {
		o := c.One(c.Store.Extend(c.Ctx, []store.Lease{before.Lease()}, good))
		c.Equal(o.Next, c.Now().Add(good), "the end of a lease that was extended by %v", good)
		c.Equal(c.Get(before.ID).LeaseExpiresAt, c.Now().Add(good), "the stored end of a lease that was extended by %v", good)
	}
}

func extendTTLIsTruncated(c *C) {
	before := holding(c, queue, 1)[0]
	o := c.One(c.Store.Extend(c.Ctx, []store.Lease{before.Lease()}, 2*store.Resolution-1))
	c.Equal(o.Next, c.Now().Add(store.Resolution), "the end of a lease that was extended by 1,999 ns")
	c.Equal(c.Get(before.ID).LeaseExpiresAt, o.Next, "the stored end of the lease")
}

func extendItemLimit(c *C) {
	before := holding(c, queue, 1)[0]
	leases := []store.Lease{before.Lease()}
	for i := range store.MaxItems {
		leases = append(leases, notThere(i))
	}
	_, err := c.Store.Extend(c.Ctx, leases, ttl)
	c.ErrorIs(err, store.ErrInvalid, "Extend of 1,001 leases")
	c.Equal(c.Get(before.ID), before, "the job, after Extend of 1,001 leases")
	outcomes, err := c.Store.Extend(c.Ctx, leases[:store.MaxItems], ttl)
	c.OK(err, "Extend of 1,000 leases")
	c.Equal(len(outcomes), store.MaxItems, "outcomes of Extend of 1,000 leases")
	c.Equal(c.Get(before.ID), becomes(store.OpExtend, before, c.Now()), "the job, after Extend of 1,000 leases")
}

// extendAgainstFinishing has heartbeats come while each job is finished: it must not be in flight afterwards.
func extendAgainstFinishing(c *C) {
	for _, op := range finishOps {
		for n, before := range holding(c, string(op), 8) {
			c.Parallel(4, func(i int) {
				if i != n%4 {
					c.Extend(before.Lease())
				} else {
					c.Equal(underLease(c, op, before.Lease()).Status, store.StatusOK, "%s beside heartbeats", op)
				}
			})
			c.Equal(c.Get(before.ID), becomes(op, before, c.Now()), "a job, after %s beside heartbeats", op)
		}
	}
}
