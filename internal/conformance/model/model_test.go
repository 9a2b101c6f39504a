package model

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

func TestEveryFaultHasItsOwnName(t *testing.T) {
	names := map[Fault]bool{}
	for _, m := range Faults() {
		assert.False(t, names[m.Fault], "two faults are named %s", m.Fault)
		names[m.Fault] = true
	}
}

// rounds is how often a race is tried before it counts as impossible.
const rounds = 2000

func TestUnlockedCallsMeet(t *testing.T) {
	for fault, seen := range map[Fault]func(t *testing.T, faults ...Fault) bool{
		ClaimUnlocked: claimedTwice, RecoverUnlocked: recoveredTwice, AckUnlocked: cancelLost,
	} {
		assert.True(t, someRound(func() bool { return seen(t, fault) }), "%s: the calls never met", fault)
		assert.False(t, someRound(func() bool { return seen(t) }), "the model without faults is broken as by %s", fault)
	}
}

func someRound(seen func() bool) bool {
	return slices.ContainsFunc(make([]int, rounds), func(int) bool { return seen() })
}

// claimedTwice has four workers claim one job at once.
func claimedTwice(t *testing.T, faults ...Fault) bool {
	s, _ := withOneJob(t, faults)
	return atOnce(4, func(int) int { return len(claimOne(t, s)) }) > 1
}

// recoveredTwice has four callers recover one lease at once.
func recoveredTwice(t *testing.T, faults ...Fault) bool {
	s, clk := withOneJob(t, faults)
	s.jobs[0] = s.claim(s.jobs[0], claimRequest, clk.Now().Add(-time.Hour))
	ended := atOnce(4, func(int) int {
		recovered, _ := s.RecoverExpiredLeases(t.Context(), store.RecoverRequest{Limit: 1})
		return len(recovered)
	})
	return ended > 1
}

// cancelLost says whether a Cancel that was answered with ok left nothing behind.
func cancelLost(t *testing.T, faults ...Fault) bool {
	s, _ := withOneJob(t, faults)
	l := claimOne(t, s)[0].Lease()
	cancelled := atOnce(2, func(i int) int {
		if i == 0 {
			_, _ = s.Ack(t.Context(), []store.Ack{{Lease: l}})
			return 0
		}
		outcomes, _ := s.Cancel(t.Context(), store.Filter{IDs: []int64{l.ID}}, 1)
		if outcomes[0].Status == store.StatusOK {
			return 1
		}
		return 0
	})
	return cancelled == 1 && s.jobs[0].State != store.Cancelled
}

var claimRequest = store.ClaimRequest{Queue: "q", Limit: 1, Worker: "w", TTL: time.Minute}

func claimOne(t *testing.T, s *Store) []store.Job {
	jobs, err := s.FetchAndClaim(t.Context(), claimRequest)
	assert.NoError(t, err)
	return jobs
}

// withOneJob is a model that has one job.
func withOneJob(t *testing.T, faults []Fault) (*Store, clock.Clock) {
	clk := clock.NewMock()
	s := New(clk, faults...)
	_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{{Queue: "q", Kind: "k", Payload: []byte(`{}`)}}})
	require.NoError(t, err)
	return s, clk
}

// atOnce calls f(0) to f(n−1) at once and adds up what they return.
func atOnce(n int, f func(i int) int) int {
	var total atomic.Int64
	var started, done sync.WaitGroup
	started.Add(n)
	for i := range n {
		done.Go(func() {
			started.Done()
			started.Wait() // or the first would be through before the last began
			total.Add(int64(f(i)))
		})
	}
	done.Wait()
	return int(total.Load())
}
