package store

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRaisedLeavesRoomForIDs(t *testing.T) {
	for _, k := range []struct{ asked, epoch, lastID, want int64 }{
		{0, 0, 0, 1}, {0, 1, FenceStep + 5, 2}, {3, 1, 0, 3}, {2, 2, 0, 3}, {1, 5, 0, 6},
		{0, 0, FenceStep/2 - 1, 1}, {0, 0, FenceStep / 2, 2}, // so many ids that the lost ones may reach the next floor
		{0, 0, FenceStep + 7, 2}, {0, 0, 3*FenceStep + FenceStep/2, 5}, // raised by an earlier program, which kept no epoch
		{MaxEpoch, 0, 0, MaxEpoch}, {0, MaxEpoch - 1, 0, MaxEpoch},
	} {
		got, err := FenceRequest{Epoch: k.asked}.Raised(k.epoch, k.lastID)
		require.NoError(t, err, "%+v", k)
		assert.Equal(t, k.want, got, "%+v", k)
		assert.GreaterOrEqual(t, Floor(got)-k.lastID, int64(FenceStep/2), "%+v: room for lost ids", k)
	}
	for _, k := range []struct{ epoch, lastID int64 }{{MaxEpoch, 0}, {0, math.MaxInt64}, {MaxEpoch, math.MaxInt64}} {
		_, err := FenceRequest{}.Raised(k.epoch, k.lastID)
		assert.ErrorIs(t, err, ErrInvalid, "%+v", k)
	}
}

func TestNextTokenGoesOnFromTheFloor(t *testing.T) {
	assert.Equal(t, int64(1), NextToken(0, 0))
	assert.Equal(t, int64(8), NextToken(7, 0))
	assert.Equal(t, int64(FenceStep+1), NextToken(7, 1))
	assert.Equal(t, int64(FenceStep+2), NextToken(FenceStep+1, 1))
	assert.Positive(t, NextToken(0, MaxEpoch), "the last epoch is within 63 bits")
	assert.Positive(t, Floor(MaxEpoch)+FenceStep-1)
}
