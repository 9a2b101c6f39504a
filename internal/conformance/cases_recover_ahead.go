package conformance

import (
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

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
