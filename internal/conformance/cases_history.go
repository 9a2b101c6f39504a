package conformance

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

const (
	sentenceAttempt = "Every claim is an attempt, with its token, worker, start, end, ending and error, written together with the change that it records."
	sentenceKept    = "The latest 100 are kept."
)

var historyCases = []Case{
	{"History/JobNeverClaimedHasNone", "Every claim is an attempt", historyOfAJobNeverClaimed},
	{"History/ErrorIsWhyTheAttemptFailed", "why it failed", historyOfErrors},
	{"History/OldestFirstEachWithItsOwnWorkerAndTimes", "Get returns the job and its history, the oldest attempt first, or ErrNotFound.", historyOldestFirst},
	{"History/LatestHundredAreKept", sentenceKept, historyKeepsTheLatest},
	{"History/ShortHistoryIsNotCutForALongOne", sentenceKept, historyOfEachJob},
	{"History/RepeatAfterACutHistoryIsStillKnown", sentenceRemembers, historyCutForgetsNoEnding},
	{"History/HandsOutNoSliceItKeeps", sentenceNoSlice, historyHandsOutNoSlice},
	{"History/ReadersSeeNoChangeWithoutItsAttempt", sentenceAttempt, historyInOneSnapshot},
}

func historyOfAJobNeverClaimed(c *C) {
	id := c.EnqueueOne()
	c.Equal(c.Get(id).History, []store.Attempt{}, "the history of a ready job")
	c.Cancel(id)
	c.Equal(c.Get(id).History, []store.Attempt{}, "the history of a job cancelled before any claim")
	c.Requeue(id)
	c.Equal(c.Get(id).History, []store.Attempt{}, "the history of a job requeued before any claim")
}

// historyOfErrors fails twice and then succeeds: each attempt keeps its own error, whatever becomes of the job's.
func historyOfErrors(c *C) {
	id := c.EnqueueOne()
	for _, reason := range []string{"first", "second\x00" + strings.Repeat("x", store.MaxErrorBytes)} {
		c.NAck(c.ClaimOne().Lease(), store.Fail, 0, reason)
		c.Advance(time.Minute)
	}
	c.NAck(c.ClaimOne().Lease(), store.Snooze, 0, "of a snooze")
	c.Ack(c.ClaimOne().Lease())
	var got []string
	for _, a := range c.Get(id).History {
		got = append(got, a.Error)
	}
	c.Equal(got, []string{"first", store.CleanError("second\x00" + strings.Repeat("x", store.MaxErrorBytes)), "", ""}, "the errors of the attempts")
}

func historyOldestFirst(c *C) {
	id := c.EnqueueOne()
	var want []store.Attempt
	for i, e := range []struct {
		worker string
		ending store.Ending
	}{{"a", store.EndExpired}, {"b", store.EndExpired}, {"a", store.EndSnoozed}, {"c", store.EndSucceeded}} {
		j := c.ClaimBy(store.ClaimRequest{Queue: queue, Limit: 1, Worker: e.worker, TTL: ttl})[0]
		a := store.Attempt{Token: j.Token, Worker: e.worker, StartedAt: c.Now(), Ending: e.ending}
		c.Advance(time.Duration(i+1) * ttl)
		switch e.ending {
		case store.EndExpired:
			c.Recover(1)
			a.Error = store.LeaseExpired.Reason
		case store.EndSnoozed:
			c.NAck(j.Lease(), store.Snooze, 0, "")
		default:
			c.Ack(j.Lease())
		}
		a.EndedAt = c.Now()
		want = append(want, a)
		c.Advance(time.Minute)
	}
	c.Equal(c.Get(id).History, want, "the history")
	_, err := c.Store.Get(c.Ctx, id+1000)
	c.ErrorIs(err, store.ErrNotFound, "Get of a job that is not there")
}

// worn is a job that has been claimed and released so often.
func worn(c *C, times int) int64 {
	id := c.EnqueueOne()
	for range times {
		underLease(c, store.OpRelease, c.ClaimOne().Lease())
	}
	return id
}

func historyKeepsTheLatest(c *C) {
	id := worn(c, store.MaxAttemptsKept)
	full := c.Get(id).History
	c.Equal(len(full), store.MaxAttemptsKept, "attempts kept of as many")
	for n := 1; n <= 2; n++ {
		j := c.ClaimOne()
		running := c.Get(id).History
		c.Equal(len(running), store.MaxAttemptsKept, "attempts kept of %d", store.MaxAttemptsKept+n)
		c.Equal(running[:store.MaxAttemptsKept-n], full[n:], "attempts kept but for the latest %d", n)
		c.Equal(running[store.MaxAttemptsKept-1], store.Attempt{Token: j.Token, Worker: worker, StartedAt: c.Now()}, "the attempt that runs")
		underLease(c, store.OpRelease, j.Lease())
	}
}

func historyOfEachJob(c *C) {
	other := holding(c, "other", 2)
	c.Ack(other[0].Lease())
	before := c.Get(other[0].ID)
	worn(c, store.MaxAttemptsKept+1)
	c.Equal(c.Get(other[0].ID), before, "a finished job, after another has lost attempts")
	c.Equal(c.Get(other[1].ID), other[1], "a job in flight, after another has lost attempts")
}

func historyCutForgetsNoEnding(c *C) {
	before := c.Get(worn(c, store.MaxAttemptsKept+1))
	again(c, store.OpRelease, before, before.Lease(), store.StatusOK, "repeated")
	again(c, store.OpAck, before, before.Lease(), store.StatusStale, "after release")
}

func historyHandsOutNoSlice(c *C) {
	before := c.Get(worn(c, 3))
	handedOut := c.Get(before.ID)
	for i := range handedOut.History {
		handedOut.History[i].Worker = "overwritten"
	}
	_ = append(handedOut.History[:1], store.Attempt{Worker: "overwritten"})
	c.Equal(c.Get(before.ID), before, "the job, after the history that was handed out was overwritten")
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
