package store

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestBackoffDoublesUpToItsCap(t *testing.T) {
	b := Backoff{Base: time.Second, Cap: 10 * time.Second}
	for retries, want := range map[int]time.Duration{
		1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 4: 8 * time.Second,
		5: 10 * time.Second, 6: 10 * time.Second, MaxRetryLimit: 10 * time.Second, math.MaxInt: 10 * time.Second,
	} {
		assert.Equal(t, want, b.Delay(7, retries), "retry %d", retries)
	}
}

func TestBackoffOfZeroWaitsNothing(t *testing.T) {
	assert.Zero(t, Backoff{Cap: time.Hour, Jitter: 100}.Delay(7, 5))
}

func TestBackoffNeverOverflows(t *testing.T) {
	b := Backoff{Base: MaxDuration, Cap: MaxDuration, Jitter: 100}
	for retries := range 100 {
		d := b.Delay(1, retries)
		assert.True(t, 0 <= d && d <= MaxDuration, "retry %d: %v", retries, d)
	}
}

// The hash is part of the contract: two stores, or two versions of one, must agree to the microsecond.
func TestJitterIsExact(t *testing.T) {
	b := Backoff{Base: time.Minute, Cap: time.Hour, Jitter: 20}
	assert.Equal(t, 53_679_385*time.Microsecond, b.Delay(1, 1))
	assert.Equal(t, 98_959_786*time.Microsecond, b.Delay(1, 2))
	assert.Equal(t, 51_147_609*time.Microsecond, b.Delay(2, 1))
}

func TestJitterStaysWithinItsShareAndSpreads(t *testing.T) {
	b := Backoff{Base: time.Minute, Cap: time.Hour, Jitter: 20}
	low, high := time.Hour, time.Duration(0)
	for id := range int64(1000) {
		d := b.Delay(id, 1)
		low, high = min(low, d), max(high, d)
	}
	assert.True(t, 48*time.Second <= low && high <= time.Minute, "between %v and %v", low, high)
	assert.Less(t, low, 49*time.Second)
	assert.Greater(t, high, 59*time.Second)
}

func TestDelayIsAlwaysWithinItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Backoff{
			Base:   time.Duration(rapid.Int64Range(0, int64(MaxDuration)).Draw(t, "base")),
			Jitter: rapid.IntRange(0, 100).Draw(t, "jitter"),
		}
		b.Cap = time.Duration(rapid.Int64Range(int64(b.Base), int64(MaxDuration)).Draw(t, "cap"))
		d := b.Delay(rapid.Int64().Draw(t, "id"), rapid.IntRange(1, MaxRetryLimit+1).Draw(t, "retries"))
		if d < 0 || d > b.Cap || d != d.Truncate(Resolution) {
			t.Fatalf("%+v: %v", b, d)
		}
	})
}

func TestFailedCountsAndDecides(t *testing.T) {
	job := Job{ID: 1, State: InFlight, LeaseExpiresAt: noon, Token: 5, Attempts: 2, MaxRetries: 1, Backoff: Backoff{Base: time.Second, Cap: time.Second}}
	first := job.Failed(Failure{Reason: "boom"}, noon)
	assert.Equal(t, Retrying, first.Phase())
	assert.Equal(t, noon.Add(time.Second), first.RetryAt)
	assert.Equal(t, "boom", first.Error)
	assert.Equal(t, 1, first.Retries)
	assert.Zero(t, first.LeaseExpiresAt)

	last := first.Failed(LeaseExpired, noon)
	assert.Equal(t, Dead, last.Phase())
	assert.Equal(t, noon, last.FinishedAt)
	assert.Equal(t, 2, last.Retries)

	assert.Equal(t, Dead, job.Failed(Failure{Never: true}, noon).Phase())
	after := job.Failed(Failure{After: true, Delay: time.Hour + time.Nanosecond}, noon)
	assert.Equal(t, noon.Add(time.Hour), after.RetryAt)
	assert.Equal(t, Dead, last.Failed(Failure{After: true}, noon).Phase(), "After beyond the maximum")
}
