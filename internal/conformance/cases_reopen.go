package conformance

import (
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

var reopenCases = []Case{
	{"Reopen/JobsAndHistorySurvive", "When a call returns without an error, its effect is committed and is as durable as the adapter promises.", reopenJobsAndHistorySurvive},
	{"Reopen/LeasesSurvive", "When a call returns without an error, its effect is committed and is as durable as the adapter promises.", reopenLeasesSurvive},
	{"Reopen/WaysOfFinishingAreRemembered", "If the holder finishes the job in the same way again, the store must answer ok and change nothing, so that a caller can repeat a call whose reply was lost. If the holder tries to finish the job in another way, the store must answer stale.", reopenWaysOfFinishingAreRemembered},
	{"Reopen/UniqueKeysSurvive", "A unique key applies across all queues and kinds, and at most one job holds it.", reopenUniqueKeysSurvive},
	{"Reopen/RequestKeysSurvive", sentenceRequestKey, reopenRequestKeysSurvive},
	{"Reopen/PausesAndPoliciesSurvive", "Once SetPaused(true) has returned, new claims on the queue return no jobs until the queue is resumed.\nWhen a call returns without an error, its effect is committed and is as durable as the adapter promises.", reopenPausesAndPoliciesSurvive},
	{"Reopen/JobsInFlightStillCount", sentenceInFlight, reopenJobsInFlightStillCount},
	{"Reopen/KeysKeepTheirTurns", sentenceNextKey, reopenKeysKeepTheirTurns},
	{"Reopen/KeysKeepTheirOrder", sentenceInOrder + "\n" + sentenceHoldsBack, reopenKeysKeepTheirOrder},
	{"Reopen/ClaimsStillCount", sentenceRate + "\n" + sentenceEachClaim, reopenClaimsStillCount},
	{"Reopen/ActivitySurvives", "When a call returns without an error, its effect is committed and is as durable as the adapter promises.", reopenActivitySurvives},
	{"Reopen/IDsAreNeverUsedAgain", "The store must never use an id again.", reopenIDsAreNeverUsedAgain},
	{"Reopen/LeasesOfAClockThatWasAheadRunFromNow", "The store looks for them in the first call after it was opened or saw its clock go back, and then in every call until it has found all of them. Otherwise it looks every 30 s.", reopenAhead},
	{"Reopen/FenceSurvives", sentenceFloor, reopenFenceSurvives},
	{"Reopen/ExpiredLeasesAreRecovered", "So if every worker of a job dies, the job is dead after MaxRetries plus one claims.", reopenExpiredLeasesAreRecovered},
	{"Reopen/AnsweredCallsSurviveAClosingStore", "Calls in progress finish or fail.", reopenAnsweredCallsSurvive},
}

// reopen closes the store and goes on with what it has kept.
func (c *C) reopen() {
	if c.instance.Reopen == nil {
		c.Fatalf("the store cannot be reopened: exclude Reopen/ with a reason")
	}
	s, err := c.instance.Reopen(c.Ctx)
	c.OK(err, "opening the store again")
	c.use(s)
}

func reopenJobsAndHistorySurvive(c *C) {
	c.Enqueue(plainBut(func(n *store.NewJob) {
		n.Payload, n.Priority, n.Tags, n.Trace = []byte("{ \"b\": 1e400,\n \"a\": \"\\u0000\" }"), -9, []string{"t2", "t1"}, "trace"
		n.Delay, n.MaxRetries, n.Timeout = time.Hour, 7, time.Minute
		n.Backoff = store.Backoff{Base: 1500 * time.Microsecond, Cap: time.Hour, Jitter: 30}
		n.UniqueKey, n.UniqueFor = "key", time.Hour
	}))
	c.oneOfEach()
	held := c.ClaimOne()
	c.One(c.Store.Save(c.Ctx, []store.Save{{Lease: held.Lease(), Seq: 4, Checkpoint: []byte(`{ "c" : 1 }`), Progress: []byte(`"p"`)}}))
	again := c.ClaimAnew(held)
	c.One(c.Store.Ack(c.Ctx, []store.Ack{{Lease: again.Lease(), Result: []byte(` "r"`)}}))
	crowd := c.crowd()

	for range 2 {
		before := c.everything()
		c.reopen()
		c.Equal(c.everything(), before, "all jobs after the store was opened again")
		c.Advance(time.Second)
	}
	k := crowd.filters[0]
	c.Equal(ids(c.List(k.filter, 100)), crowd.newestFirst(k.want), "List %+v after the store was opened again", k.filter)
}

func reopenLeasesSurvive(c *C) {
	c.EnqueueN(3)
	held := c.Claim(3)
	lost := held[2].Lease()
	c.Cancel(lost.ID)
	c.SaveCheckpoint(held[0].Lease(), 5, `5`)
	c.Advance(time.Second)
	c.reopen()

	c.changesNothing("an older save", func() { c.SaveCheckpoint(held[0].Lease(), 4, `4`) })
	c.Equal(c.Extend(held[0].Lease()).Next, c.Now().Add(ttl), "the end of a lease extended after the store was opened again")
	c.Equal(c.Ack(held[1].Lease()).Status, store.StatusOK, "Ack after the store was opened again")
	c.Equal(c.Ack(lost).Status, store.StatusStale, "Ack under a lease that was lost before")
	c.Equal(c.Extend(lost).Status, store.StatusCancelled, "Extend under a lease that was lost before")
	c.Equal(c.Recover(10), []store.Recovered{}, "recovered although no lease has expired")
}

func reopenWaysOfFinishingAreRemembered(c *C) {
	leases := map[store.Op]store.Lease{}
	for _, op := range finishOps {
		leases[op] = holding(c, string(op), 1)[0].Lease()
		underLease(c, op, leases[op])
	}
	c.reopen()
	c.changesNothing("repeats after the store was opened again", func() {
		for op, l := range leases {
			for _, other := range finishOps {
				want := store.StatusStale
				if wayOf(other) == wayOf(op) {
					want = store.StatusOK
				}
				c.Equal(underLease(c, other, l).Status, want, "%s after %s", other, op)
			}
		}
	})
}

func reopenUniqueKeysSurvive(c *C) {
	live := plainBut(func(n *store.NewJob) { n.UniqueKey, n.Delay = "live", 2*time.Hour })
	window := c.deadWithKey("window", time.Hour)
	gone := c.deadWithKey("gone", time.Hour)
	c.Delete(gone.ID)
	c.deadWithKey("ended", 0)
	holder := c.Enqueue(live)[0]
	c.reopen()

	c.held(keyed("live", 0), holder, store.Ready, "by a live job")
	c.free(keyed("ended", 0), "its job had ended")
	c.Advance(time.Hour - store.Resolution)
	c.held(keyed("window", 0), window.ID, store.Failed, "one tick before its window ends")
	c.held(keyed("gone", 0), gone.ID, "", "one tick before the window of a job that is gone ends")
	c.Advance(store.Resolution)
	c.free(keyed("window", 0), "its window has ended")
	c.free(keyed("gone", 0), "its window has ended")
	c.held(keyed("live", 0), holder, store.Ready, "by a live job, an hour later")
}

func reopenRequestKeysSurvive(c *C) {
	first := c.asked(request("key"))
	cancelling.on(c, only(first[0].ID), 1)
	deleting.on(c, only(first[0].ID), 1)
	c.Advance(store.RequestKeyLife - store.Resolution)
	c.reopen()
	c.changesNothing("a repeat after the store was opened again", func() {
		c.Equal(c.asked(request("key")), first, "the answer after the store was opened again")
	})
	c.refusesRequest("other jobs", store.EnqueueRequest{Jobs: []store.NewJob{plain()}, RequestKey: "key"})
	c.Advance(store.Resolution)
	c.True(c.asked(request("key"))[0].ID > first[2].ID, "the key is free when its day has passed")
}

// reopenPausesAndPoliciesSurvive also has a policy that sets nothing any more: its version must not restart.
func reopenPausesAndPoliciesSurvive(c *C) {
	id := c.EnqueueOne()
	set := c.setPolicy(queue, c.aPolicy())
	unset := c.setPolicy("unset", store.Policy{Version: c.setPolicy("unset", c.aPolicy()).Version})
	c.setPaused(queue, true)
	c.setPaused("empty", true)
	c.reopen()
	want := []store.Queue{{Name: "empty", Paused: true}, {Name: queue, Paused: true, Policy: set}}
	c.Equal(c.queues(), want, "queues after the store was opened again")
	c.Equal(ids(c.Claim(10)), []int64{}, "claimed from a queue that was paused before")
	c.setPaused(queue, false)
	c.reopen()
	c.Equal(ids(c.Claim(10)), []int64{id}, "claimed from a queue that went on before")
	c.Equal([]store.Policy{c.policy(queue), c.policy("unset")}, []store.Policy{set, unset}, "the policies after the store was opened again twice")
}

// reopenJobsInFlightStillCount claims where there is room for one more, before and after.
func reopenJobsInFlightStillCount(c *C) {
	c.admit(queue, 1)
	list := c.EnqueueN(2)
	held := c.ClaimOne()
	c.reopen()
	c.Equal(ids(c.Claim(10)), []int64{}, "claimed from a queue that was full before")
	c.Ack(held.Lease())
	c.Equal(ids(c.Claim(10)), list[1:], "claimed when its job has ended")
	c.Ack(c.Get(list[1]).Lease())
	if c.noKeyLimits {
		return
	}
	c.admitPerKey(queue, 1)
	list = c.enqueueOf("a", "a", "b")
	held = c.ClaimOne()
	c.reopen()
	c.Equal(ids(c.Claim(10)), list[2:], "claimed beside a key that was full before")
	c.Ack(held.Lease())
	c.Equal(ids(c.Claim(10)), list[1:2], "claimed when the job of the key has ended")
}

// reopenKeysKeepTheirTurns has keys take turns, and ends the round elsewhere than it began.
func reopenKeysKeepTheirTurns(c *C) {
	if c.noKeyLimits {
		return
	}
	c.takeTurns(queue, store.Policy{})
	c.enqueueOf(slices.Concat(of("", 5), of("a", 5), of("b", 5))...)
	order := c.firstRound("", "a", "b")
	c.Equal(keysOf(c.Claim(1)), order[:1], "the key before the store was opened again")
	c.reopen()
	c.Equal(keysOf(c.Claim(4)), []string{order[1], order[2], order[0], order[1]}, "the keys when the store was opened again")
}

// reopenKeysKeepTheirOrder has a key with a job in flight, and one whose first job waits for its retry.
func reopenKeysKeepTheirOrder(c *C) {
	if c.noKeyLimits {
		return
	}
	c.keepInOrder(queue, store.Policy{})
	list := c.enqueueOf("a", "a", "b", "b")
	held := c.Claim(9)
	c.Equal(ids(held), []int64{list[0], list[2]}, "claimed")
	c.endAll(held[1:], store.After, time.Minute)
	c.reopen()
	c.Equal(ids(c.Claim(9)), []int64{}, "claimed when the store was opened again")
	c.ackOf(list[0])
	c.reopen()
	c.Equal(ids(c.Claim(9)), list[1:2], "claimed when a job of one key has ended")
	c.Advance(time.Minute)
	c.Equal(ids(c.Claim(9)), list[2:3], "claimed when the retry of the other one is due")
}

func reopenClaimsStillCount(c *C) {
	list := c.EnqueueN(9)
	c.rate(queue, aMinute(3))
	c.Equal(ids(c.Claim(2)), list[:2], "claimed with three a minute")
	c.reopen()
	c.Equal(ids(c.Claim(9)), list[2:3], "claimed when the store was opened again, and two have been claimed")
	c.Advance(time.Minute - store.Resolution)
	c.reopen()
	c.Equal(ids(c.Claim(9)), []int64{}, "claimed one tick before a minute has passed")
	c.Advance(store.Resolution)
	c.Equal(ids(c.Claim(9)), list[3:6], "claimed when it has passed")
}

// The highest ids are deleted before the store is closed, so that no row remembers them.
func reopenIDsAreNeverUsedAgain(c *C) { c.usesNoIDAgain(c.reopen) }

func reopenFenceSurvives(c *C) {
	c.JobIn(store.InFlight)
	last := c.JobIn(store.Dead).ID
	c.Delete(last)
	before := c.everything()
	first := c.fence(store.FenceRequest{EndLeases: true})
	c.reopen()
	c.Equal(c.everything(), fenced(before, first), "all jobs after Fence, and after the store was opened again")
	next := c.EnqueueOne()
	c.True(next >= first, "the next id is %d after %d", next, last)
	c.Equal(c.ClaimOne().Token, first, "the token of a claim, after the store was opened again")
	c.Equal(c.fence(store.FenceRequest{}), first+store.FenceStep, "the first token after a further Fence")
}

func reopenExpiredLeasesAreRecovered(c *C) {
	id := c.Enqueue(plainBut(func(n *store.NewJob) { n.MaxRetries = 2 }))[0]
	for claims := 1; claims <= 3; claims++ {
		c.Equal(ids(c.Claim(10)), []int64{id}, "claim %d", claims)
		c.Advance(ttl)
		c.reopen()
		c.Equal(len(c.Recover(10)), 1, "recovered after crash %d", claims)
		c.Advance(time.Hour)
	}
	dead := c.Get(id)
	c.Equal([]any{dead.Phase(), dead.Attempts, dead.Retries, dead.Error}, []any{store.Dead, 3, 3, store.LeaseExpired.Reason}, "the job at last")
	c.Equal(ids(c.Claim(10)), []int64{}, "claimed of a dead job")
}

// What was answered before the store closed is there afterwards, what was refused is not, and what is in doubt is there as a
// whole or not at all. The callers go on until they are refused.
func reopenAnsweredCallsSurvive(c *C) {
	var calls enqueueing
	old := c.over(c.Store)
	c.Parallel(5, func(i int) {
		if i > 0 {
			for n := 0; n < 100 && calls.call(old, i, n) == nil; n++ { // until it is closed
			}
			return
		}
		for range 10 {
			_, _ = old.Store.Count(c.Ctx, store.Filter{}) // lets the others begin
		}
		c.reopen()
	})
	calls.leaves(c)
}

func reopenActivitySurvives(c *C) {
	c.addActivity(eachNumber(queue, "k", 1), succeeded("", "", 1))
	before := c.activity(byKind)
	c.reopen()
	c.Equal(c.activity(byKind), before, "activity after the store was opened again")
}
