package conformance

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

const (
	sentenceStandsStill = "An open store must keep using the latest time it has seen while its clock is behind that time by at most 5 s."
	sentenceFollows     = "If the clock is behind by more than 5 s, the store must use the time of the clock at once."
	sentenceTimes       = "Times have a resolution of one microsecond. The store must truncate every incoming time and duration to that resolution, and must return times in UTC."
)

var timeCases = []Case{
	{"Time/NowIsTheInjectedClock", "The store decides what now is: it reads the injected clock or, if none was injected, the clock of the process or of the database.", timeIsTheClock},
	{"Time/NowStandsStillWhileTheClockIsBehindALittle", sentenceStandsStill, timeStandsStill},
	{"Time/NowFollowsAClockThatWasSetBack", sentenceFollows, timeFollows},
	{"Time/FollowsToTheMicrosecond", sentenceStandsStill + "\n" + sentenceFollows, timeFollowsExactly},
	{"Time/WhatWasWrittenAheadStays", "Times that a store wrote while its clock was ahead stay as they were written. A job waits for its due time, and the window of a unique key and a request key last until their ends. So each of them lasts longer than its own length by as much as the clock was ahead.", timeWrittenAheadStays},
	{"Time/CallHasOneNow", "Each call uses one value of now throughout.", timeOneNowACall},
	{"Time/TimesComeOutInUTCAtTheResolution", sentenceTimes + "\nA time that is not set is the zero time.", timeComesOutTruncated},
	{"Time/TimesAndDurationsAreTruncatedOnEntry", sentenceTimes, timeTruncatedOnEntry},
	{"Time/FractionsOfATickDecideNothing", "Due means at or before now. A lease has expired if its LeaseExpiresAt is at or before now.", timeFractionsDecideNothing},
	{"Time/DistantTimesAreLikeAnyOther", "A duration is 0 to ten years, a lease or the window of a unique key is at least one microsecond, a jitter is 0 to 100 percent, and a cap is no less than its base. No requested time may lie after the year 9999.", timeDistant},
}

// storeNow is the store's now, as it tells itself.
func (c *C) storeNow() time.Time { return c.count(store.Filter{}).Now }

func timeIsTheClock(c *C) {
	for _, step := range []time.Duration{0, store.Resolution, time.Second, 100 * time.Hour, 10 * store.MaxDuration} {
		c.Advance(step)
		c.Equal(c.storeNow(), c.Now(), "now, %v later", step)
		c.Equal(c.Get(c.EnqueueOne()).EnqueuedAt, c.Now(), "when a job was enqueued, %v later", step)
	}
}

// timeStandsStill sets the clock back, by 5 s in all. What was due stays due, what had expired stays expired, and no time
// that is written lies before one that was written already.
func timeStandsStill(c *C) {
	c.EnqueueOne()
	lost := c.ClaimOne()
	due := c.Enqueue(plainBut(func(n *store.NewJob) { n.Delay = ttl }))[0]
	c.Advance(ttl)
	last := c.EnqueueOne()
	mark := c.Get(last).EnqueuedAt
	later := func(t, than time.Time, what string) {
		if t.Before(than) {
			c.Errorf("%s, after the clock was set back: got %v, want %v or later", what, t, than)
		}
	}
	for _, back := range []time.Duration{time.Second, store.MaxSetBack - time.Second} {
		c.Clock.Set(c.Clock.Now().Add(-back))
		later(c.storeNow(), mark, "now")
		later(c.Get(c.EnqueueOne()).EnqueuedAt, mark, "EnqueuedAt")
	}
	claimed := c.Claim(2)
	c.Equal(ids(claimed), []int64{due, last}, "claimed of what was due before the clock was set back")
	for _, j := range claimed {
		later(j.LeaseExpiresAt, mark.Add(ttl), "the end of a lease")
	}
	later(c.Extend(claimed[0].Lease()).Next, mark.Add(ttl), "the end of an extended lease")
	for _, r := range c.Recover(10) {
		c.Equal(r.ID, lost.ID, "recovered of what had expired before the clock was set back")
		later(r.Next, mark.Add(time.Second), "RetryAt")
	}
	c.Equal(c.Get(lost.ID).Phase(), store.Retrying, "the phase of the job whose lease had expired before the clock was set back")
	later(c.Get(lost.ID).History[0].EndedAt, mark, "the end of its attempt")
	c.Ack(claimed[0].Lease())
	later(c.Get(claimed[0].ID).FinishedAt, mark, "FinishedAt")

	c.Advance(3 * time.Hour)
	c.Equal(c.storeNow(), c.Now(), "now, once the clock is past what it was")
}

// timeFollows sets the clock back by an hour. What is added then is due then, and leases and retries go by the new time.
func timeFollows(c *C) {
	before := c.EnqueueN(2)
	c.Advance(2 * time.Hour)
	c.Equal(ids(c.Claim(1)), before[:1], "claimed before the clock was set back")
	c.Clock.Set(c.Clock.Now().Add(-time.Hour))
	c.Equal(c.storeNow(), c.Now(), "now, after the clock was set back")
	id := c.EnqueueOne()
	c.Equal(c.Get(id).RunAt, c.Now(), "RunAt of a job that was added then")
	held := c.Claim(10)
	c.Equal(ids(held), []int64{before[1], id}, "claimed then")
	for _, j := range held {
		c.Equal(j.LeaseExpiresAt, c.Now().Add(ttl), "the end of a lease that was given then")
	}
	c.NAck(held[1].Lease(), store.Fail, 0, "boom")
	c.Advance(time.Second)
	c.Equal(ids(c.Claim(10)), []int64{id}, "the retry, after its backoff")
	c.Advance(ttl)
	c.Recover(10)
	c.Equal(c.Get(before[1]).RetryAt, c.Now().Add(time.Second), "when a job whose lease has expired since is due again")
}

// timeFollowsExactly has a clock whose time was only read before it is set back.
func timeFollowsExactly(c *C) {
	c.Advance(time.Hour)
	mark := c.storeNow()
	c.Clock.Set(mark.Add(-store.MaxSetBack))
	c.Equal(c.storeNow(), mark, "now, while the clock is behind by 5 s")
	c.Equal(c.Get(c.EnqueueOne()).EnqueuedAt, mark, "EnqueuedAt then")
	c.Clock.Set(mark.Add(-store.MaxSetBack - store.Resolution))
	c.Equal(c.storeNow(), c.Now(), "now, once the clock is behind by a microsecond more")
	c.Equal(c.Get(c.EnqueueOne()).EnqueuedAt, c.Now(), "EnqueuedAt then")
	c.Clock.Set(mark.Add(-store.MaxSetBack - 2*store.Resolution))
	c.Equal(c.storeNow(), c.Now().Add(store.Resolution), "now, while the clock is behind a little once more")
}

func timeWrittenAheadStays(c *C) {
	const jump = time.Hour
	c.Advance(jump)
	window := c.free(keyed("window", time.Minute), "while the clock is ahead")
	req := store.EnqueueRequest{Jobs: []store.NewJob{plain()}, RequestKey: "request"}
	first := c.asked(req)
	c.Clock.Set(c.Clock.Now().Add(-jump))
	c.Equal(c.storeNow(), c.Now(), "now, when the clock is right again")
	c.Equal(ids(c.Claim(10)), []int64{}, "claimed of what is due by the clock that was ahead")
	c.Advance(jump + time.Minute - store.Resolution)
	c.held(keyed("window", 0), window, store.Ready, "by a window of the clock that was ahead")
	c.Equal(c.asked(req), first, "the first answer")
	c.Equal(ids(c.Claim(10)), []int64{window, first[0].ID}, "claimed when they are due")
	c.Advance(store.Resolution)
	c.free(keyed("window", 0), "the window has ended")
	c.Advance(store.RequestKeyLife - time.Minute - store.Resolution)
	c.Equal(c.asked(req), first, "the first answer, until a day after it was given by the clock that was ahead")
	c.Advance(store.Resolution)
	c.True(c.asked(req)[0].ID != first[0].ID, "the request key is forgotten then")
}

// timeOneNowACall moves the clock while calls with many items run: all that a call writes has the same time. Many hands
// move the clock, since each rests for a millisecond after each step, and payloads are large, so that calls take their time.
func timeOneNowACall(c *C) {
	const calls, size, movers = 8, 200, 16
	large := plainBut(func(n *store.NewJob) { n.Payload = docOf(4 << 10) })
	var done atomic.Bool
	c.Parallel(1+movers, func(i int) {
		if i > 0 {
			for !done.Load() {
				c.Advance(store.Resolution)
			}
			return
		}
		defer done.Store(true)
		for range calls {
			c.oneNow(c.Enqueue(slices.Repeat([]store.NewJob{large}, size)...))
		}
	})
}

// oneNow claims the jobs, ends their leases and takes them away, and checks the times that each call has written.
func (c *C) oneNow(enqueued []int64) {
	claimed := c.Claim(len(enqueued))
	c.endAll(claimed, store.After, time.Hour)
	began, leased, retry := map[time.Time]bool{}, map[time.Time]bool{}, map[time.Time]bool{}
	for _, j := range claimed {
		began[j.EnqueuedAt], began[j.RunAt], leased[j.LeaseExpiresAt] = true, true, true
	}
	for _, j := range c.List(only(enqueued...), len(enqueued)) {
		retry[j.RetryAt] = true
	}
	c.Equal([]int{len(began), len(leased), len(retry)}, []int{1, 1, 1}, "how many times Enqueue, FetchAndClaim and NAck have written")
	cancelling.on(c, only(enqueued...), 1)
	deleting.on(c, only(enqueued...), 1)
}

// exact checks a time that came out, to the last bit: comparing times alone says nothing of their zone.
func (c *C) exact(got, want time.Time, what string) {
	if !got.Equal(want) || got.Location() != time.UTC {
		c.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// timeComesOutTruncated has a clock in another zone that shows fractions of a tick. The audit looks at the times of all rows as well.
func timeComesOutTruncated(c *C) {
	c.Clock.Set(epoch.Add(789).In(time.FixedZone("far", 5*3600+1800)))
	id := c.EnqueueOne()
	times := func(of string, got store.Job, retryAt, leaseEnd, finished time.Time) {
		for what, pair := range map[string][2]time.Time{
			"EnqueuedAt": {got.EnqueuedAt, epoch}, "RunAt": {got.RunAt, epoch}, "RetryAt": {got.RetryAt, retryAt},
			"LeaseExpiresAt": {got.LeaseExpiresAt, leaseEnd}, "FinishedAt": {got.FinishedAt, finished},
		} {
			c.exact(pair[0], pair[1], what+" of "+of)
		}
	}
	oldestDue := func() time.Time { return c.count(store.Filter{}).Queues[0].OldestDue }
	var unset time.Time
	times("a ready job", c.Get(id).Job, unset, unset, unset)
	c.exact(c.storeNow(), epoch, "Now of Count")
	c.exact(oldestDue(), epoch, "OldestDue of Count")

	held := c.ClaimOne()
	times("the claimed job", held, unset, epoch.Add(ttl), unset)
	c.exact(oldestDue(), unset, "OldestDue of Count where nothing is due")
	c.exact(c.Get(id).History[0].EndedAt, unset, "the end of an attempt that runs")
	c.exact(c.Extend(held.Lease()).Next, epoch.Add(ttl), "Next of a heartbeat")
	c.exact(c.NAck(held.Lease(), store.Fail, 0, "boom").Next, epoch.Add(time.Second), "Next of NAck")
	times("a retrying job", c.All()[0], epoch.Add(time.Second), unset, unset)
	c.exact(c.Get(id).History[0].StartedAt, epoch, "the start of the attempt")
	c.exact(c.Get(id).History[0].EndedAt, epoch, "the end of the attempt")
	c.exact(c.Cancel(id).Next, unset, "Next of a cancelled job")
	times("a cancelled job", c.Get(id).Job, unset, unset, epoch)

	c.EnqueueOne()
	c.ClaimOne()
	c.Advance(ttl)
	c.exact(c.Recover(1)[0].Next, epoch.Add(ttl+time.Second), "Next of a recovery")
}

func timeTruncatedOnEntry(c *C) {
	const rest = 999 * time.Nanosecond
	near := plainBut(func(n *store.NewJob) {
		n.RunAt = epoch.Add(time.Minute + rest).In(time.FixedZone("far", -3*3600))
		n.Timeout, n.UniqueKey, n.UniqueFor = time.Minute+rest, "key", time.Minute+rest
		n.Backoff = store.Backoff{Base: time.Second + rest, Cap: 2*time.Second + rest}
	})
	late := plainBut(func(n *store.NewJob) { n.Delay = time.Hour + rest })
	now := plainBut(func(n *store.NewJob) { n.RunAt = epoch.Add(rest) })
	enqueued := c.Enqueue(near, late, now)

	want := plain().Row(enqueued[0], epoch)
	want.RunAt, want.Timeout, want.UniqueKey, want.UniqueFor = epoch.Add(time.Minute), time.Minute, "key", time.Minute
	want.Backoff = store.Backoff{Base: time.Second, Cap: 2 * time.Second}
	c.Equal(c.Get(enqueued[0]).Job, want, "a job whose times have fractions of a tick")
	c.exact(c.Get(enqueued[0]).RunAt, epoch.Add(time.Minute), "RunAt in another zone, with a fraction of a tick")
	c.exact(c.Get(enqueued[1]).RunAt, epoch.Add(time.Hour), "RunAt by a delay with a fraction of a tick")
	c.exact(c.Get(enqueued[2]).RunAt, epoch, "RunAt a fraction of a tick ahead")

	held := c.ClaimBy(store.ClaimRequest{Queue: queue, Limit: 1, Worker: worker, TTL: time.Minute + rest})
	c.Equal(ids(held), enqueued[2:], "claimed, of a job due a fraction of a tick ahead")
	c.exact(held[0].LeaseExpiresAt, epoch.Add(time.Minute), "the end of a lease")
	l := held[0].Lease()
	c.exact(c.One(c.Store.Extend(c.Ctx, []store.Lease{l}, 59*time.Second+rest)).Next, epoch.Add(59*time.Second), "the end of an extended lease")
	c.exact(c.Get(l.ID).LeaseExpiresAt, epoch.Add(59*time.Second), "the stored end of the lease")
	c.exact(c.NAck(l, store.Snooze, time.Second+rest, "").Next, epoch.Add(time.Second), "Next of a snooze")
	c.Advance(time.Second)
	c.exact(c.NAck(c.ClaimOne().Lease(), store.After, time.Second+rest, "").Next, epoch.Add(2*time.Second), "Next of a NAck after a delay")
	c.Advance(time.Second)
	c.ClaimOne()
	c.Advance(ttl + time.Second)
	recovered, err := c.Store.RecoverExpiredLeases(c.Ctx, store.RecoverRequest{Limit: 1, Grace: time.Second + rest})
	c.OK(err, "RecoverExpiredLeases")
	c.Equal(len(recovered), 1, "how many were recovered, whose lease had expired a grace ago but for a fraction of a tick")

	c.held(keyed("key", 0), enqueued[0], store.Ready, "by a window with a fraction of a tick")
	c.Advance(epoch.Add(time.Minute).Sub(c.Now()))
	c.free(keyed("key", 0), "the window has ended but for a fraction of a tick")
}

// timeFractionsDecideNothing has a clock that shows fractions of a tick, as real ones do.
func timeFractionsDecideNothing(c *C) {
	const rest = 999 * time.Nanosecond
	c.Clock.Set(epoch.Add(rest))
	id := c.Enqueue(plainBut(func(n *store.NewJob) { n.Delay = time.Minute }))[0]
	c.Clock.Set(epoch.Add(time.Minute - 1))
	c.Equal(ids(c.Claim(1)), []int64{}, "claimed a fraction of a tick before the job is due")
	c.Clock.Set(epoch.Add(time.Minute))
	c.Equal(ids(c.Claim(1)), []int64{id}, "claimed when the job is due, although the clock had shown a fraction more when it was enqueued")
	c.Clock.Set(epoch.Add(time.Minute + ttl - 1))
	c.Equal(c.Recover(1), []store.Recovered{}, "recovered a fraction of a tick before the lease expires")
	c.Clock.Set(epoch.Add(time.Minute + ttl + rest))
	c.Equal(len(c.Recover(1)), 1, "how many were recovered when the lease expires")
	c.exact(c.Get(id).RetryAt, epoch.Add(time.Minute+ttl+time.Second), "RetryAt")
}

// timeDistant goes beyond the year 2262, where nanoseconds no longer fit a word.
func timeDistant(c *C) {
	last, century := time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC), time.Date(2500, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(t time.Time) store.NewJob { return plainBut(func(n *store.NewJob) { n.RunAt = t }) }
	enqueued := c.Enqueue(at(last), at(century), plain())
	c.exact(c.Get(enqueued[0]).RunAt, last, "RunAt at the end of time")
	c.Equal(ids(c.Claim(10)), enqueued[2:], "claimed while two jobs are due in centuries")

	c.Clock.Set(century)
	c.Equal(len(c.Recover(10)), 1, "how many were recovered after centuries")
	held := c.Claim(10)
	c.Equal(ids(held), enqueued[1:2], "claimed after centuries")
	c.exact(held[0].LeaseExpiresAt, century.Add(ttl), "the end of its lease")
	c.Advance(ttl)
	c.exact(c.Recover(10)[0].Next, century.Add(ttl+time.Second), "when it is due again, after its lease has expired")

	c.Clock.Set(last)
	counts := c.count(store.Filter{})
	c.Equal(counts.Queues[0].Due, int64(3), "how many are due at the end of time")
	c.exact(counts.Queues[0].OldestDue, century.Add(time.Second), "since when the oldest of them is due")
}
