package server

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
)

// BenchmarkNoOp measures the cost of the runtime itself: jobs that do nothing, from the claim to the Ack, on the memory store. They are
// enqueued before the clock runs.
func BenchmarkNoOp(b *testing.B) {
	for _, slots := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("slots=%d", slots), func(b *testing.B) { benchmarkNoOp(b, slots) })
	}
}

func benchmarkNoOp(b *testing.B, slots int) {
	s := memory.New(memory.Options{})
	defer func() { require.NoError(b, s.Close()) }()
	for left := b.N; left > 0; left -= store.MaxItems {
		jobs := make([]store.NewJob, min(left, store.MaxItems))
		for i := range jobs {
			jobs[i] = store.NewJob{Queue: DefaultQueue, Kind: "none", Payload: []byte("{}")}
		}
		_, err := s.Enqueue(b.Context(), store.EnqueueRequest{Jobs: jobs})
		require.NoError(b, err)
	}
	done := &counter{left: int64(b.N), done: make(chan struct{})}
	none := func(context.Context, *Run) error { return nil }
	server, err := New(s, func(string) (Handler, bool) { return none, true }, Options{
		Slots: slots, Claim: ClaimOptions{Buffer: 4 * slots}, Logger: Quiet(), Observer: done, Retention: RetentionOptions{Interval: -1},
	})
	require.NoError(b, err)
	runtime.GC() // of what the enqueueing has left
	b.ReportAllocs()
	b.ResetTimer()
	require.NoError(b, server.Start(b.Context()))
	<-done.done
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
	require.NoError(b, server.Stop(b.Context()))
}

// A counter waits for a number of ends.
type counter struct {
	NopObserver
	left int64
	done chan struct{}
	seen atomic.Int64
}

func (c *counter) Ended(store.Job, store.Ending, store.State, time.Duration) {
	if c.seen.Add(1) == c.left {
		close(c.done)
	}
}

// BenchmarkBook measures the cost of the book itself: the claim, start, end and answer of a job, without a store and a handler.
func BenchmarkBook(b *testing.B) {
	o, err := Options{Slots: 100, Claim: ClaimOptions{Buffer: 900}}.withDefaults()
	require.NoError(b, err)
	h, now := newBook(o), time.Now()
	runs := make([]*Run, 1000)
	for i := range runs {
		runs[i] = newRun(b.Context(), store.Job{ID: int64(i), Token: 1, Queue: DefaultQueue}, time.Minute)
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, r := range runs {
			r.stage = buffered
		}
		for _, r := range h.add(runs, now.Add(time.Minute), now) {
			for ; r != nil; r = h.finish(r, verdict{op: ack}, now) {
			}
		}
		h.remove(h.takeBatch(nil, now))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(runs)), "ns/job")
}
