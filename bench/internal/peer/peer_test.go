package peer_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/bench/internal/peer"
)

func TestSpreadAddsEveryNumberOnce(t *testing.T) {
	for _, load := range []peer.Load{
		{First: 0, Jobs: 1, Callers: 1, Batch: 1},
		{First: 7, Jobs: 100, Callers: 16, Batch: 1},
		{First: 0, Jobs: 2500, Callers: 2, Batch: 1000},
		{First: 5, Jobs: 3, Callers: 16, Batch: 1},
	} {
		var mu sync.Mutex
		seen := map[int64]int{}
		err := load.Spread(t.Context(), func(_ context.Context, first int64, jobs int) error {
			mu.Lock()
			defer mu.Unlock()
			require.LessOrEqual(t, jobs, load.Batch)
			for i := range jobs {
				seen[first+int64(i)]++
			}
			return nil
		})
		require.NoError(t, err)
		require.Len(t, seen, load.Jobs, "numbers of %+v", load)
		for number, times := range seen {
			require.Equal(t, 1, times, "additions of number %d by %+v", number, load)
			require.GreaterOrEqual(t, number, load.First)
			require.Less(t, number, load.First+int64(load.Jobs))
		}
	}
}

func TestSpreadStopsAtTheFirstError(t *testing.T) {
	broken := errors.New("broken")
	calls := 0
	err := peer.Load{Jobs: 10, Callers: 1, Batch: 1}.Spread(t.Context(), func(context.Context, int64, int) error {
		calls++
		return broken
	})
	require.ErrorIs(t, err, broken)
	require.Equal(t, 1, calls)
}

func TestLedgerKnowsWhichJobsWereBegun(t *testing.T) {
	l := peer.NewLedger(2)
	const jobs = 200_000
	for number := range int64(jobs) {
		if number != 131_072 && number != 199_999 {
			l.Begin(number)
		}
	}
	require.EqualValues(t, jobs-2, l.Count())
	require.EqualValues(t, 131_072, l.Missing(jobs))
	l.Begin(131_072)
	require.EqualValues(t, 199_999, l.Missing(jobs))
	require.EqualValues(t, -1, l.Missing(199_999))
	require.Zero(t, l.Again())
	l.Begin(5)
	require.EqualValues(t, 1, l.Again())
	require.EqualValues(t, jobs-1, l.Count(), "one that is begun twice counts once")
	require.False(t, l.Began(1).IsZero())
}

func TestLedgerIsSafeForManyGoroutines(t *testing.T) {
	l := peer.NewLedger(0)
	var work sync.WaitGroup
	for range 4 {
		work.Go(func() {
			for number := range int64(100_000) {
				l.Begin(number)
			}
		})
	}
	work.Wait()
	require.EqualValues(t, 100_000, l.Count())
	require.EqualValues(t, 300_000, l.Again())
}
