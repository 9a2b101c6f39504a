package server

import (
	"context"
	"reflect"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// A hundred thousand jobs go through one server and leave nothing behind: no run in its book and no goroutine. There are never more
// goroutines at once than a small multiple of the slots.
func TestManyJobsLeaveNothingBehind(t *testing.T) {
	const jobs, slots, buffer = 100_000, 50, 200
	inWorld(t, func(w *world) {
		var ran, most atomic.Int64
		w.handlers["none"] = func(context.Context, *Run) error {
			if ran.Add(1)%100 == 0 {
				most.Store(max(most.Load(), int64(runtime.NumGoroutine())))
			}
			return nil
		}
		counted := map[string]QueueOptions{DefaultQueue: {Slots: slots + buffer}} // a limit that does not bind
		s := w.start(Options{Slots: slots, Claim: ClaimOptions{Buffer: buffer}, Retention: RetentionOptions{Interval: -1}, Queues: counted})
		w.wait(time.Second)
		idle := runtime.NumGoroutine()
		require.NoError(w, w.store.SetPaused(w.Context(), DefaultQueue, true))
		for range jobs / 1000 {
			w.enqueue(1000, "none")
		}
		before := allocations()
		require.NoError(w, w.store.SetPaused(w.Context(), DefaultQueue, false))
		w.wait(time.Minute)
		each := float64(allocations()-before) / jobs
		require.Equal(w, int64(jobs), ran.Load())
		counts, err := w.store.Count(w.Context(), store.Filter{})
		require.NoError(w, err)
		assert.Equal(w, map[store.State]int64{store.Succeeded: jobs}, counts.Queues[0].Jobs)
		assert.Equal(w, Stats{Slots: slots}, s.Stats())
		assert.Empty(w, s.book.runs)
		assert.Equal(w, map[string]int{DefaultQueue: 0}, s.book.byQueue)
		assert.LessOrEqual(w, runtime.NumGoroutine(), idle)
		assert.Less(w, each, 9.0, "allocations of a job, those of the store included")
		assert.LessOrEqual(w, most.Load(), int64(idle+3*slots), "those that are just ending included")
		w.stop(s)
	})
}

// A run fits into the allocator's class of 896 bytes, including its header of 8 bytes.
func TestRunIsSmall(t *testing.T) {
	assert.LessOrEqual(t, reflect.TypeFor[Run]().Size(), uintptr(304))
}

func allocations() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// Handlers that end their goroutines, panic or are abandoned do not add slots: the bounds hold.
func TestSlotsStayBounded(t *testing.T) {
	inWorld(t, func(w *world) {
		var now, most atomic.Int64
		enter := func() { most.Store(max(most.Load(), now.Add(1))) }
		w.handlers["goexit"] = func(context.Context, *Run) error {
			enter()
			defer now.Add(-1)
			<-time.NewTimer(time.Second).C
			runtime.Goexit()
			return nil
		}
		w.handlers["panic"] = func(context.Context, *Run) error {
			enter()
			defer now.Add(-1)
			<-time.NewTimer(time.Second).C
			panic("ouch")
		}
		w.handlers["deaf"] = func(ctx context.Context, r *Run) error {
			enter()
			defer now.Add(-1)
			return deaf(time.Minute)(ctx, r)
		}
		once := func(n *store.NewJob) { n.MaxRetries, n.Timeout = 0, 5*time.Second }
		for range 20 {
			w.enqueue(1, "goexit", once)
			w.enqueue(1, "panic", once)
			w.enqueue(1, "deaf", once)
		}
		s := w.start(Options{Slots: 4, Claim: ClaimOptions{Buffer: 4}, Abandon: AbandonOptions{MaxHandlers: 3}})
		w.wait(time.Hour)
		assert.Equal(w, int64(4+3), most.Load())
		counts, err := w.store.Count(w.Context(), store.Filter{})
		require.NoError(w, err)
		assert.Equal(w, map[store.State]int64{store.Dead: 60}, counts.Queues[0].Jobs)
		assert.Equal(w, Stats{Slots: 4}, s.Stats())
		w.stop(s)
	})
}
