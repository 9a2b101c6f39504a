package server

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// Of 100 claims of one job, a fifth goes to retries and the others to fresh jobs: R10.
func TestShareIsCarriedOverBetweenClaims(t *testing.T) {
	s := share{part: 0.2}
	var retries []int
	for n := range 100 {
		q := s.quota(1)
		if q == 1 {
			retries = append(retries, n)
		}
		s.claimed(1, q, 1)
	}
	require.Len(t, retries, 20)
	for i, n := range retries {
		assert.Equal(t, 5*i+4, n, "they are spread evenly: %v", retries)
	}
}

// Whatever the limits, retries get their part of many full claims to within one job, and no quota exceeds its limit: R9, R10.
func TestShareIsExactOverClaimsOfAllSizes(t *testing.T) {
	for _, part := range []float64{0, 0.001, 0.1, 0.2, 1.0 / 3, 0.5, 0.9, 1} {
		s := share{part: part}
		dice := rand.New(rand.NewPCG(1, uint64(part*1000)))
		jobs, retries := 0, 0
		for range 10_000 {
			limit := 1 + dice.IntN(1000)
			q := s.quota(limit)
			require.True(t, 0 <= q && q <= limit, "quota %d of %d", q, limit)
			s.claimed(limit, q, limit)
			jobs, retries = jobs+limit, retries+q
			require.InDelta(t, part*float64(jobs), float64(retries), 1.001, "after %d jobs", jobs)
		}
	}
}

// A claim that was not full left no job waiting. It neither uses nor adds to what is carried over for retries. So a store that returns
// less than it has, under contention, starves nobody.
func TestUnfilledClaimLeavesTheShareAlone(t *testing.T) {
	s := share{part: 0.2}
	retries := 0
	for n := range 500 {
		q := s.quota(1)
		got := n % 5 / 4 // the first four of five come back empty
		if got == 1 {
			retries += q
		}
		s.claimed(1, q, got)
	}
	assert.Equal(t, 20, retries, "of 100 that were filled")
}

// A server with one slot shares its claims between retries and fresh jobs: of 100 runs about 20 are retries, and neither starves. R9,
// R10.
func TestServerWithOneSlotStarvesNoLane(t *testing.T) {
	for part, want := range map[float64]int{DefaultRetryShare: 20, 0.5: 50, 1: 100, -1: 0} {
		assert.InDelta(t, want, retriesOf100(t, Options{Slots: 1, Claim: ClaimOptions{RetryShare: part}}, 0), 1, "share %v: retries among the first 100 runs", part)
	}
}

// In a queue with a limit, claims get fewer jobs than they ask for, although more wait. Neither lane starves, however many slots there are.
func TestFullQueueStarvesNoLane(t *testing.T) {
	for _, slots := range []int{1, 4, 20, 100} {
		for _, most := range []int{1, 3} {
			got := retriesOf100(t, Options{Slots: slots}, most)
			assert.InDelta(t, 20, got, 3, "%d slots, and %d jobs in flight: retries among the first 100 runs", slots, most)
		}
	}
}

// retriesOf100 returns how many retries are among the first 100 runs, if there are enough of both, and so many jobs may be in flight.
func retriesOf100(t *testing.T, o Options, most int) int {
	t.Helper()
	retries, fresh := 0, 0
	inWorld(t, func(w *world) {
		w.enqueue(100, "job", func(j *store.NewJob) { j.Backoff.Base = time.Millisecond })
		failAll(w)
		w.wait(time.Minute)
		w.enqueue(100, "job")
		_, err := w.store.SetPolicy(w.Context(), DefaultQueue, store.Policy{MaxInFlight: most})
		require.NoError(w, err)
		var mu sync.Mutex // guards retries and fresh
		w.handlers["job"] = func(_ context.Context, r *Run) error {
			mu.Lock()
			defer mu.Unlock()
			if retries+fresh == 100 {
				return nil
			}
			if r.Job.Retries > 0 {
				retries++
			} else {
				fresh++
			}
			return nil
		}
		s := w.start(o)
		w.wait(10 * time.Minute)
		assert.Equal(w, 100, retries+fresh)
		w.stop(s)
	})
	return retries
}

// failAll claims what is due and fails it, so that it is retried.
func failAll(w *world) {
	w.Helper()
	for {
		jobs, err := w.store.FetchAndClaim(w.Context(), store.ClaimRequest{Queue: DefaultQueue, Limit: 100, Worker: "unlucky", TTL: time.Minute})
		require.NoError(w, err)
		if len(jobs) == 0 {
			return
		}
		nacks := make([]store.NAck, len(jobs))
		for i, j := range jobs {
			nacks[i] = store.NAck{Lease: j.Lease(), Form: store.Fail, Error: "no luck"}
		}
		_, err = w.store.NAck(w.Context(), nacks)
		require.NoError(w, err)
	}
}
