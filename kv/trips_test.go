package kv_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/kv"
	"github.com/seed-ed332417/jq/kv/internal/memkv"
)

// A call that ends the last jobs of many groups for which others wait takes as many trips as one for few groups.
func TestEndsOfManyGroupsTakeFewTrips(t *testing.T) {
	trips := func(groups int) (n int) {
		e := &odd{Engine: memkv.New().Connect()}
		s, _ := open(t, e)
		var jobs []contract.NewJob
		for i := range groups {
			jobs = append(jobs, inQueue("a", fmt.Sprint("g", i)))
		}
		_, err := s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: jobs})
		require.NoError(t, err)
		for i := range groups {
			jobs[i] = inQueue("b", "", contract.Wait{Group: fmt.Sprint("g", i)})
		}
		_, err = s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: jobs})
		require.NoError(t, err)
		claimed, err := s.FetchAndClaim(t.Context(), claimOf("a", groups))
		require.NoError(t, err)
		require.Len(t, claimed, groups)
		var acks []contract.Ack
		for _, j := range claimed {
			acks = append(acks, contract.Ack{Lease: j.Lease()})
		}
		ended := false // that is in the first commit, and the others tell
		e.read = func(ctx context.Context, v kv.View, ask []kv.Range) ([][]kv.Item, error) {
			if !ended {
				n++
			}
			return v.Read(ctx, ask...)
		}
		e.commit = func(ctx context.Context, v kv.View, c kv.Change) error {
			ended = true
			return v.Commit(ctx, c)
		}
		_, err = s.Ack(t.Context(), acks)
		require.NoError(t, err)
		require.True(t, ended)
		return n
	}
	assert.Equal(t, trips(2), trips(100))
}
