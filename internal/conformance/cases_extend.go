package conformance

import (
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

const sentenceExtend = "Extend is the heartbeat: it makes the lease of each job run until now plus ttl, even if that is earlier than before."

var extendCases = []Case{
	{"Extend/LeaseRunsUntilNowPlusTTLAndNothingElseChanges", sentenceExtend + "\nA claim grants a lease: the right to finish the job until LeaseExpiresAt.", extendRunsUntilNowPlusTTL},
	{"Extend/ItemsAreHandledInOrderAndSpoilNoOther", sentencePositional + "\nfinished the holder of this lease has finished the job;\nExtend never brings back a job that is not in flight.\nIf a job is not in flight and still has the token of a lease, the holder of that lease finished the job.", extendInOrder},
	{"Extend/AnyTTLWithinItsLimitsAlsoAShorterOne", sentenceExtend + "\nA duration is 0 to ten years, a lease or the window of a unique key is at least one microsecond, a jitter is 0 to 100 percent, and a cap is no less than its base. No requested time may lie after the year 9999.", extendTTLLimits},
}

// extendRunsUntilNowPlusTTL has heartbeats hold a job, the later ones each at the last tick, and then stop.
func extendRunsUntilNowPlusTTL(c *C) {
	before := holding(c, queue, 1)[0]
	last := ttl - store.Resolution
	for _, wait := range []time.Duration{store.Resolution, time.Second, last, last, last} {
		c.Advance(wait)
		c.Equal(c.Recover(1), []store.Recovered{}, "recovered of a lease that is held")
		takes(c, store.OpExtend, before, "%v after the one before", wait)
	}
	c.Advance(ttl)
	c.Equal(len(c.Recover(1))+len(c.Recover(1)), 1, "recovered, by two calls, when the heartbeats have stopped")
}

func extendInOrder(c *C) {
	jobs := holding(c, queue, 3)
	c.Ack(jobs[1].Lease())
	c.Cancel(jobs[2].ID)
	done, cancelled := c.Get(jobs[1].ID), c.Get(jobs[2].ID)
	good, older := jobs[0].Lease(), store.Lease{ID: jobs[0].ID, Token: jobs[0].Token - 1}

	got := c.many(c.Store.Extend(c.Ctx, []store.Lease{older, good, done.Lease(), notThere(0), good, cancelled.Lease(), older}, ttl))
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

// extendTTLLimits shortens the lease with each ttl that is granted, and it ends with the last one.
func extendTTLLimits(c *C) {
	want := holding(c, queue, 1)[0]
	extend := func(ttl time.Duration) ([]store.Outcome, error) {
		return c.Store.Extend(c.Ctx, []store.Lease{want.Lease()}, ttl)
	}
	for _, bad := range []time.Duration{-1, 0, store.Resolution - 1, store.DefaultMaxLease + 1} {
		_, err := extend(bad)
		c.refused(err, -1, "ttl", "Extend by "+bad.String())
		c.Equal(c.Get(want.ID), want, "the job, after Extend by %v", bad)
	}
	for _, good := range []time.Duration{store.DefaultMaxLease, time.Second, store.Resolution} {
		want.LeaseExpiresAt = c.Now().Add(good)
		c.Equal(c.One(extend(good)), store.OutcomeOf(want.Job, store.StatusOK), "the outcome of Extend by %v", good)
		c.Equal(c.Get(want.ID), want, "the job, after Extend by %v", good)
	}
	c.Equal(len(c.Recover(1)), 0, "recovered a tick before the shortened lease ends")
	c.Advance(store.Resolution)
	c.Equal(len(c.Recover(1)), 1, "recovered when the shortened lease ends")
}
