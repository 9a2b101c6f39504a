package sqlite

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// The turns are kept in the file: they go on after a pause, and in another process.
func TestTurnsGoOn(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := openAt(t, path, nil)
	limitTo(t, s, store.Policy{Fair: true})
	a, b, c := enqueueKeyed(t, s, "a", "a", "a"), enqueueKeyed(t, s, "b", "b", "b"), enqueueKeyed(t, s, "c", "c", "c")
	require.Equal(t, []int64{a[0], b[0], c[0], a[1]}, claimed(t, s, 4))
	require.NoError(t, s.SetPaused(t.Context(), "q", true))
	require.NoError(t, s.SetPaused(t.Context(), "q", false))
	require.Equal(t, []int64{b[1]}, claimed(t, s, 1))
	other := openAt(t, path, nil)
	assert.Equal(t, []int64{c[1]}, claimed(t, other, 1))
	assert.Equal(t, []int64{a[2], b[2]}, claimed(t, s, 2))
	assert.Equal(t, []int64{c[2]}, claimed(t, other, 2))
	assert.Zero(t, count(t, s, `SELECT count(*) FROM keys`), "no key is left")
}

// A claim that finds nothing writes nothing.
func TestIdleClaimsOfAFairQueueWriteNothing(t *testing.T) {
	t.Parallel()
	s := openAt(t, newPath(t), nil)
	limitTo(t, s, store.Policy{Fair: true})
	enqueueKeyed(t, s, "a", "a")
	require.Len(t, claimed(t, s, 5), 2)
	before := count(t, s, `SELECT turns FROM queues`)
	require.Positive(t, before)
	require.Empty(t, claimed(t, s, 5))
	assert.Equal(t, before, count(t, s, `SELECT turns FROM queues`))
}
