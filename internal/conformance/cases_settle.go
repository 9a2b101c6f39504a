package conformance

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

const sentenceExpiredKey = "An expired job does not hold its key, unless it holds it for a window. A call that needs the key cancels the expired job first, as Settle does."

var settleCases = []Case{
	{"Settle/CancelsToTheMicrosecond", "It cancels a job as Cancel does.\nIt changes at most limit jobs in all, and returns them.\nIt is safe to repeat a Settle.\nA job has expired if it is blocked, ready or retrying and its ExpiresAt is at or before now.", settleCancels},
	{"Settle/EarliestExpiryFirstThenSmallerID", "Settle cancels at most limit jobs that have expired: the earliest ExpiresAt first, then the smaller id.", settleEarliestFirst},
	{"Settle/JobInFlightDoesNotExpire", "A job in flight does not expire, but it may expire when its attempt ends.", settleSparesRunning},
	{"Settle/ExpiredJobIsNotClaimed", "A job is claimable when it is ready and its RunAt is due, or retrying and its RetryAt is due, and it has not expired.", settleNotClaimed},
	{"Settle/ExpiredJobHoldsNoKey", sentenceExpiredKey, settleFreesKeys},
	{"Settle/RequeueNeedsTheKeyToo", sentenceExpiredKey, settleFreesKeysForRequeue},
	{"Settle/RequeueClearsExpiresAt", "Error, result and ExpiresAt are cleared.", settleRequeueClears},
	{"Settle/ExpiresAtNotLaterThanDueIsInvalid", "A job whose ExpiresAt is not later than its due time is invalid, unless the call is a repeat under its request key.", settleInvalid},
	{"Settle/FollowsAClockThatWasSetBack", sentenceFollows, settleFollowsTheClock},
	{"Settle/SettlersAtTheSameTimeShareTheJobs", "Each expired job is cancelled once, even if several callers settle at the same time.", settlersShare},
}

// Settle cancels up to limit expired jobs.
func (c *C) Settle(limit int) []store.Settled {
	c.Helper()
	settled, err := c.Store.Settle(c.Ctx, limit)
	c.OK(err, "Settle with limit %d", limit)
	return settled
}

// expiring is a plain job that expires so long from now.
func (c *C) expiring(in time.Duration) store.NewJob {
	return plainBut(func(n *store.NewJob) { n.ExpiresAt = c.Now().Add(in) })
}

func settledAs(jobs ...store.JobDetail) []store.Settled {
	return each(jobs, func(d store.JobDetail) store.Settled { return store.SettledOf(&d.Job) })
}

// settleCancels has a job that is retrying, one that snoozes until after its expiry, and one that is ready.
func settleCancels(c *C) {
	var waiting []store.JobDetail
	for _, end := range []func(store.Lease){
		func(l store.Lease) { c.NAck(l, store.Fail, 0, "boom") },
		func(l store.Lease) { c.NAck(l, store.Snooze, 2*time.Hour, "not yet") },
		nil,
	} {
		id := c.Enqueue(c.expiring(time.Hour))[0]
		c.Equal(c.Get(id).ExpiresAt(), c.Now().Add(time.Hour), "ExpiresAt of a new job")
		if end != nil {
			j := c.ClaimOne()
			c.Equal(j.ExpiresAt(), c.Now().Add(time.Hour), "ExpiresAt of a claimed job")
			end(j.Lease())
		}
		waiting = append(waiting, c.Get(id))
	}
	never := c.Get(c.EnqueueOne())
	c.Advance(time.Hour - store.Resolution)
	c.Equal(c.Settle(10), []store.Settled{}, "settled a microsecond before they expire")
	c.Advance(store.Resolution)
	settled := c.Settle(10)
	var want []store.JobDetail
	for _, before := range waiting {
		after := becomes(store.OpCancel, before, c.Now())
		c.Equal(c.Get(before.ID), after, "a job that was %s and has expired", before.Phase())
		want = append(want, after)
	}
	c.Equal(settled, settledAs(want...), "the answer")
	c.Equal(c.Settle(10), []store.Settled{}, "settled by a repeat")
	c.Equal(c.Get(never.ID), never, "a job that never expires")
}

// settleEarliestFirst has expiries in another order than the ids.
func settleEarliestFirst(c *C) {
	var jobs []store.Job
	for i := range 30 {
		jobs = append(jobs, c.Get(c.Enqueue(c.expiring(time.Duration(i*7%10+1) * time.Second))[0]).Job)
	}
	slices.SortFunc(jobs, func(a, b store.Job) int { return cmp.Or(a.ExpiresAt().Compare(b.ExpiresAt()), cmp.Compare(a.ID, b.ID)) })
	c.Advance(time.Minute)
	taken(c, ids(jobs), c.Settle, func(s store.Settled) int64 { return s.ID })
}

func settleSparesRunning(c *C) {
	id := c.Enqueue(c.expiring(time.Second))[0]
	c.ClaimOne()
	c.Advance(time.Second)
	held := c.Get(id)
	c.Equal(c.Settle(10), []store.Settled{}, "settled while the job is in flight")
	c.Equal(c.Get(id), held, "the job in flight")
	c.Equal(c.NAck(held.Lease(), store.Release, 0, "").Status, store.StatusOK, "Release after the expiry")
	c.Equal(ids(c.Claim(10)), []int64{}, "claimed after the release")
	c.Equal(len(c.Settle(10)), 1, "how many are settled after the release")

	c.Enqueue(c.expiring(time.Second))
	done := c.ClaimOne()
	c.Advance(time.Second)
	c.Equal(c.Ack(done.Lease()).Status, store.StatusOK, "Ack after the expiry")
	c.Equal(c.Settle(10), []store.Settled{}, "settled of a job that has succeeded")
}

// settleNotClaimed has expired jobs before others that are due: they are claimed, although nobody has settled yet.
func settleNotClaimed(c *C) {
	c.Enqueue(c.expiring(time.Hour), c.expiring(time.Hour))
	c.NAck(c.ClaimOne().Lease(), store.Fail, 0, "boom")
	c.Advance(time.Hour - store.Resolution)
	lost := c.Enqueue(c.expiring(store.Resolution))
	due := c.EnqueueN(2)
	c.Advance(store.Resolution)
	counts := c.count(store.Filter{})
	c.Equal(counts.Queues[0].Due, int64(2), "how many are due")
	c.Equal(counts.Queues[0].OldestDue, c.Get(due[0]).RunAt, "since when")
	c.Equal(ids(c.Claim(10)), due, "claimed")
	c.Equal(c.Get(lost[0]).State, store.Ready, "the state of an expired job before it is settled")
}

func settleFreesKeys(c *C) {
	keyedFor := func(key string, window time.Duration) store.NewJob {
		n := c.expiring(time.Second)
		n.UniqueKey, n.UniqueFor = key, window
		return n
	}
	ready := c.Get(c.Enqueue(keyedFor("ready", 0))[0])
	windowed := c.Enqueue(keyedFor("windowed", time.Hour))[0]
	c.Advance(time.Second - store.Resolution)
	c.held(keyed("ready", 0), ready.ID, store.Ready, "one tick before the holder expires")
	c.Advance(store.Resolution)
	c.held(keyed("windowed", time.Hour), windowed, store.Ready, "by an expired job with a window")
	c.Equal(c.Get(ready.ID), ready, "an expired job whose key nobody needs")
	fresh := c.free(keyed("ready", 0), "its holder has expired")
	c.Equal(c.Get(ready.ID), becomes(store.OpCancel, ready, c.Now()), "the expired holder")
	c.held(keyed("ready", 0), fresh, store.Ready, "by the new job")
	c.Equal(len(c.Settle(10)), 1, "how many are left to settle: the one with the window")

	c.drop(ids(c.List(store.Filter{States: []store.State{store.Ready}}, 10)))
	running := c.Enqueue(keyedFor("running", 0))[0]
	c.ClaimOne()
	c.Advance(time.Second)
	c.held(keyed("running", 0), running, store.InFlight, "by a job in flight")
}

// settleFreesKeysForRequeue requeues a job and, in the same call, the expired one that has its key: whichever comes first, the call is
// as if its items were applied in order.
func settleFreesKeysForRequeue(c *C) {
	for _, expiredFirst := range []bool{false, true} {
		dead := c.deadWithKey("key", 0)
		n := c.expiring(time.Second)
		n.UniqueKey = "key"
		expired := c.Get(c.Enqueue(n)[0])
		c.Advance(time.Second)
		named, want := []int64{dead.ID, expired.ID}, []store.Status{store.StatusOK, store.StatusDuplicate}
		if expiredFirst {
			named, want = []int64{expired.ID, dead.ID}, []store.Status{store.StatusWrongState, store.StatusOK}
		}
		c.Equal(statuses(requeueing.on(c, only(named...), 2)), want, "Requeue of both, the expired one first %t", expiredFirst)
		c.Equal(c.Get(dead.ID), becomes(store.OpRequeue, dead, c.Now()), "the requeued job")
		c.Equal(c.Get(expired.ID), becomes(store.OpCancel, expired, c.Now()), "the expired holder")
		c.Cancel(dead.ID)
	}
}

func settleRequeueClears(c *C) {
	id := c.Enqueue(c.expiring(time.Second))[0]
	c.Advance(time.Second)
	c.Settle(1)
	before := c.Get(id)
	c.Equal(c.Requeue(id).Status, store.StatusOK, "Requeue of an expired job")
	c.Equal(c.Get(id), becomes(store.OpRequeue, before, c.Now()), "the requeued job")
	c.Advance(time.Hour)
	c.Equal(c.Settle(10), []store.Settled{}, "settled after the requeue")
	c.Equal(c.ClaimOne().ExpiresAt(), time.Time{}, "ExpiresAt of the requeued job")
}

func settleInvalid(c *C) {
	now := c.Now()
	for what, change := range map[string]func(*store.NewJob){
		"now":                     func(n *store.NewJob) { n.ExpiresAt = now },
		"long past":               func(n *store.NewJob) { n.ExpiresAt = now.Add(-time.Hour) },
		"a part of a tick later":  func(n *store.NewJob) { n.ExpiresAt = now.Add(store.Resolution - 1) },
		"at its RunAt":            func(n *store.NewJob) { n.RunAt, n.ExpiresAt = now.Add(time.Hour), now.Add(time.Hour) },
		"at the end of its delay": func(n *store.NewJob) { n.Delay, n.ExpiresAt = time.Hour, now.Add(time.Hour) },
		"after the year 9999":     func(n *store.NewJob) { n.ExpiresAt = time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC) },
	} {
		_, err := c.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: []store.NewJob{plain(), plainBut(change)}})
		c.refused(err, 1, "expires_at", "a job that expires "+what)
	}
	c.Equal(c.howMany(), 0, "jobs of refused calls")
	next := plainBut(func(n *store.NewJob) { n.Delay, n.ExpiresAt = time.Hour, now.Add(time.Hour+store.Resolution) })
	req := store.EnqueueRequest{Jobs: []store.NewJob{next}, RequestKey: "key"}
	first := c.asked(req)
	c.Advance(2 * time.Hour)
	c.Equal(c.asked(req), first, "the answer to a repeat after the job has expired")
	other := plainBut(func(n *store.NewJob) { n.Delay, n.ExpiresAt = time.Hour, now.Add(4*time.Hour) })
	c.refusesRequest("another ExpiresAt", store.EnqueueRequest{Jobs: []store.NewJob{other}, RequestKey: "key"})
}

// settleFollowsTheClock lets jobs expire and has each kind of call see that, before the clock goes back.
func settleFollowsTheClock(c *C) {
	began := c.Now()
	all := c.Enqueue(c.expiring(time.Minute), c.expiring(2*time.Minute))
	c.Advance(time.Hour)
	c.Equal(ids(c.Claim(10)), []int64{}, "claimed after both have expired")
	c.Clock.Set(began.Add(time.Minute))
	c.Equal(ids(c.Claim(10)), all[1:], "claimed after the clock has gone back to where the first has just expired")
	c.Clock.Set(began)
	c.Equal(c.Settle(10), []store.Settled{}, "settled after the clock has gone back to where none has expired")
	c.Equal(ids(c.Claim(10)), all[:1], "claimed then")
}

func settlersShare(c *C) {
	for range 100 {
		c.Enqueue(c.expiring(time.Second))
	}
	c.Advance(time.Second)
	got := shared(c, c.Settle, func(s store.Settled) int64 { return s.ID })
	var want []store.Settled
	for _, d := range slices.Backward(c.All()) {
		c.Equal(d.Token, int64(1), "the token of a job that was cancelled once")
		want = append(want, store.SettledOf(&d))
	}
	c.Equal(got, want, "the answers of all settlers together")
}
