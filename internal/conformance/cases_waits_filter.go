package conformance

import (
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

func waitsFiltered(c *C) {
	before := c.parents(4) // of which one succeeds, one runs, one dies, and one succeeds
	c.Ack(c.hold(before[0]))
	c.hold(before[1])
	c.NAck(c.hold(before[2]), store.Never, 0, "boom")
	c.Ack(c.hold(before[3]))
	runs := c.Enqueue(whatever(needing(before[0], before[2])))[0]
	held := c.ClaimOne().Lease()
	ended := c.Enqueue(needing(before[3]))[0]
	c.Ack(c.ClaimOne().Lease())
	blocked := c.Enqueue(needing(before[0], before[1]))[0]

	for on, want := range map[int64][]int64{
		before[0]: {blocked, runs}, before[1]: {blocked}, before[2]: {runs}, before[3]: {ended}, runs: nil, noJob: nil,
	} {
		c.Equal(ids(c.List(store.Filter{WaitsFor: on}, 10)), want, "the jobs that wait for job %d", on)
		n := int64(0)
		for _, jobs := range c.countOf(store.Filter{WaitsFor: on}) {
			n += jobs
		}
		c.Equal(n, int64(len(want)), "how many jobs wait for job %d", on)
	}
	c.Equal(ids(c.List(store.Filter{WaitsFor: before[0], States: []store.State{store.Blocked}}, 10)), []int64{blocked}, "those that are blocked")
	c.Equal(ids(c.List(store.Filter{WaitsFor: before[0], After: runs}, 10)), []int64{blocked}, "those with a greater id")
	c.Equal(ids(c.List(store.Filter{WaitsFor: before[0], IDs: []int64{before[0], runs}}, 10)), []int64{runs}, "those among some")
	c.Equal(ids(c.List(store.Filter{Queue: first, Unneeded: true}, 10)), before[3:], "the unneeded jobs")
	c.Equal(ids(c.List(store.Filter{IDs: before, Unneeded: true}, 10)), before[3:], "the unneeded jobs among some")
	c.Equal(c.countOf(store.Filter{Queue: first, Unneeded: true}), map[string]int64{first + " succeeded": 1}, "how many there are")

	removed, err := c.Store.Delete(c.Ctx, store.Filter{Queue: first, FinishedFor: store.Resolution, Unneeded: true}, 1)
	c.OK(err, "Delete of unneeded jobs")
	c.Equal(len(removed), 0, "how many jobs have ended long enough ago")
	c.Advance(time.Minute)
	removed, err = c.Store.Delete(c.Ctx, store.Filter{Queue: first, FinishedFor: time.Minute, Unneeded: true}, 1)
	c.OK(err, "Delete of unneeded jobs")
	c.Equal(each(removed, func(o store.Outcome) int64 { return o.ID }), before[3:], "the first unneeded job, past those that are needed")
	c.Equal(ids(c.List(store.Filter{WaitsFor: before[3]}, 10)), []int64{ended}, "the jobs that have waited for a job that is gone")
	removed, err = c.Store.Delete(c.Ctx, store.Filter{IDs: []int64{before[2], before[0]}, Unneeded: true}, 1)
	c.OK(err, "Delete of named jobs that are needed")
	c.Equal(removed, []store.Outcome{{ID: before[2], Status: store.StatusNotFound}, {ID: before[0], Status: store.StatusNotFound}}, "the outcomes")

	outcomes, err := c.Store.Cancel(c.Ctx, store.Filter{IDs: []int64{blocked, before[1]}, Unneeded: true}, 2)
	c.OK(err, "Cancel of a job and of what it needs")
	c.Equal(outcomes, []store.Outcome{
		store.OutcomeOf(c.Get(blocked).Job, store.StatusOK), {ID: before[1], Status: store.StatusNotFound},
	}, "the outcomes of a job that nobody needs, and of what it needed before")
	c.Equal(ids(c.List(store.Filter{Queue: first, Unneeded: true}, 10)), []int64{before[1]}, "what is unneeded after that")
	outcomes, err = c.Store.Requeue(c.Ctx, store.Filter{WaitsFor: before[1]}, 10)
	c.OK(err, "Requeue of what waits for a job")
	c.Equal(outcomes, []store.Outcome{store.OutcomeOf(c.Get(blocked).Job, store.StatusOK)}, "the outcomes")
	c.Equal(c.Get(blocked).State, store.Blocked, "the state of a requeued job")
	c.Ack(held)
	c.Equal(ids(c.List(store.Filter{Queue: first, Unneeded: true}, 10)), []int64{before[2]}, "what is unneeded after another has ended")
}

func groupsWaitedFor(c *C) {
	members := c.Enqueue(in("g"), in("h"))
	ofG := []int64{c.Enqueue(whatever(needingGroups("g")))[0]}
	both := c.Enqueue(needingGroups("h", "g"))[0]
	twice := needingGroups("g")
	twice.After = append(twice.After, store.Wait{ID: members[1]})
	ofG = append([]int64{c.Enqueue(twice)[0], both}, ofG...)
	check := func(when string) {
		c.Helper()
		for name, want := range map[string][]int64{"g": ofG, "h": {both}, "G": nil, "i": nil} {
			c.Equal(ids(c.List(store.Filter{WaitsForGroup: name}, 10)), want, "the jobs that wait for the group %s, %s", name, when)
			n := int64(0)
			for _, jobs := range c.countOf(store.Filter{WaitsForGroup: name}) {
				n += jobs
			}
			c.Equal(n, int64(len(want)), "how many jobs wait for the group %s, %s", name, when)
		}
	}
	check("which is live")
	c.Equal(ids(c.List(store.Filter{WaitsForGroup: "g"}, 1)), ofG, "the same in pages of one")
	c.Equal(ids(c.List(store.Filter{WaitsForGroup: "g", After: both}, 10)), ofG[:1], "those with a greater id")
	c.Equal(ids(c.List(store.Filter{WaitsForGroup: "g", IDs: []int64{members[0], both}}, 10)), []int64{both}, "those among some")
	c.Equal(ids(c.List(store.Filter{WaitsForGroup: "g", WaitsFor: members[1]}, 10)), ofG[:1], "those that wait for a job as well")
	c.Ack(c.hold(members[0]))
	c.in(store.Ready, "whose group is done", ofG[2])
	check("one of which is done")
	c.Cancel(members[1])
	c.settleAll()
	c.in(store.Cancelled, "whose other group is spoiled", both)
	check("after jobs in both have ended")
	c.Delete(members[0])
	check("of which one has no job any more")
	outcomes, err := c.Store.Requeue(c.Ctx, store.Filter{WaitsForGroup: "h"}, 10)
	c.OK(err, "Requeue of what waits for a group")
	c.Equal(each(outcomes, func(o store.Outcome) int64 { return o.ID }), []int64{both}, "the jobs that were requeued")
	outcomes, err = c.Store.Cancel(c.Ctx, store.Filter{WaitsForGroup: "g", IDs: []int64{members[1], ofG[2]}}, 2)
	c.OK(err, "Cancel of named jobs that wait for a group")
	c.Equal(outcomes, []store.Outcome{
		{ID: members[1], Status: store.StatusNotFound}, store.OutcomeOf(c.Get(ofG[2]).Job, store.StatusOK),
	}, "the outcomes")
}
