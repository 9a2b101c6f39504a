package conformance

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

const (
	sentenceRate       = "If the policy sets Rate, a claim takes at most as many jobs as Rate.N is greater than the number of jobs that were claimed from the queue later than now minus Rate.Per, whatever other calls do at the same time."
	sentenceEachClaim  = "Each claim of a job counts, whatever became of the job."
	sentenceAhead      = "A claim that was made later than now plus 5 s comes from a clock that was ahead, and counts as one that was made when a later claim finds it."
	sentenceFrom       = "Claims count from when the policy sets a rate. If another rate replaces that one, the claims that count then go on counting."
	sentenceWokenByNow = "When a claim has taken all that Rate let it take, and asked for more, the store sends a wake-up once there is room again."
)

var rateCases = []Case{
	{"Limits/Rates/ClaimTakesWhatThereIsRoomFor", sentenceRate, ratesClaimTakesWhatThereIsRoomFor},
	{"Limits/Rates/CountWhateverBecameOfTheJob", sentenceEachClaim, ratesCountWhateverBecameOfTheJob},
	{"Limits/Rates/RetriesFirst", "It takes up to RetryQuota retries and then fresh jobs up to Limit. If one lane has too few jobs, the other lane fills the places that are left.\n" + sentenceRate, ratesRetriesFirst},
	{"Limits/Rates/OfOneQueueAlone", "Claims keep to its limits.\n" + sentenceRate, ratesOfOneQueueAlone},
	{"Limits/Rates/BesideOtherLimits", sentenceRoom + "\n" + sentenceRate, ratesBesideOtherLimits},
	{"Limits/Rates/FollowThePolicy", "A claim that begins after SetPolicy has returned keeps to the new limits.\n" + sentenceFrom, ratesFollowThePolicy},
	{"Limits/Rates/OfAClockThatWasAhead", sentenceAhead, ratesOfAClockThatWasAhead},
	{"Limits/Rates/ManyClaimersKeepToIt", sentenceRate, ratesManyClaimersKeepToIt},
	{"Limits/Rates/SetBesideClaims", "A claim that begins after SetPolicy has returned keeps to the new limits.", ratesSetBesideClaims},
	{"Limits/Rates/HaveBounds", "ErrInvalid: the request breaks a limit and nothing was applied.", ratesHaveBounds},
}

// aMinute is the rate of n jobs a minute.
func aMinute(n int) store.Rate { return store.Rate{N: n, Per: time.Minute} }

// rate sets how many jobs of the queue may be claimed in how long.
func (c *C) rate(name string, r store.Rate) {
	c.Helper()
	c.setPolicy(name, store.Policy{Rate: r, Version: c.policy(name).Version})
}

func (c *C) rateByTheMinute(name string, n int) {
	c.Helper()
	c.rate(name, aMinute(n))
}

// ratesClaimTakesWhatThereIsRoomFor claims in the middle of minutes of the clock too, so that those must not matter. Nor must claims that find nothing, or
// a pause.
func ratesClaimTakesWhatThereIsRoomFor(c *C) {
	c.rate(queue, aMinute(5))
	for range 9 {
		c.Equal(ids(c.Claim(5)), []int64{}, "claimed from an empty queue")
	}
	list := c.EnqueueN(30)
	next := func(limit, want int, when string, args ...any) {
		c.Helper()
		c.Equal(ids(c.Claim(limit)), list[:want], "claimed %s", fmt.Sprintf(when, args...))
		list = list[want:]
	}
	c.Advance(50 * time.Second)
	next(2, 2, "with room for five")
	c.Advance(20 * time.Second)
	next(1, 1, "with room for three")
	c.Advance(20 * time.Second)
	next(9, 2, "with room for two")
	c.setPaused(queue, true)
	next(9, 0, "from a queue that is paused")
	c.setPaused(queue, false)
	next(9, 0, "without room")
	c.Advance(20*time.Second - store.Resolution)
	next(9, 0, "one tick before the first two cease to count")
	c.Advance(store.Resolution)
	next(1, 1, "when they have ceased to count")
	next(9, 1, "with room for one more")
	for round := range 3 { // the same again, each minute
		c.Advance(20 * time.Second)
		next(9, 1, "a minute after one was claimed, in round %d", round)
		c.Advance(20 * time.Second)
		next(9, 2, "a minute after two were claimed, in round %d", round)
		c.Advance(20 * time.Second)
		next(9, 2, "a minute after one and one more were claimed, in round %d", round)
	}
	c.Advance(time.Hour)
	next(4, 4, "after an hour")
	next(9, 1, "with room for one more after an hour")
}

// ratesCountWhateverBecameOfTheJob claims a job, and ends its lease in each way. A job that waits again is claimed again.
func ratesCountWhateverBecameOfTheJob(c *C) {
	c.rate(queue, aMinute(2))
	ends := map[string]func(l store.Lease){
		"recovery":  func(store.Lease) { c.Advance(ttl); c.Equal(len(c.Recover(10)), 1, "recovered") },
		"cancel":    func(l store.Lease) { c.Cancel(l.ID) },
		"deletion":  func(l store.Lease) { c.Cancel(l.ID); c.Delete(l.ID) },
		"no end":    func(store.Lease) {},
		"a requeue": func(l store.Lease) { c.Cancel(l.ID); c.Requeue(l.ID) },
	}
	for _, op := range finishOps {
		ends[string(op)] = func(l store.Lease) { underLease(c, op, l) }
	}
	for name, end := range ends {
		first := c.Enqueue(plainBut(func(n *store.NewJob) { n.Priority = 1 }))[0]
		c.Equal(ids(c.Claim(1)), []int64{first}, "claimed before %s", name)
		before := c.Now()
		end(c.Get(first).Lease())
		c.Advance(time.Second)
		others := c.EnqueueN(3)
		again := c.Claim(3)
		c.Equal(len(again), 1, "how many were claimed after %s, with room for one", name)
		c.Equal(ids(c.Claim(3)), []int64{}, "claimed after %s, when there is no room any more", name)
		c.Advance(before.Add(time.Minute).Sub(c.Now()))
		c.Equal(len(c.Claim(3)), 1, "how many were claimed a minute after the job that met %s", name)
		cancelling.on(c, only(append(others, first)...), 10)
		c.Advance(time.Minute)
	}
}

func ratesRetriesFirst(c *C) { c.retriesFirst(c.rateByTheMinute) }

func ratesOfOneQueueAlone(c *C) { c.limitOneQueueAlone(c.rateByTheMinute) }

// ratesBesideOtherLimits has a rate and other limits, each of which is the lowest once. What a claim passes over does not count for the rate.
func ratesBesideOtherLimits(c *C) {
	list := c.EnqueueN(20)
	p := store.Policy{Rate: aMinute(5), MaxInFlight: 3}
	c.setPolicy(queue, p)
	held := c.Claim(9)
	c.Equal(ids(held), list[:3], "claimed with room for three in flight")
	for _, j := range held {
		c.Ack(j.Lease())
	}
	c.Equal(ids(c.Claim(9)), list[3:5], "claimed with room for three in flight, of which the rate admits two")
	c.Advance(time.Minute)
	c.Equal(ids(c.Claim(9)), list[5:6], "claimed a minute later, with room for one more in flight")
	if c.noKeyLimits {
		return
	}
	c.setPolicy("keys", store.Policy{Rate: aMinute(3), MaxPerKey: 1})
	in := func(n store.NewJob) store.NewJob { n.Queue = "keys"; return n }
	of := c.Enqueue(in(ofKey("a")), in(ofKey("a")), in(ofKey("b")), in(ofKey("b")), in(ofKey("c")), in(plain()), in(ofKey("d")))
	c.Equal(ids(c.claimFrom("keys", 2, 0)), []int64{of[0], of[2]}, "claimed of two keys")
	c.Equal(ids(c.claimFrom("keys", 9, 0)), []int64{of[4]}, "claimed when the rate admits one more")
	c.Advance(time.Minute)
	c.Equal(ids(c.claimFrom("keys", 9, 0)), of[5:], "claimed a minute later, when three keys have no room")
}

func ratesFollowThePolicy(c *C) {
	list := c.EnqueueN(40)
	next := func(want int, when string) {
		c.Helper()
		c.Equal(ids(c.Claim(6)), list[:want], "claimed %s", when)
		list = list[want:]
	}
	next(6, "without a rate")
	c.rate(queue, aMinute(3))
	next(3, "with three a minute, when six were claimed before there was a rate")
	c.Advance(30 * time.Second)
	c.rate(queue, aMinute(5))
	next(2, "with five a minute, of which three were claimed under the rate before")
	c.rate(queue, aMinute(4))
	next(0, "with four a minute, of which five were claimed")
	c.Advance(30 * time.Second)
	next(2, "with four a minute, when three count no more")
	c.setPolicy(queue, store.Policy{Rate: aMinute(4), RetainDead: time.Hour, Version: c.policy(queue).Version})
	next(0, "with the same rate in another policy")
	c.Advance(30 * time.Second) // two of a minute ago still count
	c.rate(queue, store.Rate{N: 5, Per: time.Hour})
	next(3, "with five an hour, when two count of those that were claimed by the minute")
	c.Advance(time.Hour - 30*time.Second - store.Resolution)
	next(0, "an hour less a tick after those two")
	c.Advance(store.Resolution)
	next(2, "an hour after those two")
	c.rate(queue, store.Rate{N: 5, Per: store.MinPer})
	next(3, "with five in a short span, of which two have been claimed at this moment")
	c.Advance(store.MinPer)
	next(5, "when that span has passed")
	c.rate(queue, store.Rate{})
	next(6, "when there is no rate any more")
	c.rate(queue, aMinute(3))
	next(3, "when there is a rate again")
}

// ratesOfAClockThatWasAhead sets the clock back by an hour, after which claims have been made. They count for a minute from the first claim
// that sees them, as if they had been made then, whether or not it takes something.
func ratesOfAClockThatWasAhead(c *C) {
	list := c.EnqueueN(20)
	c.rate(queue, aMinute(5))
	now := c.Now()
	c.Equal(ids(c.Claim(1)), list[:1], "claimed at first")
	c.Advance(time.Hour)
	c.Equal(ids(c.Claim(3)), list[1:4], "claimed an hour later")
	c.Clock.Set(now.Add(30 * time.Second))
	list = append(c.Enqueue(slices.Repeat([]store.NewJob{plainBut(func(n *store.NewJob) { n.Priority = 1 })}, 12)...), list[4:]...)
	c.Equal(ids(c.Claim(9)), list[:2], "claimed when the clock was set back, and three count that were made later")
	c.Equal(ids(c.Claim(9)), []int64{}, "claimed without room")
	c.Advance(time.Minute - store.Resolution)
	c.Equal(ids(c.Claim(9)), []int64{}, "claimed one tick before a minute has passed")
	c.Advance(store.Resolution)
	c.Equal(ids(c.Claim(9)), list[2:7], "claimed when it has passed")
	c.Advance(time.Hour - 90*time.Second)
	c.Equal(ids(c.Claim(9)), list[7:12], "claimed when the clock comes to the time at which it was set back")

	c.Clock.Set(c.Now().Add(-30 * time.Minute)) // all that may be claimed was claimed later than now
	list = c.Enqueue(slices.Repeat([]store.NewJob{plainBut(func(n *store.NewJob) { n.Priority = 2 })}, 7)...)
	c.Equal(ids(c.Claim(9)), []int64{}, "claimed when five count that were made later")
	c.Advance(time.Minute - store.Resolution)
	c.Equal(ids(c.Claim(9)), []int64{}, "claimed one tick before a minute has passed")
	c.Advance(store.Resolution)
	c.Equal(ids(c.Claim(9)), list[:5], "claimed when it has passed")
}

// Each claimer claims again and again, while the clock stands still.
func ratesManyClaimersKeepToIt(c *C) {
	const n, claimers = 7, 6
	c.EnqueueN(60)
	c.rate(queue, aMinute(n))
	for round := range 8 {
		var claimed atomic.Int64
		c.Parallel(claimers, func(i int) {
			for range 4 {
				claimed.Add(int64(len(c.Claim(1 + (i+round)%3))))
			}
		})
		c.Equal(int(claimed.Load())+len(c.Claim(9)), n, "claimed in minute %d", round)
		c.Advance(time.Minute)
	}
}

// ratesSetBesideClaims sets a rate while others claim. Those that began after keep to it.
func ratesSetBesideClaims(c *C) {
	const n = 4
	for range 5 {
		list := c.EnqueueN(60)
		late := c.setBesideClaims(func() { c.rate(queue, aMinute(n)) })
		c.True(late <= n, "%d were claimed after a rate of %d a minute was set", late, n)
		c.Advance(time.Minute)
		c.Equal(len(c.Claim(10)), n, "claimed a minute later")
		c.rate(queue, store.Rate{})
		cancelling.on(c, only(list...), len(list))
	}
}

func ratesHaveBounds(c *C) {
	for field, rates := range map[string][]store.Rate{
		"rate.n":   {{N: -1, Per: time.Minute}, {N: 0, Per: time.Minute}, {N: store.MaxRate + 1, Per: time.Minute}},
		"rate.per": {{N: 1}, {N: 1, Per: -time.Minute}, {N: 1, Per: store.MinPer - 1}, {N: 1, Per: store.MaxPer + 1}},
	} {
		for _, r := range rates {
			p := store.Policy{Rate: r}
			c.refusesPolicy(p, store.ErrInvalid)
			_, err := c.policyKeeper().SetPolicy(c.Ctx, queue, p)
			c.refused(err, -1, field, fmt.Sprintf("a policy with a rate of %d in %v", r.N, r.Per))
		}
	}
	for _, r := range []store.Rate{{N: 1, Per: store.MaxPer}, {N: store.MaxRate, Per: store.MinPer}} {
		c.rate(queue, r)
		c.Equal(c.queues(), []store.Queue{{Name: queue, Policy: c.policy(queue)}}, "queues, of which one has a rate and nothing else")
	}
	c.rate(queue, store.Rate{})
}
