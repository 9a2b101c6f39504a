package kv_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/kv/internal/memkv"
)

// Tickets that are times are large. An epoch whose ids would soon end is refused, and what is left is usable.
func TestFenceLeavesRoomForIDs(t *testing.T) {
	next := int64(1 << 50)
	s, _ := open(t, &odd{Engine: memkv.New().Connect(), tickets: func(_ context.Context, n int) (list []int64, err error) {
		for range n {
			next++
			list = append(list, next)
		}
		return list, nil
	}})
	_, err := s.Fence(t.Context(), contract.FenceRequest{Epoch: contract.MaxEpoch})
	require.ErrorIs(t, err, contract.ErrInvalid)
	assert.ErrorContains(t, err, "epoch is too high")
	const high = contract.MaxEpoch - 1<<20
	epoch, err := s.Fence(t.Context(), contract.FenceRequest{Epoch: high})
	require.NoError(t, err)
	assert.EqualValues(t, high, epoch)
	enqueued, err := s.Enqueue(t.Context(), request(1))
	require.NoError(t, err)
	assert.Greater(t, enqueued[0].ID, contract.Floor(high))
}
