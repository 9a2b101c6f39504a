package conformance

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

var historyCases = []Case{
	{"History/ReasonOfASnoozeStaysWithItsAttempt", "The error of a Snooze is its reason. The attempt keeps it, and the job's Error does not change.\nor was put off", historyOfReasons},
	{"History/OldestFirstEachWithItsOwnWorkerAndTimes", "Get returns the job and its history, the oldest attempt first, or ErrNotFound if the job does not exist.\nEvery claim is an attempt\nwhy it failed", historyOldestFirst},
	{"History/LatestHundredAreKept", "The store keeps the latest 100 attempts of each job.\nThe store must remember how the holder finished it: by Ack, by failing (NAck with Fail, Never or After), by Snooze or by Release.", historyKeepsTheLatest},
	{"History/ReadersSeeNoChangeWithoutItsAttempt", "Every claim is an attempt in the history, with its token, worker, start, end, ending and error. The store must write it together with the change that it records.", historyInOneSnapshot},
}

// historyOfReasons looks at each reason before and after its attempt has made room for the next one.
func historyOfReasons(c *C) {
	id := c.EnqueueOne()
	c.NAck(c.ClaimOne().Lease(), store.Fail, 0, "boom")
	c.Advance(time.Minute)
	want := []string{"boom"}
	look := func(jobError, when string) {
		got := c.Get(id)
		c.Equal(each(got.History, func(a store.Attempt) string { return a.Error }), want, "the errors of the attempts %s", when)
		c.Equal(got.Error, jobError, "the error of the job %s", when)
	}
	for _, reason := range []string{"not yet", "", "why\x00" + strings.Repeat("x", store.MaxErrorBytes), "once more"} {
		held := c.ClaimOne().Lease()
		want = append(want, "")
		look("boom", "while one runs")
		c.NAck(held, store.Snooze, 0, reason)
		want[len(want)-1] = store.CleanError(reason)
		look("boom", "after a snooze")
	}
	c.Cancel(id)
	look("boom", "after a cancellation")
	c.Requeue(id)
	look("", "after a requeue")
	c.NAck(c.ClaimOne().Lease(), store.Release, 0, "of a release")
	want = append(want, "")
	look("", "after a release")
}

// historyOldestFirst ends attempts in several ways: each keeps its own worker, times and error, whatever becomes of the job's.
func historyOldestFirst(c *C) {
	id := c.EnqueueOne()
	c.Cancel(id)
	c.Requeue(id)
	c.Equal(c.Get(id).History, []store.Attempt{}, "the history of a job that was never claimed")
	odd := "second\x00" + strings.Repeat("x", store.MaxErrorBytes)
	var want []store.Attempt
	for i, e := range []struct {
		worker string
		ending store.Ending
		reason string // what the holder says
		kept   string
	}{
		{"a", store.EndExpired, "", store.LeaseExpired.Reason}, {"b", store.EndFailed, "first", "first"},
		{"b", store.EndFailed, odd, store.CleanError(odd)}, {"a", store.EndSnoozed, "of a snooze", "of a snooze"}, {"c", store.EndSucceeded, "", ""},
	} {
		j := c.ClaimBy(store.ClaimRequest{Queue: queue, Limit: 1, Worker: e.worker, TTL: ttl})[0]
		a := store.Attempt{Token: j.Token, Worker: e.worker, StartedAt: c.Now(), Ending: e.ending, Error: e.kept}
		c.Advance(time.Duration(i+1) * ttl)
		switch e.ending {
		case store.EndExpired:
			c.Recover(1)
		case store.EndSucceeded:
			c.Ack(j.Lease())
		default:
			c.NAck(j.Lease(), map[store.Ending]store.Form{store.EndFailed: store.Fail, store.EndSnoozed: store.Snooze}[e.ending], 0, e.reason)
		}
		a.EndedAt = c.Now()
		want = append(want, a)
		c.Advance(time.Minute)
	}
	c.Equal(c.Get(id).History, want, "the history")
	c.Delete(id)
	for _, gone := range []int64{id, noJob, 0, -1} {
		detail, err := c.Store.Get(c.Ctx, gone)
		c.ErrorIs(err, store.ErrNotFound, "Get %d", gone)
		c.Equal(detail, store.JobDetail{}, "the job %d", gone)
	}
}

// historyKeepsTheLatest cuts the history of one job, which changes no other job, and forgets nothing of how the lease was ended.
func historyKeepsTheLatest(c *C) {
	other := holding(c, "other", 2)
	c.Ack(other[0].Lease())
	other[0] = c.Get(other[0].ID)
	id := c.EnqueueOne()
	for range store.MaxAttemptsKept {
		underLease(c, store.OpRelease, c.ClaimOne().Lease())
	}
	full := c.Get(id).History
	c.Equal(len(full), store.MaxAttemptsKept, "attempts kept of as many")
	for n := 1; n <= 2; n++ {
		j := c.ClaimOne()
		running := store.Attempt{Token: j.Token, Worker: worker, StartedAt: c.Now()}
		c.Equal(c.Get(id).History, append(slices.Clone(full[n:]), running), "the history of %d attempts, of which the last one runs", store.MaxAttemptsKept+n)
		underLease(c, store.OpRelease, j.Lease())
		full = append(full, c.Get(id).History[store.MaxAttemptsKept-1])
	}
	for _, d := range other {
		c.Equal(c.Get(d.ID), d, "a job, after another has lost attempts")
	}
	before := c.Get(id)
	again(c, store.OpRelease, before, before.Lease(), store.StatusOK, "repeated")
	again(c, store.OpAck, before, before.Lease(), store.StatusStale, "after release")
}

// historyInOneSnapshot reads jobs while they go from hand to hand. What a reader sees fits together at every moment.
func historyInOneSnapshot(c *C) {
	jobs := c.EnqueueN(4)
	var working atomic.Int32
	working.Store(2)
	c.Parallel(4, func(i int) {
		if i < 2 {
			for n := range 40 {
				for _, j := range c.Claim(2) {
					underLease(c, []store.Op{store.OpRelease, store.OpSnooze}[n%2], j.Lease())
				}
			}
			working.Add(-1)
			return
		}
		for working.Load() > 0 {
			for _, id := range jobs {
				d := c.Get(id)
				for _, broken := range brokenInvariants(d) {
					c.Errorf("what a reader saw does not fit together: %s\n%+v", broken, d)
				}
			}
		}
	})
}
