// Package activitytest has what the tests of the SQL stores share about activity: which rows they delete, and what a busy day costs.
package activitytest

import (
	"fmt"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// The busy day: in each of its minutes something happens in each queue to jobs of each kind.
const (
	queues  = 30
	kinds   = 2
	minutes = 24 * 60
)

// Bench fills the store with the busy day and measures what a server writes and what pages read.
func Bench(b *testing.B, clk *clock.Mock, keeper store.ActivityKeeper) {
	var items []store.Activity
	for i := range queues * kinds {
		a := store.Activity{Queue: fmt.Sprintf("queue-%d", i/kinds), Kind: fmt.Sprintf("kind-%d", i%kinds)}
		for class, n := range a.Numbers() {
			*n = int64(i*class) % 100
		}
		items = append(items, a)
	}
	for range minutes {
		require.NoError(b, keeper.AddActivity(b.Context(), items))
		clk.Add(time.Minute)
	}
	b.Run("add", func(b *testing.B) {
		for b.Loop() {
			require.NoError(b, keeper.AddActivity(b.Context(), items))
		}
	})
	day := 24 * time.Hour
	for name, filter := range map[string]store.ActivityFilter{
		"hour-1m":        {Last: time.Hour, Step: time.Minute},
		"hour-kinds":     {Last: time.Hour, By: store.ByKind},
		"day-1m":         {Last: day, Step: time.Minute},
		"day-10m":        {Last: day, Step: 10 * time.Minute},
		"day-15m":        {Last: day, Step: 15 * time.Minute},
		"day-1h":         {Last: day, Step: time.Hour},
		"day-10m-queue":  {Last: day, Step: 10 * time.Minute, Queues: []string{"queue-7"}},
		"day-kinds":      {Last: day, By: store.ByKind},
		"day-5m-pattern": {Last: day, Step: 5 * time.Minute, Queues: []string{"queue-1*"}},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				page, err := keeper.Activity(b.Context(), filter)
				require.NoError(b, err)
				require.NotEmpty(b, page.Spans)
			}
		})
	}
}

// OldIsDeleted checks that rows which no answer needs are deleted, and those of other widths and of later minutes are not. The function
// rows counts the rows of a width.
func OldIsDeleted(t *testing.T, clk *clock.Mock, keeper store.ActivityKeeper, rows func(width int) int) {
	t.Helper()
	clk.Set(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	all := func() map[int]int { return map[int]int{1: rows(1), 5: rows(5), 60: rows(60)} }
	add := func() {
		require.NoError(t, keeper.AddActivity(t.Context(), []store.Activity{{Queue: "q", Succeeded: 1}, {Queue: "r", Succeeded: 1}}))
	}
	add() // a row of each queue, and one overall
	assert.Equal(t, map[int]int{1: 3, 5: 3, 60: 3}, all())
	clk.Add(store.MaxFineActivity)
	add()
	assert.Equal(t, map[int]int{1: 6, 5: 6, 60: 6}, all())
	clk.Add(time.Hour)
	add()
	assert.Equal(t, map[int]int{1: 6, 5: 6, 60: 9}, all())
	clk.Add(store.MaxActivity)
	add()
	assert.Equal(t, map[int]int{1: 3, 5: 3, 60: 6}, all(), "what is a week and an hour old is gone")
}
