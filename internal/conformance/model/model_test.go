package model

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

func TestEveryFaultIsListedOnce(t *testing.T) {
	listed := map[Fault]bool{}
	for _, m := range Faults() {
		assert.False(t, listed[m.Fault], "%s is listed twice", m.Fault)
		listed[m.Fault] = true
		assert.NotEmpty(t, m.Breaks, m.Fault)
	}
	for _, e := range effects {
		assert.True(t, listed[e.fault], "%s has an effect and is not listed", e.fault)
	}
	for _, guards := range []map[store.Op]Fault{tokenUnchecked, stateUnchecked, lateRefused} {
		for op, f := range guards {
			assert.True(t, listed[f], "%s opens %s and is not listed", f, op)
		}
	}
}

// rounds is how often a race is tried before it counts as impossible.
const rounds = 2000

func TestUnlockedClaimHandsOutOneTokenTwice(t *testing.T) {
	assert.True(t, someRound(func() bool { return claimedTwice(t, ClaimUnlocked) }), "two claims never met")
	assert.False(t, someRound(func() bool { return claimedTwice(t) }), "the model without faults gave a token twice")
}

func TestUnlockedRecoveryRecoversTwice(t *testing.T) {
	assert.True(t, someRound(func() bool { return recoveredTwice(t, RecoverUnlocked) }), "two recoveries never met")
	assert.False(t, someRound(func() bool { return recoveredTwice(t) }), "the model without faults recovered twice")
}

func TestUnlockedAckLosesACancel(t *testing.T) {
	assert.True(t, someRound(func() bool { return cancelLost(t, AckUnlocked) }), "an Ack and a Cancel never met")
	assert.False(t, someRound(func() bool { return cancelLost(t) }), "the model without faults lost a Cancel")
}

func someRound(seen func() bool) bool {
	return slices.ContainsFunc(make([]int, rounds), func(int) bool { return seen() })
}

// claimedTwice has four workers claim one job at once.
func claimedTwice(t *testing.T, faults ...Fault) bool {
	s := New(clock.NewMock(), faults...)
	enqueueOne(t, s)
	given := atOnce(4, func(int) int { return len(claimOne(t, s)) })
	return sum(given) > 1
}

// recoveredTwice has four callers recover one lease at once.
func recoveredTwice(t *testing.T, faults ...Fault) bool {
	clk := clock.NewMock()
	s := New(clk, faults...)
	enqueueOne(t, s)
	s.jobs[0] = s.claim(s.jobs[0], claimRequest, clk.Now().Add(-time.Hour))
	ended := atOnce(4, func(int) int {
		recovered, _ := s.RecoverExpiredLeases(t.Context(), store.RecoverRequest{Limit: 1})
		return len(recovered)
	})
	return sum(ended) > 1
}

// cancelLost says whether a Cancel that was answered with ok left nothing behind.
func cancelLost(t *testing.T, faults ...Fault) bool {
	s := New(clock.NewMock(), faults...)
	enqueueOne(t, s)
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
	return sum(cancelled) == 1 && s.jobs[0].State != store.Cancelled
}

var claimRequest = store.ClaimRequest{Queue: "q", Limit: 1, Worker: "w", TTL: time.Minute}

func claimOne(t *testing.T, s *Store) []store.Job {
	jobs, err := s.FetchAndClaim(t.Context(), claimRequest)
	assert.NoError(t, err)
	return jobs
}

func enqueueOne(t *testing.T, s *Store) {
	t.Helper()
	_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{{Queue: "q", Kind: "k", Payload: []byte(`{}`)}}})
	require.NoError(t, err)
}

// atOnce calls f(0) to f(n−1) at once and returns what they return.
func atOnce(n int, f func(i int) int) []int {
	answers := make([]int, n)
	var started, done sync.WaitGroup
	started.Add(n)
	for i := range n {
		done.Go(func() {
			started.Done()
			started.Wait() // or the first would be through before the last began
			answers[i] = f(i)
		})
	}
	done.Wait()
	return answers
}

func sum(list []int) int {
	total := 0
	for _, n := range list {
		total += n
	}
	return total
}
