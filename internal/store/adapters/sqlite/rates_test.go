package sqlite

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

func claimsKept(t *testing.T, s *Store) (n int) {
	t.Helper()
	require.NoError(t, s.DB().Get(&n, `SELECT count(*) FROM claims`))
	return n
}

// Two processes differ about the time, after the clock was set back by a little: one keeps the time that it has seen. Together they keep to the rate,
// however often they take turns, and both go on when it is time.
func TestRateOfClocksThatDifferALittle(t *testing.T) {
	path, clk := filepath.Join(t.TempDir(), "jq.db"), newClock()
	ahead, behind := openAt(t, path, &Options{Clock: clk}), openAt(t, path, &Options{Clock: clk})
	enqueue(t, ahead, 100)
	limitTo(t, ahead, store.Policy{Rate: store.Rate{N: 5, Per: time.Second}})
	clk.Add(time.Minute)
	require.Len(t, claimed(t, ahead, 3), 3)
	clk.Add(-3 * time.Second)
	n := 3
	for range 5 {
		n += len(claimed(t, behind, 9)) + len(claimed(t, ahead, 9))
	}
	assert.Equal(t, 5, n)
	clk.Add(4 * time.Second)
	for range 5 {
		n += len(claimed(t, behind, 9)) + len(claimed(t, ahead, 9))
	}
	assert.Equal(t, 10, n)
}

// Claims that count no more are deleted, and all of them when the queue has no rate any more.
func TestClaimsThatCountNoMoreAreDeleted(t *testing.T) {
	clk := newClock()
	s := openAt(t, filepath.Join(t.TempDir(), "jq.db"), &Options{Clock: clk})
	enqueue(t, s, 100)
	limitTo(t, s, store.Policy{Rate: store.Rate{N: 3, Per: time.Second}})
	for range 20 {
		require.Len(t, claimed(t, s, 5), 3)
		clk.Add(time.Second)
	}
	assert.Equal(t, 1, claimsKept(t, s))
	limitTo(t, s, store.Policy{Rate: store.Rate{}})
	assert.Zero(t, claimsKept(t, s))
}
