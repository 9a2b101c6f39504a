package conformance

import (
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

var retryCases = []Case{
	{"Retry/BackoffDoublesUpToItsCap", "NAck ends leases without success. Fail, Never and After count one more retry, and keep the error: Fail waits the job's backoff, After the given delay, and beyond MaxRetries or with Never the job is dead.", retryBackoffDoubles},
	{"Retry/JitterIsExact", "It is exact: the same job and number always wait equally long, so that rows can be compared between stores.", retryJitterIsExact},
	{"Retry/BackoffNeverOverflows", "never longer", retryNeverOverflows},
	{"Retry/EveryFailureCountsOnTheSameRow", "One more retry is counted; within MaxRetries the job is retrying, beyond it dead.", retryOneCount},
	{"Retry/MaxRetriesAreRunsAfterTheFirst", "One more retry is counted; within MaxRetries the job is retrying, beyond it dead.", retryMaxRetries},
	{"Retry/AfterWaitsExactlyTheGivenDelay", "Fail, Never and After count one more retry, and keep the error: Fail waits the job's backoff, After the given delay, and beyond MaxRetries or with Never the job is dead.", retryAfterIsExact},
	{"Retry/SnoozeIsNoFailure", "Snooze makes the job ready again after the delay.", retrySnooze},
	{"Retry/ReleaseTakesTheAttemptBack", "Release makes it ready at once and takes the attempt back. The token stays.", retryRelease},
}

func retryBackoffDoubles(c *C) {
	s, ms, us := time.Second, time.Millisecond, time.Microsecond
	list := []struct {
		base, cap time.Duration
		want      []time.Duration
	}{
		{s, 60 * s, []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s}},
		{s, 8 * s, []time.Duration{s, 2 * s, 4 * s, 8 * s, 8 * s, 8 * s, 8 * s, 8 * s}},
		{s, 8*s + us, []time.Duration{s, 2 * s, 4 * s, 8 * s, 8*s + us, 8*s + us, 8*s + us, 8*s + us}},
		{s, 8*s - us, []time.Duration{s, 2 * s, 4 * s, 8*s - us, 8*s - us, 8*s - us, 8*s - us, 8*s - us}},
		{s, s, []time.Duration{s, s, s, s, s, s, s, s}},
		{300 * ms, time.Hour, []time.Duration{300 * ms, 600 * ms, 1200 * ms, 2400 * ms, 4800 * ms, 9600 * ms, 19200 * ms, 38400 * ms}},
		{us, time.Hour, []time.Duration{us, 2 * us, 4 * us, 8 * us, 16 * us, 32 * us, 64 * us, 128 * us}},
		{0, 0, make([]time.Duration, 8)},
		{0, time.Hour, make([]time.Duration, 8)},
	}
	var jobs []store.NewJob
	for _, k := range list {
		jobs = append(jobs, plainBut(func(n *store.NewJob) {
			n.MaxRetries, n.Backoff = 8, store.Backoff{Base: k.base, Cap: k.cap}
		}))
	}
	enqueued := c.Enqueue(jobs...)
	for round := range 8 {
		held := c.Claim(100)
		c.Equal(len(held), len(list), "how many were claimed in round %d", round)
		c.endAll(held, store.Fail, 0)
		for i, id := range enqueued {
			want := c.Now().Add(list[i].want[round])
			c.Equal(c.Get(id).RetryAt, want, "RetryAt of retry %d with a backoff from %v to %v", round+1, list[i].base, list[i].cap)
		}
		c.Advance(time.Hour)
	}
}

// retryJitterIsExact compares with Backoff.Delay, whose values are tested where it stands, and with their bounds.
func retryJitterIsExact(c *C) {
	jitters := []int{0, 1, 10, 50, 99, 100}
	var jobs []store.NewJob
	for _, jitter := range slices.Repeat(jitters, 5) {
		jobs = append(jobs, plainBut(func(n *store.NewJob) {
			n.MaxRetries, n.Backoff = 10, store.Backoff{Base: time.Second, Cap: 6 * time.Second, Jitter: jitter}
		}))
	}
	enqueued := c.Enqueue(jobs...)
	spread := map[time.Duration]bool{}
	for round := 1; round <= 6; round++ {
		held := c.Claim(100)
		if round%2 == 0 {
			c.Advance(ttl)
			c.Recover(100)
		} else {
			c.endAll(held, store.Fail, 0)
		}
		for _, id := range enqueued {
			j := c.Get(id).Job
			wait, most := j.RetryAt.Sub(c.Now()), min(time.Second<<(round-1), 6*time.Second)
			c.Equal(wait, j.Backoff.Delay(id, round), "the wait of job %d with %+v before retry %d", id, j.Backoff, round)
			c.True(wait <= most && wait >= most-most*time.Duration(j.Backoff.Jitter)/100, "%v lies up to %d percent below %v", wait, j.Backoff.Jitter, most)
			spread[wait] = true
		}
		c.Advance(time.Minute)
	}
	c.True(len(spread) > 50, "jitter spreads the waits of 30 jobs: %d different ones in 6 rounds", len(spread))
}

// retryNeverOverflows comes to retries beyond the width of a word by After, and looks at the backoff at some of them.
func retryNeverOverflows(c *C) {
	year := 365 * 24 * time.Hour
	jobs := []store.NewJob{
		plainBut(func(n *store.NewJob) {
			n.MaxRetries, n.Backoff = 1_000_000, store.Backoff{Base: 1, Cap: year}
		}),
		plainBut(func(n *store.NewJob) {
			n.MaxRetries, n.Backoff = 1_000_000, store.Backoff{Base: time.Microsecond, Cap: year}
		}),
		plainBut(func(n *store.NewJob) {
			n.MaxRetries, n.Backoff = 1_000_000, store.Backoff{Base: time.Second, Cap: year, Jitter: 100}
		}),
		plainBut(func(n *store.NewJob) {
			n.MaxRetries, n.Backoff = 1_000_000, store.Backoff{Base: store.MaxDuration, Cap: store.MaxDuration}
		}),
	}
	enqueued := c.Enqueue(jobs...)
	looks := []int{1, 2, 26, 45, 46, 63, 64, 65, 66, 128, 130}
	for retry := 1; retry <= 130; retry++ {
		held := c.Claim(10)
		c.Equal(len(held), len(jobs), "how many were claimed before retry %d", retry)
		if !slices.Contains(looks, retry) {
			c.endAll(held, store.After, 0)
			continue
		}
		c.endAll(held, store.Fail, 0)
		for i, id := range enqueued {
			j := c.Get(id).Job
			wait := j.RetryAt.Sub(c.Now())
			c.Equal(wait, j.Backoff.Delay(id, retry), "the wait before retry %d with %+v", retry, j.Backoff)
			if i > 0 && retry > 45 && j.Backoff.Jitter == 0 {
				c.Equal(wait, j.Backoff.Cap, "the wait before retry %d is the cap", retry)
			}
		}
		c.Advance(store.MaxDuration)
	}
}

func retryOneCount(c *C) {
	id := c.Enqueue(plainBut(func(n *store.NewJob) { n.MaxRetries = 4 }))[0]
	for i, end := range []func(store.Job){
		func(j store.Job) { c.NAck(j.Lease(), store.Fail, 0, "boom") },
		func(store.Job) { c.Advance(ttl); c.Recover(1) },
		func(j store.Job) { c.NAck(j.Lease(), store.After, time.Second, "boom") },
		func(store.Job) { c.Advance(ttl); c.Recover(1) },
		func(j store.Job) { c.NAck(j.Lease(), store.Fail, 0, "boom") },
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

func retryMaxRetries(c *C) {
	for _, form := range []store.Form{store.Fail, store.After} {
		for _, maxRetries := range []int{0, 1, 2, 5} {
			id := c.Enqueue(plainBut(func(n *store.NewJob) { n.MaxRetries = maxRetries }))[0]
			runs := 0
			for range 8 {
				for _, j := range c.Claim(10) {
					runs++
					c.NAck(j.Lease(), form, 0, "boom")
				}
				c.Advance(time.Hour)
			}
			c.Equal(runs, maxRetries+1, "how often a job ran that always ends by %s, with MaxRetries %d", form, maxRetries)
			c.Equal(c.Get(id).Phase(), store.Dead, "its phase")
			c.Equal(c.Get(id).Retries, maxRetries+1, "its retries")
		}
	}
}
