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

// Rows that no answer needs are deleted, those of other widths and of later minutes are not.
func TestOldActivityIsDeleted(t *testing.T) {
	clk := clock.NewMock()
	clk.Set(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	s := openAt(t, newPath(t), &Options{Clock: clk})
	rows := func() map[int]int {
		all := map[int]int{}
		for _, width := range []int{1, 5, 60} {
			var n int
			require.NoError(t, s.DB().QueryRowContext(t.Context(), `SELECT count(*) FROM activity WHERE width = ?`, width).Scan(&n))
			all[width] = n
		}
		return all
	}
	add := func() {
		require.NoError(t, s.AddActivity(t.Context(), []store.Activity{{Queue: "q", Succeeded: 1}, {Queue: "r", Succeeded: 1}}))
	}
	add() // a row of each queue, and one overall
	assert.Equal(t, map[int]int{1: 3, 5: 3, 60: 3}, rows())
	clk.Add(store.MaxFineActivity)
	add()
	assert.Equal(t, map[int]int{1: 6, 5: 6, 60: 6}, rows())
	clk.Add(time.Hour)
	add()
	assert.Equal(t, map[int]int{1: 6, 5: 6, 60: 9}, rows())
	clk.Add(store.MaxActivity)
	add()
	assert.Equal(t, map[int]int{1: 3, 5: 3, 60: 6}, rows(), "what is a week and an hour old is gone")
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
