package sqlite

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// finish acks jobs that were claimed once.
func finish(t *testing.T, s *Store, ids ...int64) {
	t.Helper()
	acks := make([]store.Ack, len(ids))
	for i, id := range ids {
		acks[i].Lease = store.Lease{ID: id, Token: 1}
	}
	_, err := s.Ack(t.Context(), acks)
	require.NoError(t, err)
}

// rowsOf counts the rows of keys, and the hints.
func rowsOf(t *testing.T, s *Store) [2]int {
	t.Helper()
	return [2]int{count(t, s, `SELECT count(*) FROM keys WHERE limit_key <> ''`), count(t, s, `SELECT count(*) FROM hints WHERE limit_key <> ''`)}
}

// While a limit does not bind, claims do not look at keys. They begin again by key where one may have no room, or where there are fewer jobs.
func TestClaimsAcrossKeys(t *testing.T) {
	t.Parallel()
	s := openAt(t, newPath(t), nil)
	limitTo(t, s, store.Policy{MaxPerKey: 3})
	ids := enqueueKeyed(t, s, "a", "b", "c", "a", "b", "", "a", "b", "", "a", "b", "", "d", "d")
	require.Equal(t, ids[:2], claimed(t, s, 2))
	require.Equal(t, ids[2:7], claimed(t, s, 5))
	assert.Equal(t, [2]int{0, 4}, rowsOf(t, s), "the hints are unread")

	assert.Equal(t, []int64{ids[7], ids[8], ids[11], ids[12]}, claimed(t, s, 4), "key a has no room, and then key b")
	assert.Equal(t, [2]int{4, 0}, rowsOf(t, s))
	assert.Equal(t, ids[13:], claimed(t, s, 5), "fewer jobs")
	finish(t, s, ids...)
	assert.Equal(t, ids[9:11], claimed(t, s, 10), "there is room again")
	finish(t, s, ids[9:11]...)
	assert.Empty(t, claimed(t, s, 10))
	assert.Equal(t, [2]int{}, rowsOf(t, s))
}

// A claim that tries in vain takes nothing, and so no room.
func TestAClaimAcrossKeysInVainTakesNoRoom(t *testing.T) {
	t.Parallel()
	s := openAt(t, newPath(t), nil)
	limitTo(t, s, store.Policy{MaxPerKey: 2})
	ids := enqueueKeyed(t, s, "b", "b", "a", "a", "b", "a", "a")
	require.Equal(t, ids[:3], claimed(t, s, 3))
	assert.Equal(t, ids[3:4], claimed(t, s, 3), "in vain: key a has room for one, and then b has none")
	assert.Empty(t, claimed(t, s, 3))
	finish(t, s, ids[:4]...)
	assert.Equal(t, ids[4:], claimed(t, s, 3))
}
