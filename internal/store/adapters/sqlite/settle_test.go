package sqlite

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// Most of those that wait for a job wait for another one too, and so its end changes few. No transaction of Settle tells all of them.
func TestSettleTellsFewAtOnce(t *testing.T) {
	s := openAt(t, newPath(t), nil)
	n := store.NewJob{Queue: "q", Kind: "k", Payload: []byte(`{}`)}
	added, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{n, n}})
	require.NoError(t, err)
	one, both := n, n
	one.After = []store.Wait{{ID: added[0].ID}}
	both.After = []store.Wait{{ID: added[0].ID}, {ID: added[1].ID}}
	const some = settledAtOnce - 1
	for _, jobs := range [][]store.NewJob{
		slices.Repeat([]store.NewJob{both}, store.SettledByCall), // whom the call tells
		slices.Repeat([]store.NewJob{one}, some), slices.Repeat([]store.NewJob{both}, store.MaxItems),
	} {
		_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: jobs})
		require.NoError(t, err)
	}
	jobs, err := s.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: "q", Limit: 1, Worker: "w", TTL: time.Minute})
	require.NoError(t, err)
	_, err = s.Ack(t.Context(), []store.Ack{{Lease: jobs[0].Lease()}})
	require.NoError(t, err)
	before := s.writer.commits.Load()
	settled, err := s.Settle(t.Context(), store.MaxItems)
	require.NoError(t, err)
	assert.Len(t, settled, some)
	least := int64(store.MaxItems / (toldAtOnce + told))
	assert.GreaterOrEqual(t, s.writer.commits.Load()-before, least, "transactions")
	settled, err = s.Settle(t.Context(), store.MaxItems)
	require.NoError(t, err)
	assert.Empty(t, settled)
}
