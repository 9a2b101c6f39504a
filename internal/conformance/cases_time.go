package conformance

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

const (
	sentenceStandsStill = "Within an open store, now stands still while its clock is behind by at most 5 s."
	sentenceFollows     = "If the clock is behind by more, now follows it at once."
)

var timeCases = []Case{
	{"Time/NowIsTheInjectedClock", "Now is the store's own: an injected clock, or the clock of the process or the database where none was injected.", timeIsTheClock},
	{"Time/NowStandsStillWhileTheClockIsBehindALittle", sentenceStandsStill, timeStandsStill},
	{"Time/NowThatWasOnlyReadStandsStill", sentenceStandsStill, timeReadStandsStill},
	{"Time/NowFollowsAClockThatWasSetBack", sentenceFollows, timeFollows},
	{"Time/FollowsToTheMicrosecond", sentenceFollows, timeFollowsExactly},
	{"Time/WhatWasWrittenAheadStays", "What a clock that was ahead has written stays as it was written: a job waits for its time, a window and a request key stand until theirs, each for as long as the clock was ahead in addition to its own length.", timeWrittenAheadStays},
	{"Time/CallHasOneNow", "A call has one now.", timeOneNowACall},
	{"Time/TimesComeOutInUTCAtTheResolution", "Times have a resolution of one microsecond: times and durations that come in are truncated to it, and times that come out are in UTC.", timeComesOutTruncated},
	{"Time/TimesAndDurationsAreTruncatedOnEntry", "Times have a resolution of one microsecond: times and durations that come in are truncated to it, and times that come out are in UTC.", timeTruncatedOnEntry},
	{"Time/LeasesAndWaitsAreTruncatedOnEntry", "Times have a resolution of one microsecond: times and durations that come in are truncated to it, and times that come out are in UTC.", timeTruncatedWaits},
	{"Time/FractionsOfATickDecideNothing", "Due means at or before now; expired means LeaseExpiresAt at or before now.", timeFractionsDecideNothing},
	{"Time/DueAndExpiredAtTheVeryMoment", "Due means at or before now; expired means LeaseExpiresAt at or before now.", timeAtTheVeryMoment},
	{"Time/UnsetIsTheZeroTime", "A time that is not set is the zero time.", timeUnsetIsZero},
	{"Time/DistantTimesAreLikeAnyOther", "A duration is 0 to ten years, a lease or a window at least a microsecond, a jitter 0 to 100 percent, a cap no less than its base, and no time that is asked for lies after the year 9999.", timeDistant},
}

// storeNow is the store's now, as it tells itself.
func (c *C) storeNow() time.Time {
	counts, err := c.Store.Count(c.Ctx, store.Filter{})
	c.OK(err, "Count")
	return counts.Now
}

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
			c.Errorf("%s: got %v, want %v or later", what, t, than)
		}
	}
	for _, back := range []time.Duration{time.Second, store.MaxSetBack - time.Second} {
		c.Clock.Set(c.Clock.Now().Add(-back))
		later(c.storeNow(), mark, "now, after the clock was set back")
		later(c.Get(c.EnqueueOne()).EnqueuedAt, mark, "EnqueuedAt, after the clock was set back")
	}
	claimed := c.Claim(2)
	c.Equal(ids(claimed), []int64{due, last}, "claimed of what was due before the clock was set back")
	for _, j := range claimed {
		later(j.LeaseExpiresAt, mark.Add(ttl), "the end of a lease, after the clock was set back")
	}
	later(c.Extend(claimed[0].Lease()).Next, mark.Add(ttl), "the end of an extended lease, after the clock was set back")
	for _, r := range c.Recover(10) {
		c.Equal(r.ID, lost.ID, "recovered of what had expired before the clock was set back")
		later(r.Next, mark.Add(time.Second), "RetryAt, after the clock was set back")
	}
	c.Equal(c.Get(lost.ID).Phase(), store.Retrying, "the phase of the job whose lease had expired before the clock was set back")
	later(c.Get(lost.ID).History[0].EndedAt, mark, "the end of its attempt")
	c.Ack(claimed[0].Lease())
	later(c.Get(claimed[0].ID).FinishedAt, mark, "FinishedAt, after the clock was set back")

	c.Advance(3 * time.Hour)
	c.Equal(c.storeNow(), c.Now(), "now, once the clock is past what it was")
}

func timeReadStandsStill(c *C) {
	c.Advance(time.Hour)
	mark := c.storeNow()
	c.Clock.Set(c.Clock.Now().Add(-store.MaxSetBack))
	if now := c.storeNow(); now.Before(mark) {
		c.Errorf("now after the clock was set back: got %v, want %v or later", now, mark)
	}
	if at := c.Get(c.EnqueueOne()).EnqueuedAt; at.Before(mark) {
		c.Errorf("EnqueuedAt after the clock was set back: got %v, want %v or later", at, mark)
	}
	c.Advance(2 * time.Hour)
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

func timeFollowsExactly(c *C) {
	c.Advance(time.Hour)
	mark := c.storeNow()
	c.Clock.Set(mark.Add(-store.MaxSetBack))
	c.Equal(c.storeNow(), mark, "now, while the clock is behind by 5 s")
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
	large := plainBut(func(n *store.NewJob) { n.Payload = document(4 << 10) })
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
	_, err := c.Store.Cancel(c.Ctx, only(enqueued...), 1)
	c.OK(err, "Cancel")
	_, err = c.Store.Delete(c.Ctx, only(enqueued...), 1)
	c.OK(err, "Delete")
}

// exact checks a time that came out, to the last bit: comparing times alone says nothing of their zone.
func (c *C) exact(got, want time.Time, what string) {
	if !got.Equal(want) || got.Location() != time.UTC {
		c.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func timeComesOutTruncated(c *C) {
	c.Clock.Set(epoch.Add(789).In(time.FixedZone("far", 5*3600+1800)))
	id := c.Enqueue(plainBut(func(n *store.NewJob) { n.MaxRetries = 1 }))[0]
	c.exact(c.Get(id).EnqueuedAt, epoch, "EnqueuedAt")
	c.exact(c.Get(id).RunAt, epoch, "RunAt")
	counts, err := c.Store.Count(c.Ctx, store.Filter{})
	c.OK(err, "Count")
	c.exact(counts.Now, epoch, "Now of Count")
	c.exact(counts.Queues[0].OldestDue, epoch, "OldestDue of Count")

	held := c.ClaimOne()
	c.exact(held.LeaseExpiresAt, epoch.Add(ttl), "the end of a lease")
	c.exact(held.EnqueuedAt, epoch, "EnqueuedAt of the claimed job")
	c.exact(c.Extend(held.Lease()).Next, epoch.Add(ttl), "Next of a heartbeat")
	c.exact(c.NAck(held.Lease(), store.Fail, 0, "boom").Next, epoch.Add(time.Second), "Next of NAck")
	c.exact(c.Get(id).RetryAt, epoch.Add(time.Second), "RetryAt")
	attempt := c.Get(id).History[0]
	c.exact(attempt.StartedAt, epoch, "the start of the attempt")
	c.exact(attempt.EndedAt, epoch, "the end of the attempt")
	c.Cancel(id)
	c.exact(c.Get(id).FinishedAt, epoch, "FinishedAt")

	c.EnqueueOne()
	c.ClaimOne()
	c.Advance(ttl)
	c.exact(c.Recover(1)[0].Next, epoch.Add(ttl+time.Second), "Next of a recovery")
	c.exact(c.All()[0].RetryAt, epoch.Add(ttl+time.Second), "RetryAt in the list")
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
	c.Equal(ids(c.Claim(10)), enqueued[2:], "claimed, of a job due a fraction of a tick ahead")

	c.held(keyed("key", 0), enqueued[0], store.Ready, "by a window with a fraction of a tick")
	c.Advance(time.Minute)
	c.free(keyed("key", 0), "the window has ended but for a fraction of a tick")
}

func timeTruncatedWaits(c *C) {
	const rest = 999 * time.Nanosecond
	id := c.EnqueueOne()
	held := c.ClaimBy(store.ClaimRequest{Queue: queue, Limit: 1, Worker: worker, TTL: time.Minute + rest})[0]
	c.exact(held.LeaseExpiresAt, epoch.Add(time.Minute), "the end of a lease with a fraction of a tick")
	extended := c.One(c.Store.Extend(c.Ctx, []store.Lease{held.Lease()}, 59*time.Minute+rest))
	c.exact(extended.Next, epoch.Add(59*time.Minute), "the end of a lease that was extended by a fraction of a tick more")
	c.exact(c.Get(id).LeaseExpiresAt, epoch.Add(59*time.Minute), "the end of the lease that is stored")
	c.exact(c.NAck(held.Lease(), store.Snooze, time.Second+rest, "").Next, epoch.Add(time.Second), "Next of a snooze with a fraction of a tick")
	c.Advance(time.Second)
	held = c.ClaimOne()
	c.exact(c.NAck(held.Lease(), store.After, time.Second+rest, "").Next, epoch.Add(2*time.Second), "Next of a NAck after a delay with a fraction of a tick")
	c.Advance(time.Second)
	c.ClaimOne()
	c.Advance(ttl + time.Second)
	recovered, err := c.Store.RecoverExpiredLeases(c.Ctx, store.RecoverRequest{Limit: 1, Grace: time.Second + rest})
	c.OK(err, "RecoverExpiredLeases")
	c.Equal(len(recovered), 1, "how many were recovered, whose lease had expired a grace ago but for a fraction of a tick")
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

// timeAtTheVeryMoment looks one tick before, at, and one tick after each moment on which something depends.
func timeAtTheVeryMoment(c *C) {
	for tick := time.Duration(-1); tick <= 1; tick++ {
		id := c.Enqueue(plainBut(func(n *store.NewJob) { n.RunAt = c.Now().Add(time.Minute) }))[0]
		c.Advance(time.Minute + tick*store.Resolution)
		c.Equal(len(c.Claim(1)) == 1, tick >= 0, "a job is claimable %d ticks after it is due", tick)
		c.Advance(store.Resolution)
		c.Claim(1)

		leaseEnd := c.Get(id).LeaseExpiresAt
		c.Advance(leaseEnd.Sub(c.Now()) + tick*store.Resolution)
		c.Equal(len(c.Recover(1)) == 1, tick >= 0, "a lease is expired %d ticks after its end", tick)
		c.Advance(store.Resolution)
		c.Recover(1)

		c.Advance(c.Get(id).RetryAt.Sub(c.Now()) + tick*store.Resolution)
		c.Equal(len(c.Claim(1)) == 1, tick >= 0, "a retry is claimable %d ticks after it is due", tick)
		c.Cancel(id)
	}
}

func timeUnsetIsZero(c *C) {
	set := map[store.State][]string{
		store.Ready: {"RunAt"}, store.InFlight: {"RunAt", "LeaseExpiresAt"}, store.Retrying: {"RunAt", "RetryAt"},
		store.Succeeded: {"RunAt", "FinishedAt"}, store.Dead: {"RunAt", "FinishedAt"}, store.Cancelled: {"RunAt", "FinishedAt"},
	}
	for _, phase := range []store.State{store.Succeeded, store.Dead, store.Cancelled, store.Retrying, store.InFlight, store.Ready} {
		d := c.JobIn(phase)
		for name, t := range map[string]time.Time{
			"RunAt": d.RunAt, "RetryAt": d.RetryAt, "LeaseExpiresAt": d.LeaseExpiresAt, "FinishedAt": d.FinishedAt,
		} {
			c.Equal(!t.IsZero(), slices.Contains(set[phase], name), "%s of a job that is %s is set: %v", name, phase, t)
		}
		for _, a := range d.History {
			c.Equal(a.EndedAt.IsZero(), phase == store.InFlight, "the attempt of a job that is %s has no end: %v", phase, a.EndedAt)
		}
	}
	counts, err := c.Store.Count(c.Ctx, store.Filter{States: []store.State{store.Succeeded}})
	c.OK(err, "Count")
	c.Equal(counts.Queues[0].OldestDue, time.Time{}, "OldestDue where nothing is due")
	c.Equal(c.Cancel(c.EnqueueOne()).Next, time.Time{}, "Next of a cancelled job")
}

// timeDistant goes beyond the year 2262, where nanoseconds no longer fit a word.
func timeDistant(c *C) {
	last := time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)
	enqueued := c.Enqueue(plainBut(func(n *store.NewJob) { n.RunAt = last }), plainBut(func(n *store.NewJob) {
		n.RunAt = time.Date(2500, 1, 1, 0, 0, 0, 0, time.UTC)
	}), plain())
	c.exact(c.Get(enqueued[0]).RunAt, last, "RunAt at the end of time")
	c.Equal(ids(c.Claim(10)), enqueued[2:], "claimed while two jobs are due in centuries")

	c.Clock.Set(time.Date(2500, 1, 1, 0, 0, 0, 0, time.UTC))
	c.Equal(len(c.Recover(10)), 1, "how many were recovered after centuries")
	held := c.Claim(10)
	c.Equal(ids(held), enqueued[1:2], "claimed after centuries")
	c.exact(held[0].LeaseExpiresAt, c.Now().Add(ttl), "the end of its lease")
	c.Advance(ttl)
	c.Equal(len(c.Recover(10)), 1, "how many were recovered when it expired")
	c.exact(c.Get(held[0].ID).RetryAt, c.Now().Add(time.Second), "when it is due again")

	c.Clock.Set(last)
	counts, err := c.Store.Count(c.Ctx, store.Filter{})
	c.OK(err, "Count")
	c.Equal(counts.Queues[0].Due, int64(3), "how many are due at the end of time")
	c.exact(counts.Queues[0].OldestDue, time.Date(2500, 1, 1, 0, 0, 1, 0, time.UTC), "since when the oldest of them is due")
}
