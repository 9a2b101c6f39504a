package sqlite

import (
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/activitytest"
)

func BenchmarkActivity(b *testing.B) {
	clk := clock.NewMock()
	clk.Set(time.Date(2026, 3, 1, 12, 7, 0, 0, time.UTC))
	s, err := Open(b.Context(), filepath.Join(b.TempDir(), "jobs.db"), &Options{Clock: clk})
	require.NoError(b, err)
	defer func() { require.NoError(b, s.Close()) }()
	activitytest.Bench(b, clk, s)
}

func TestOldActivityIsDeleted(t *testing.T) {
	clk := clock.NewMock()
	s := openAt(t, newPath(t), &Options{Clock: clk})
	activitytest.OldIsDeleted(t, clk, s, func(width int) (n int) {
		require.NoError(t, s.DB().QueryRowContext(t.Context(), `SELECT count(*) FROM activity WHERE width = ?`, width).Scan(&n))
		return n
	})
}

// After a day without a server, a call deletes only some of what is old: while it deletes, no job can be claimed.
func TestOldActivityIsDeletedInParts(t *testing.T) {
	clk := clock.NewMock()
	clk.Set(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	s := openAt(t, newPath(t), &Options{Clock: clk})
	most := make([]store.Activity, store.MaxItems)
	for i := range most {
		most[i] = store.Activity{Queue: "q", Kind: strconv.Itoa(i), Succeeded: 1}
	}
	for range 2 {
		require.NoError(t, s.AddActivity(t.Context(), most))
		clk.Add(time.Minute)
	}
	rows := func() (n int) {
		require.NoError(t, s.DB().QueryRowContext(t.Context(), `SELECT count(*) FROM activity WHERE width = 1 AND NOT overall`).Scan(&n))
		return n
	}
	require.Equal(t, 2*store.MaxItems, rows())
	clk.Add(store.MaxFineActivity + time.Hour)
	for _, left := range []int{store.MaxItems + 1, 1, 1} {
		require.NoError(t, s.AddActivity(t.Context(), []store.Activity{{Queue: "q", Succeeded: 1}}))
		assert.Equal(t, left, rows())
	}
}
