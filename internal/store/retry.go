package store

import (
	"math/bits"
	"time"
)

// A Backoff says how long a job waits before it is tried again. It stands on the row, because the process that recovers a
// job need not know its kind.
type Backoff struct {
	Base   time.Duration // before the first retry, doubled for each further one
	Cap    time.Duration // never longer
	Jitter int           // up to so many percent less, spread by a hash of the job's id and its retries
}

// Delay is the wait before the retry with the given number, the first being 1, of the given job. It is exact: the same job
// and number always wait equally long, so that rows can be compared between stores.
func (b Backoff) Delay(id int64, retries int) time.Duration {
	wait := b.Base.Truncate(Resolution)
	limit := b.Cap.Truncate(Resolution)
	for n := 1; n < retries && wait > 0 && wait < limit; n++ {
		wait *= 2 // below twice the cap, which is far from overflowing
	}
	wait = min(wait, limit)
	spread := wait.Microseconds() * int64(b.Jitter) / 100
	less, _ := bits.Mul64(uint64(spread), mix(uint64(id)+mix(uint64(retries))))
	return wait - time.Duration(less)*time.Microsecond
}

// mix is the finalizer of splitmix64: every bit of its input moves every bit of its output.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// A Failure is why an attempt failed and what the handler wished to happen next.
type Failure struct {
	Reason string        // kept as the job's error
	Never  bool          // no retry, whatever is left
	After  bool          // retry after Delay rather than after the backoff
	Delay  time.Duration // with After
}

// LeaseExpired is the failure of a job whose lease ran out. The reason says what is known: the worker may have died before
// the handler began, so that even a dead job may never have run.
var LeaseExpired = Failure{Reason: "lease expired: its worker fell silent, perhaps before the job began to run"}

// Failed is the one retry policy: the job as it is after failing at now, by NAck and by an expired lease alike. One more
// retry is counted; within MaxRetries the job is retrying, beyond it dead.
func (j Job) Failed(f Failure, now time.Time) Job {
	j.State = Failed
	j.Retries++
	j.Error = f.Reason
	j.LeaseExpiresAt, j.RetryAt, j.FinishedAt = time.Time{}, time.Time{}, time.Time{}
	switch {
	case f.Never || j.Retries > j.MaxRetries:
		j.FinishedAt = now
	case f.After:
		j.RetryAt = now.Add(f.Delay.Truncate(Resolution))
	default:
		j.RetryAt = now.Add(j.Backoff.Delay(j.ID, j.Retries))
	}
	return j
}
