package postgres

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed-ed332417/jq/internal/store"
)

// keysClaimed are the limit keys of n jobs, each taken by a claim of its own.
func keysClaimed(t *testing.T, s *Store, n int) (keys []string) {
	t.Helper()
	for range n {
		jobs := claimN(t, s, 1)
		require.Len(t, jobs, 1)
		keys = append(keys, jobs[0].LimitKey())
	}
	return keys
}

// The turns of a key come from a server whose claims had higher numbers. When the epoch is raised because of that, the key has its turn.
func TestTurnsBeginAnewOnAnotherServer(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	limitTo(t, s, store.Policy{Fair: true})
	enqueueKeyed(t, s, 10, "a", "b")
	require.ElementsMatch(t, []string{"a", "b"}, keysClaimed(t, s, 2))
	knowing(t, s)
	_, err := s.callers.ExecContext(t.Context(), s.sql(`
		UPDATE {schema}.keys
		SET fresh_at = 1::bigint << 60,
			state = regexp_replace(state, '"turn":[0-9]+', '"turn":1152921504606846976')
		WHERE limit_key = 'b'`))
	require.NoError(t, err)
	require.Equal(t, []string{"a", "a", "a"}, keysClaimed(t, s, 3), "b does not come before the numbers do")
	_, err = s.Fence(t.Context(), store.FenceRequest{Epoch: 1})
	require.NoError(t, err)
	assert.Equal(t, []string{"b", "a", "b", "a", "b"}, keysClaimed(t, s, 5))
}

// Claims at the same time take turns as if they came one after the other: they would skip the keys of each other, and take too many jobs of those that are
// left.
func TestClaimsAtTheSameTimeTakeTurns(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	limitTo(t, s, store.Policy{Fair: true})
	const claimers, claims, size = 4, 10, 10
	keys := []string{""}
	for i := range 10 {
		keys = append(keys, fmt.Sprint("key ", i))
	}
	for range 2 {
		enqueueKeyed(t, s, 40, keys...)
	}
	var mu sync.Mutex
	took := map[string]int{}
	var work errgroup.Group
	for range claimers {
		work.Go(func() error {
			for range claims {
				jobs, err := s.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: "q", Limit: size, Worker: "w", TTL: time.Minute})
				if err != nil {
					return err
				}
				if _, err := s.Ack(t.Context(), acksOf(jobs)); err != nil {
					return err
				}
				mu.Lock()
				for _, j := range jobs {
					took[j.LimitKey()]++
				}
				mu.Unlock()
			}
			return nil
		})
	}
	require.NoError(t, work.Wait())
	counts := slices.Sorted(maps.Values(took))
	require.Len(t, counts, len(keys))
	assert.LessOrEqual(t, counts[len(counts)-1]-counts[0], 1, "%v", took)
}
