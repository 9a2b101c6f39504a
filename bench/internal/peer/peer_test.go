package peer_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/bench/internal/peer"
	"github.com/seed-ed332417/jq/internal/bubble"
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

func TestShapesSayWhatJobsDo(t *testing.T) {
	require.Equal(t, peer.Job{Number: 7, User: 12345, Text: "hello there"}, peer.Shape{}.Job(7))
	big := peer.Shape{Text: 5000}
	require.Len(t, big.Job(7).Text, 5000)
	require.NotEqual(t, big.Job(7).Text, big.Job(8).Text)
	var packed bytes.Buffer
	pack := gzip.NewWriter(&packed)
	_, err := io.WriteString(pack, big.Job(7).Text)
	require.NoError(t, errors.Join(err, pack.Close()))
	require.Greater(t, packed.Len(), 3500, "a store can hardly compress it")
	failing, shortest, longest := 0, 1000, 0
	for number := range int64(1000) {
		job := peer.Shape{Slow: true, Fails: 10}.Job(number)
		shortest, longest = min(shortest, job.Millis), max(longest, job.Millis)
		if job.Fails {
			failing++
		}
	}
	require.Equal(t, []int{5, 800, 100}, []int{shortest, longest, failing})
}

func TestHandlersDoWhatJobsSay(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := peer.NewLedger(0)
		began := time.Now()
		require.NoError(t, l.Handle(t.Context(), peer.Job{Number: 1, Millis: 70}))
		require.Equal(t, 70*time.Millisecond, time.Since(began))
		require.Error(t, l.Handle(t.Context(), peer.Job{Number: 2, Fails: true}))
		require.NoError(t, l.Handle(t.Context(), peer.Job{Number: 2, Fails: true}), "it fails once")
		require.EqualValues(t, 2, l.Count())
		require.EqualValues(t, 1, l.Again())

		over, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, l.Handle(over, peer.Job{Number: 3, Millis: 70}), context.Canceled)
	})
}

// A slow queue takes a second for a job.
type slow struct {
	peer.Queue
	loads chan peer.Load
}

func (s *slow) Enqueue(_ context.Context, load peer.Load) error {
	<-time.After(time.Second)
	s.loads <- load
	return nil
}

func TestASlowCallDoesNotDelayTheNext(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		q := &slow{loads: make(chan peer.Load, 10)}
		began := time.Now()
		called, err := peer.Steadily(t.Context(), q, peer.Load{First: 5, Jobs: 3, Tx: true}, 100)
		require.NoError(t, err)
		require.Len(t, called, 3)
		for i, at := range called {
			require.Equal(t, time.Duration(i+1)*10*time.Millisecond, at.Sub(began.Round(0)))
			require.Equal(t, peer.Load{First: int64(5 + i), Jobs: 1, Callers: 1, Batch: 1, Tx: true}, <-q.loads)
		}
	})
}
