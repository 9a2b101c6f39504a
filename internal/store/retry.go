package store

import (
	"math/bits"
	"time"
)

// A Backoff says how long a job waits before each retry. It is kept with the job, because the process that recovers a job
// may not know its kind.
type Backoff struct {
	Base   time.Duration `json:"base,omitempty"`   // wait before the first retry; it doubles for each further retry
	Cap    time.Duration `json:"cap,omitempty"`    // the longest wait
	Jitter int           `json:"jitter,omitempty"` // the wait is up to this many percent shorter, by a hash of the job's id and its retries
}

// Delay returns how long the job waits before the retry with the given number; the first retry is number 1. It is
// deterministic: the same job and number always give the same wait, so that rows can be compared between stores.
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

// mix is the finalizer of splitmix64: every bit of its input affects every bit of its output.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// A Failure says why an attempt failed, and whether and when to retry.
type Failure struct {
	Reason string        // kept as the job's error
	Never  bool          // no retry, even if retries are left
	After  bool          // retry after Delay instead of the backoff
	Delay  time.Duration // the wait, if After is set
}

// LeaseExpired is the failure of a job whose lease expired. The reason says only what is known: the worker may have died
// before the handler began, so even a dead job may never have run.
var LeaseExpired = Failure{Reason: "lease expired: its worker fell silent, perhaps before the job began to run"}

// Failed returns the job after a failure at now. It is the only retry policy, both for NAck and for expired leases. It
// counts one more retry: up to MaxRetries the job is retrying, and beyond MaxRetries it is dead.
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
