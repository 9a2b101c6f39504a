// Package activitytest measures the activity of a busy day on any store.
package activitytest

import (
	"fmt"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
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
