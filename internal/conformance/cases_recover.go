package conformance

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

var recoverCases = []Case{
	{"Recover/GraceIsExact", "It is safe to repeat a recovery.\nIt ends a lease only if the job is in flight and the lease expired at or before now minus Grace.", recoverGraceIsExact},
	{"Recover/OldestExpiryFirstThenSmallerID", "RecoverExpiredLeases ends at most Limit expired leases: the oldest expiry first, then the smaller id.", recoverOldestFirst},
	{"Recover/RecoverersAtTheSameTimeShareTheLeases", "Each expired lease is recovered once, even if several callers recover at the same time.", recoverersShare},
}

// recoveredAs is the answer for a job that was recovered and now stands as it does.
func recoveredAs(j store.Job) store.Recovered {
	return store.Recovered{ID: j.ID, Queue: j.Queue, Kind: j.Kind, Worker: j.Worker, State: store.Failed, Token: j.Token, Next: j.RetryAt}
}

func recoverGraceIsExact(c *C) {
	held := c.JobIn(store.InFlight)
	by := func(grace time.Duration) []store.Recovered {
		recovered, err := c.Store.RecoverExpiredLeases(c.Ctx, store.RecoverRequest{Limit: 10, Grace: grace})
		c.OK(err, "RecoverExpiredLeases with a grace of %v", grace)
		return recovered
	}
	c.Equal(by(store.MaxDuration), []store.Recovered{}, "recovered with a grace of ten years")
	c.Advance(ttl)
	c.Equal(by(store.Resolution), []store.Recovered{}, "recovered when the lease expires, with a grace of one tick")
	c.Advance(time.Minute - store.Resolution)
	c.Equal(by(time.Minute), []store.Recovered{}, "recovered one tick before the grace of a minute is over")
	c.Equal(c.Get(held.ID), held, "the job one tick before the grace is over")
	c.Advance(store.Resolution)
	c.Equal(by(time.Minute+store.Resolution), []store.Recovered{}, "recovered with a grace of one tick more than a minute")
	c.Equal(len(by(time.Minute)), 1, "how many were recovered when the grace is over")
	c.Equal(by(0), []store.Recovered{}, "recovered once more")
	c.Equal(c.Get(held.ID), becomes(store.OpRecover, held, c.Now()), "the job")
}

// recoverOldestFirst has leases whose ends are in another order than the ids, the claims and the priorities; some ends
// were moved by Extend.
func recoverOldestFirst(c *C) {
	var held []store.Job
	for i := range 30 {
		c.Enqueue(plainBut(func(n *store.NewJob) { n.Priority = i % 5 }))
		held = append(held, c.ClaimBy(store.ClaimRequest{Queue: queue, Limit: 1, Worker: worker, TTL: time.Duration(i*7%10+1) * time.Second})...)
	}
	_, err := c.Store.Extend(c.Ctx, []store.Lease{held[3].Lease(), held[20].Lease()}, time.Millisecond)
	c.OK(err, "Extend")
	_, err = c.Store.Extend(c.Ctx, []store.Lease{held[0].Lease()}, time.Minute)
	c.OK(err, "Extend")
	for i, j := range held {
		held[i] = c.Get(j.ID).Job
	}
	slices.SortFunc(held, func(a, b store.Job) int {
		return cmp.Or(a.LeaseExpiresAt.Compare(b.LeaseExpiresAt), cmp.Compare(a.ID, b.ID))
	})
	c.Advance(time.Minute)
	taken(c, ids(held), c.Recover, func(r store.Recovered) int64 { return r.ID })
}

// taken checks that calls with several limits take all of the list, in this order.
func taken[T any](c *C, list []int64, call func(limit int) []T, id func(T) int64) {
	var got []int64
	for _, limit := range []int{1, 2, 7, 19, 10} {
		answer := call(limit)
		c.True(len(answer) <= limit, "taken with limit %d: %d", limit, len(answer))
		for _, t := range answer {
			got = append(got, id(t))
		}
	}
	c.Equal(got, list, "the order")
}

// shared are the answers, by rising id, of eight callers at once that each ask for seven a few times, and of a last one that asks for all.
func shared[T any](c *C, call func(limit int) []T, id func(T) int64) []T {
	answers := make([][]T, 9)
	c.Parallel(8, func(i int) {
		for range 5 {
			answers[i] = append(answers[i], call(7)...)
		}
	})
	answers[8] = call(store.MaxItems)
	list := slices.Concat(answers...)
	slices.SortFunc(list, func(a, b T) int { return cmp.Compare(id(a), id(b)) })
	return list
}

func recoverersShare(c *C) {
	held := holding(c, queue, 100)
	c.Advance(ttl)
	got := shared(c, c.Recover, func(r store.Recovered) int64 { return r.ID })
	var want []store.Recovered
	for _, before := range held {
		after := becomes(store.OpRecover, before, c.Now())
		want = append(want, recoveredAs(after.Job))
		c.Equal(c.Get(before.ID), after, "a job that was recovered among others")
	}
	c.Equal(got, want, "the answers of all recoverers together")
}

var recoverAheadCases = []Case{
	{"Ahead/LeaseOfAClockThatWasAheadRunsFromNow", "RecoverExpiredLeases makes such a lease run for its own length from now, under the same token. A holder that is alive can go on, and the job of a dead holder is recovered soon.", aheadRunsFromNow},
	{"Ahead/ExtendedLeaseToo", "RecoverExpiredLeases corrects the leases that such a clock granted.", aheadExtended},
	{"Ahead/ByWhenItWasGivenToTheMicrosecond", "A lease that was granted or extended later than now plus 5 s comes from a clock that was ahead.", aheadToTheMicrosecond},
	{"Ahead/LimitAndOrder", "In addition to the leases that it ends, a call corrects at most Limit of these leases, the latest end first.", aheadLimit},
	{"Ahead/LongestLease", "A lease is at most as long as the store's MaxLease. MaxLease is one hour unless the store was opened with another value.", aheadLongestLease},
}

// ahead claims a job for the ttl while the clock is ahead by the jump.
func (c *C) ahead(jump, ttl time.Duration) store.Job {
	id := c.EnqueueOne()
	c.Advance(jump)
	held := c.ClaimBy(store.ClaimRequest{Queue: queue, Limit: 1, Worker: worker, TTL: ttl})
	c.Equal(ids(held), []int64{id}, "claimed while the clock is ahead")
	return held[0]
}

// aheadRunsFromNow has a holder that does no more, and then one that goes on.
func aheadRunsFromNow(c *C) {
	for _, jump := range []time.Duration{6 * time.Second, time.Hour, 1000 * time.Hour} {
		lost := c.ahead(jump, ttl)
		c.Clock.Set(c.Clock.Now().Add(-jump))
		before := c.Get(lost.ID)
		c.Equal(c.Recover(10), []store.Recovered{}, "recovered when the clock is right again, after %v", jump)
		before.LeaseExpiresAt = c.Now().Add(ttl)
		c.Equal(c.Get(lost.ID), before, "the job in flight, after %v", jump)
		c.Advance(ttl - store.Resolution)
		c.Equal(c.Recover(10), []store.Recovered{}, "recovered a tick before its lease ends, after %v", jump)
		c.Advance(store.Resolution)
		c.Equal(len(c.Recover(10)), 1, "recovered when its lease ends, after %v", jump)
		c.Cancel(lost.ID)

		held := c.ahead(jump, ttl).Lease()
		c.Clock.Set(c.Clock.Now().Add(-jump))
		c.Recover(10)
		c.Equal(c.SaveCheckpoint(held, 1, `1`).Status, store.StatusOK, "Save under a lease that was brought back, after %v", jump)
		c.Equal(c.Extend(held).Next, c.Now().Add(ttl), "the end of the lease after a heartbeat, after %v", jump)
		c.Equal(c.Ack(held).Status, store.StatusOK, "Ack, after %v", jump)
	}
}

// aheadExtended extends a lease that was given in time, and one that was given ahead when the clock is right again.
func aheadExtended(c *C) {
	c.EnqueueN(2)
	early := c.ClaimOne()
	c.Advance(time.Hour)
	late := c.ClaimOne()
	c.Extend(early.Lease())
	c.Clock.Set(c.Clock.Now().Add(-time.Hour))
	end := c.One(c.Store.Extend(c.Ctx, []store.Lease{late.Lease()}, time.Minute+time.Second)).Next
	c.Recover(10)
	c.Equal(c.Get(early.ID).LeaseExpiresAt, c.Now().Add(ttl), "the end of a lease that was extended while the clock was ahead")
	c.Equal(c.Get(late.ID).LeaseExpiresAt, end, "the end of one that was extended since")
}

// aheadToTheMicrosecond has leases that were given 5 s ahead of now, and a microsecond more. How long they are counts for
// nothing.
func aheadToTheMicrosecond(c *C) {
	c.EnqueueN(3)
	claim := func(ttl time.Duration) store.Job {
		return c.ClaimBy(store.ClaimRequest{Queue: queue, Limit: 1, Worker: worker, TTL: ttl})[0]
	}
	at := c.Now()
	near, far := claim(ttl), claim(time.Hour)
	c.Advance(store.Resolution)
	beyond := claim(time.Second)
	c.Advance(time.Hour)
	c.storeNow()
	c.Clock.Set(at.Add(-store.MaxSetBack))
	c.Recover(10)
	c.Equal(c.Get(near.ID).LeaseExpiresAt, near.LeaseExpiresAt, "the end of a lease that was given 5 s ahead")
	c.Equal(c.Get(far.ID).LeaseExpiresAt, far.LeaseExpiresAt, "the end of a long one")
	c.Equal(c.Get(beyond.ID).LeaseExpiresAt, c.Now().Add(time.Second), "the end of one that was given a microsecond more ahead")
}

func aheadLimit(c *C) {
	c.EnqueueN(5)
	c.Advance(time.Hour)
	var held []int64
	for range 5 {
		held = append(held, c.ClaimOne().ID)
		c.Advance(time.Second)
	}
	c.Clock.Set(c.Clock.Now().Add(-time.Hour))
	for _, want := range []int{2, 4, 5, 5} {
		c.Recover(2)
		var back []int64
		for _, id := range slices.Backward(held) {
			if c.Get(id).LeaseExpiresAt.Equal(c.Now().Add(ttl)) {
				back = append(back, id)
			}
		}
		latest := slices.Clone(held[5-want:])
		slices.Reverse(latest)
		c.Equal(back, latest, "the leases that were brought back, the latest end first")
	}
}

func reopenAhead(c *C) {
	held := c.ahead(time.Hour, ttl)
	c.Clock.Set(c.Clock.Now().Add(-time.Hour))
	c.reopen() // which knows nothing of what the clock has shown before
	c.Equal(c.Recover(10), []store.Recovered{}, "recovered after the store was opened")
	c.Equal(c.Get(held.ID).LeaseExpiresAt, c.Now().Add(ttl), "the end of the lease")
}

func aheadLongestLease(c *C) {
	l := c.ahead(0, time.Hour).Lease()
	c.Equal(c.Get(l.ID).LeaseExpiresAt, c.Now().Add(time.Hour), "the end of the longest lease")
	_, err := c.Store.FetchAndClaim(c.Ctx, store.ClaimRequest{Queue: queue, Limit: 1, Worker: worker, TTL: time.Hour + store.Resolution})
	c.refused(err, -1, "ttl", "a claim for more than an hour")
}
