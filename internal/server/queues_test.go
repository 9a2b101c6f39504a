package server

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// A server with more work than slots gives two queues their shares, 3 to 1 over 1,000 jobs, with a buffer too.
func TestServerSharesItsSlotsByWeight(t *testing.T) {
	for _, o := range []Options{{Slots: 1}, {Slots: 10}, {Slots: 10, Claim: ClaimOptions{Buffer: 20}}} {
		inWorld(t, func(w *world) {
			for _, queue := range []string{"a", "b"} {
				w.enqueue(1000, "job", func(j *store.NewJob) { j.Queue = queue })
			}
			var mu sync.Mutex // guards ran
			ran := map[string]int{}
			w.handlers["job"] = func(ctx context.Context, r *Run) error {
				mu.Lock()
				if ran["a"]+ran["b"] < 1000 {
					ran[r.Queue]++
				}
				mu.Unlock()
				return travel(ctx, 10*time.Millisecond)
			}
			o.Queues = map[string]QueueOptions{"a": {Weight: 3}, "b": {Weight: 1}}
			s := w.start(o)
			w.wait(time.Minute)
			assert.InDelta(w, 750, ran["a"], 20, "slots %d, buffer %d", o.Slots, o.Claim.Buffer)
			assert.Equal(w, 1000, ran["a"]+ran["b"])
			w.stop(s)
		})
	}
}

// A queue with its own slots never holds more jobs than that, including buffered ones, and leaves the other slots to queues without.
// R51.
func TestServerKeepsToTheSlotsOfAQueue(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, queue := range []string{"few", "many"} {
			w.enqueue(200, "job", func(j *store.NewJob) { j.Queue = queue })
		}
		w.handlers["job"] = func(ctx context.Context, _ *Run) error { return travel(ctx, time.Second) }
		s := w.start(Options{Slots: 6, Claim: ClaimOptions{Buffer: 6}, Queues: map[string]QueueOptions{"few": {Slots: 3, Weight: 9}, "many": {}}})
		w.wait(250 * time.Millisecond) // between the ends of jobs, of which some are not written yet
		for range 60 {
			w.wait(500 * time.Millisecond)
			counts, err := w.store.Count(w.Context(), store.Filter{States: []store.State{store.InFlight}})
			require.NoError(w, err)
			held := map[string]int64{}
			for _, q := range counts.Queues {
				held[q.Queue] = q.Jobs[store.InFlight]
			}
			require.Equal(w, map[string]int64{"few": 3, "many": 9}, held)
		}
		w.stop(s)
	})
}

// While a queue is paused, none of its jobs is claimed, and its buffered jobs are released within a heartbeat interval, which counts no
// attempt. Running jobs continue to their end, and so do other queues. A resumed queue continues at once: R6, R59.
func TestPausedQueue(t *testing.T) {
	for _, able := range []bool{true, false} {
		inWorld(t, func(w *world) {
			var b begun
			w.handlers["job"] = b.handler(20 * time.Second)
			held := w.enqueue(20, "job", func(j *store.NewJob) { j.Queue = "held" })
			h := w.hook()
			var on store.Store = h
			if !able {
				on = struct {
					store.Store
					store.QueueKeeper
				}{h, h}
			}
			s := w.start(Options{Slots: 4, Claim: ClaimOptions{Buffer: 8}, Queues: map[string]QueueOptions{"held": {}, "open": {}}}, on)
			w.wait(time.Second)
			require.Equal(w, Stats{Slots: 4, Running: 4, Buffered: 8}, s.Stats())
			require.NoError(w, w.store.SetPaused(w.Context(), "held", true))
			w.wait(DefaultLease / 3)
			assert.Equal(w, Stats{Slots: 4, Running: 4}, s.Stats(), "given back within a beat")
			open := w.enqueue(3, "job", func(j *store.NewJob) { j.Queue = "open" })
			w.wait(time.Hour)
			states := map[store.State]int{}
			for _, id := range held {
				j := w.job(id)
				states[j.State]++
				assert.Equal(w, map[store.State]int{store.Succeeded: 1, store.Ready: 0}[j.State], j.Attempts)
			}
			assert.Equal(w, map[store.State]int{store.Succeeded: 4, store.Ready: 16}, states)
			for _, id := range open {
				assert.Equal(w, store.Succeeded, w.job(id).State)
			}
			require.NoError(w, w.store.SetPaused(w.Context(), "held", false))
			w.wait(DefaultPollInterval)
			assert.Equal(w, Stats{Slots: 4, Running: 4, Buffered: 8}, s.Stats(), "it goes on")
			w.wait(time.Hour)
			for _, id := range held {
				assert.Equal(w, store.Succeeded, w.job(id).State)
			}
			assert.Equal(w, len(held)+len(open), b.all())
			w.stop(s)
		})
	}
}
