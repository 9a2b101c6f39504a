package conformance

import (
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// ended is the detail as it is after its running attempt has ended now.
func ended(d store.JobDetail, ending store.Ending, reason string, now time.Time) store.JobDetail {
	d.LeaseExpiresAt = time.Time{}
	d.History = slices.Clone(d.History)
	last := &d.History[len(d.History)-1]
	last.EndedAt, last.Ending, last.Error = now, ending, reason
	return d
}

// becameBy ends the lease in the form, and checks the row and the answer against what they must be.
func (c *C) becameBy(form store.Form, delay time.Duration, reason string, want store.JobDetail) {
	got := c.NAck(want.Lease(), form, delay, reason)
	c.Equal(got, store.OutcomeOf(want.Job, store.StatusOK), "the answer to NAck %s", form)
	c.Equal(c.Get(want.ID), want, "the job after NAck %s", form)
}

func retryAfterIsExact(c *C) {
	for _, delay := range []time.Duration{0, store.Resolution, time.Second, 59 * time.Minute, store.MaxDuration} {
		id := c.Enqueue(plainBut(func(n *store.NewJob) { n.Backoff.Jitter = 50 }))[0]
		c.NAck(c.ClaimOne().Lease(), store.After, delay, "boom")
		got := c.Get(id)
		c.Equal(got.Phase(), store.Retrying, "the phase after a NAck with a delay of %v", delay)
		c.Equal(got.RetryAt, c.Now().Add(delay), "RetryAt after a NAck with a delay of %v", delay)
		if delay > 0 {
			c.Advance(delay - store.Resolution)
			c.Equal(ids(c.Claim(10)), []int64{}, "claimed one tick before a delay of %v is over", delay)
			c.Advance(store.Resolution)
		}
		c.Equal(ids(c.Claim(10)), []int64{id}, "claimed when a delay of %v is over", delay)
	}
}

func retrySnooze(c *C) {
	id := c.EnqueueOne()
	c.NAck(c.ClaimOne().Lease(), store.Fail, 0, "boom")
	c.Advance(time.Second)
	for i, delay := range []time.Duration{time.Hour, 0, store.Resolution, store.MaxDuration, time.Minute, time.Second} {
		held := c.ClaimOne()
		c.SaveCheckpoint(held.Lease(), 1, `"kept"`)
		c.Advance(time.Second)
		want := ended(c.Get(id), store.EndSnoozed, "", c.Now())
		want.State, want.RunAt = store.Ready, c.Now().Add(delay)
		c.Equal([]any{want.Attempts, want.Retries, want.Error}, []any{i + 2, 1, "boom"}, "attempts, retries and error before snooze %d", i)
		c.becameBy(store.Snooze, delay, "", want)
		c.Advance(delay)
	}
}

func retryRelease(c *C) {
	id := c.Enqueue(plainBut(func(n *store.NewJob) { n.MaxRetries = 1 }))[0]
	c.NAck(c.ClaimOne().Lease(), store.Fail, 0, "boom")
	c.Advance(time.Second)
	for i := range 5 {
		held := c.ClaimOne()
		c.Equal([]int{held.Attempts, int(held.Token)}, []int{2, i + 2}, "attempts and token at the claim after %d releases", i)
		c.Advance(time.Second)
		want := ended(c.Get(id), store.EndReleased, "", c.Now())
		want.State, want.RunAt, want.Attempts = store.Ready, c.Now(), 1
		c.becameBy(store.Release, 0, "", want)
	}
}
