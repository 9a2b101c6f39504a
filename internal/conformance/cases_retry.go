package conformance

import (
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

var retryCases = []Case{
	{"Retry/BackoffDoublesUpToItsCapAndJitterIsExact", "NAck ends leases without success. Fail, Never and After count one more retry and keep the error. With Fail, the job waits for its backoff; with After, it waits for the given delay. With Never, or if it has more retries than MaxRetries, the job is dead.\nIt is deterministic: the same job and number always give the same wait, so that rows can be compared between stores.\nthe longest wait", retryIsExact},
	{"Retry/EveryFailureCountsOnTheSameRow", "It counts one more retry: up to MaxRetries the job is retrying, and beyond MaxRetries it is dead.", retryOneCount},
	{"Retry/DelayIsExactAndSnoozeIsNoFailure", "Snooze makes the job ready again after the delay.\nFail, Never and After count one more retry and keep the error. With Fail, the job waits for its backoff; with After, it waits for the given delay. With Never, or if it has more retries than MaxRetries, the job is dead.", retryDelays},
	{"Retry/ReleaseTakesTheAttemptBack", "Release makes the job ready at once and lowers its attempts by one. None of the forms changes the token.", retryRelease},
}

// retryIsExact compares with Backoff.Delay, whose values are tested where it stands, and with their bounds. It comes to retries beyond
// the width of a word by After, and looks at the backoff at some of them.
func retryIsExact(c *C) {
	backoffs := []store.Backoff{
		{Base: 1, Cap: 8760 * time.Hour}, {Base: time.Microsecond, Cap: 8760 * time.Hour}, {Base: store.MaxDuration, Cap: store.MaxDuration},
		{}, {Cap: time.Hour}, {Base: time.Second, Cap: time.Second}, {Base: 300 * time.Millisecond, Cap: time.Hour},
		{Base: time.Second, Cap: 8*time.Second + store.Resolution}, {Base: time.Second, Cap: 8*time.Second - store.Resolution},
	}
	for _, jitter := range slices.Repeat([]int{0, 1, 10, 50, 99, 100}, 5) {
		backoffs = append(backoffs, store.Backoff{Base: time.Second, Cap: 6 * time.Second, Jitter: jitter})
	}
	var jobs []store.NewJob
	for _, backoff := range backoffs {
		jobs = append(jobs, plainBut(func(n *store.NewJob) { n.MaxRetries, n.Backoff = 1_000_000, backoff }))
	}
	enqueued := c.Enqueue(jobs...)
	spread := map[time.Duration]bool{}
	looks := []int{1, 2, 3, 4, 5, 6, 26, 45, 46, 63, 64, 65, 66, 128, 130}
	for retry := 1; retry <= 130; retry++ {
		held := c.Claim(100)
		c.Equal(len(held), len(jobs), "how many were claimed before retry %d", retry)
		switch {
		case !slices.Contains(looks, retry):
			c.endAll(held, store.After, 0)
			continue
		case retry%2 == 0:
			c.Advance(ttl)
			c.Recover(100)
		default:
			c.endAll(held, store.Fail, 0)
		}
		for _, j := range c.List(only(enqueued...), len(enqueued)) {
			wait, most := j.RetryAt.Sub(c.Now()), j.Backoff.Base
			for n := 1; n < retry && most < j.Backoff.Cap; n++ {
				most *= 2
			}
			most = min(most, j.Backoff.Cap)
			c.Equal(wait, j.Backoff.Delay(j.ID, retry), "the wait of job %d with %+v before retry %d", j.ID, j.Backoff, retry)
			c.True(wait <= most && wait >= most-most*time.Duration(j.Backoff.Jitter)/100, "%v lies up to %d percent below %v", wait, j.Backoff.Jitter, most)
			spread[wait] = true
		}
		c.Advance(store.MaxDuration)
	}
	c.True(len(spread) > 50, "jitter spreads the waits of 30 jobs: there are %d different ones", len(spread))
}

// retryOneCount has a job whose last failure is by Fail, and one whose last is by After, which has no more retries either.
func retryOneCount(c *C) {
	for _, last := range []store.Form{store.Fail, store.After} {
		once := c.Enqueue(plainBut(func(n *store.NewJob) { n.MaxRetries = 0 }))[0]
		c.NAck(c.ClaimOne().Lease(), last, 0, "boom")
		c.Equal(c.Get(once).Phase(), store.Dead, "the phase of a job with MaxRetries 0, after %s", last)

		id := c.Enqueue(plainBut(func(n *store.NewJob) { n.MaxRetries = 4 }))[0]
		for i, end := range []func(store.Job){
			func(j store.Job) { c.NAck(j.Lease(), store.Fail, 0, "boom") },
			func(store.Job) { c.Advance(ttl); c.Recover(1) },
			func(j store.Job) { c.NAck(j.Lease(), store.After, time.Second, "boom") },
			func(store.Job) { c.Advance(ttl); c.Recover(1) },
			func(j store.Job) { c.NAck(j.Lease(), last, 0, "boom") },
		} {
			c.NAck(c.ClaimOne().Lease(), store.Snooze, 0, "")
			c.NAck(c.ClaimOne().Lease(), store.Release, 0, "")
			end(c.ClaimOne())
			got := c.Get(id)
			c.Equal([]int{got.Retries, got.Attempts}, []int{i + 1, 2 * (i + 1)}, "retries and attempts after failure %d", i+1)
			c.Equal(got.Phase() == store.Dead, i == 4, "the job is dead after failure %d, with MaxRetries 4", i+1)
			if i == 1 || i == 2 {
				want := c.Now().Add(map[int]time.Duration{1: 2 * time.Second, 2: time.Second}[i])
				c.Equal(got.RetryAt, want, "when the job is due again after failure %d", i+1)
			}
			c.Advance(time.Hour)
		}
	}
}

// retryDelays has jobs that have failed once, and then wait by Snooze or After for each delay, to the tick.
func retryDelays(c *C) {
	for _, op := range []store.Op{store.OpSnooze, store.OpAfter} {
		id := c.Enqueue(plainBut(func(n *store.NewJob) { n.MaxRetries, n.Backoff.Jitter = 10, 50 }))[0]
		c.NAck(c.ClaimOne().Lease(), store.Fail, 0, "boom")
		c.Advance(time.Second)
		for i, delay := range []time.Duration{time.Hour, 0, store.Resolution, store.MaxDuration, 59 * time.Minute} {
			l := c.ClaimOne().Lease()
			c.SaveCheckpoint(l, 1, `"kept"`)
			c.Advance(time.Second)
			want := becomes(op, c.Get(id), c.Now())
			if op == store.OpSnooze {
				want.RunAt = c.Now().Add(delay)
				c.Equal([]any{want.Attempts, want.Retries, want.Error}, []any{i + 2, 1, "boom"}, "attempts, retries and error at snooze %d", i)
			} else {
				want.RetryAt = c.Now().Add(delay)
			}
			c.Equal(c.NAck(l, store.Form(op), delay, failReason), store.OutcomeOf(want.Job, store.StatusOK), "the answer to %s with %v", op, delay)
			c.Equal(c.Get(id), want, "the job after %s with %v", op, delay)
			if delay > 0 {
				c.Advance(delay - store.Resolution)
				c.Equal(ids(c.Claim(10)), []int64{}, "claimed one tick before %v are over, after %s", delay, op)
				c.Advance(store.Resolution)
			}
		}
		c.Cancel(id)
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
		takes(c, store.OpRelease, c.Get(id), "for the %d. time", i+1)
	}
}
