package server

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// Results are written when there are enough of them, whatever their age: R37.
func TestResultsAreFlushedBySize(t *testing.T) {
	inWorld(t, func(w *world) {
		g := w.gate()
		w.handlers["long"], w.handlers["quick"] = work(time.Hour), work(time.Second)
		s := w.start(Options{Slots: 100, CommitSize: 10, CommitAfter: time.Hour}, g)
		w.enqueue(1, "long")
		ids := w.enqueue(10, "quick")
		w.wait(2 * time.Second)
		for _, id := range ids {
			assert.Equal(w, dawn.Add(time.Second), w.job(id).FinishedAt)
		}
		assert.Equal(w, 1, g.count("ack"))
		w.stop(s)
	})
}

// Fewer results than that are written when the first of them has waited for so long: R37.
func TestResultsAreFlushedByAge(t *testing.T) {
	inWorld(t, func(w *world) {
		g := w.gate()
		w.handlers["long"], w.handlers["quick"] = work(time.Hour), work(time.Second)
		s := w.start(Options{Slots: 100, CommitAfter: 3 * time.Second}, g)
		w.enqueue(1, "long")
		first := w.enqueue(1, "quick")[0]
		w.wait(2 * time.Second)
		second := w.enqueue(1, "quick")[0]
		w.wait(5 * time.Second)
		for _, id := range []int64{first, second} {
			assert.Equal(w, dawn.Add(4*time.Second), w.job(id).FinishedAt)
		}
		assert.Equal(w, 1, g.count("ack"))
		w.stop(s)
	})
}

// A lone job is finished at once: nothing could join it. R37.
func TestLoneResultIsWrittenAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["quick"] = work(time.Second)
		s := w.start(Options{CommitAfter: time.Hour})
		id := w.enqueue(1, "quick")[0]
		w.wait(2 * time.Second)
		assert.Equal(w, dawn.Add(time.Second), w.job(id).FinishedAt)
		w.stop(s)
	})
}

// While results can not be written, no more than MaxUncommitted pile up beside what runs; then everything goes on, and every
// job has run once: R37.
func TestFetchingStopsBeforeMemoryGrows(t *testing.T) {
	inWorld(t, func(w *world) {
		g := w.gate()
		var mu sync.Mutex // guards ran
		ran := map[int64]int{}
		w.handlers["quick"] = func(_ context.Context, r *Run) error {
			mu.Lock()
			defer mu.Unlock()
			ran[r.ID]++
			return nil
		}
		w.enqueue(500, "quick")
		g.set(func() {
			g.ack = func(context.Context, []store.Ack) ([]store.Outcome, error) { return nil, store.ErrUnavailable }
		})
		s := w.start(Options{Slots: 5, Buffer: 5, MaxUncommitted: 40}, g)
		w.wait(10 * time.Minute)
		assert.GreaterOrEqual(w, len(ran), 40)
		assert.LessOrEqual(w, len(ran), 50)
		assert.Equal(w, len(ran), s.Stats().Uncommitted)
		require.ErrorContains(w, s.Ready(), "results")
		fetched := g.count("claim")
		w.wait(time.Minute)
		assert.Equal(w, fetched, g.count("claim"))

		g.set(func() { g.ack = nil })
		w.wait(time.Minute)
		assert.NoError(w, s.Ready())
		counts, err := w.store.Count(w.Context(), store.Filter{})
		require.NoError(w, err)
		assert.Equal(w, map[store.State]int64{store.Succeeded: 500}, counts.Queues[0].Jobs)
		for id, n := range ran {
			require.Equal(w, 1, n, "job %d", id)
		}
		w.stop(s)
	})
}

// While the store is away, results wait for it and their leases run out; once it is back they are accepted, because nobody
// has recovered the jobs. The store is not asked without pause. R38.
func TestResultsWaitForTheStore(t *testing.T) {
	inWorld(t, func(w *world) {
		g := w.gate()
		w.handlers["quick"] = work(time.Second)
		ids := w.enqueue(5, "quick")
		s := w.start(Options{}, g)
		g.away()
		w.wait(10 * time.Minute)
		assert.Less(w, g.count("ack"), 100)
		assert.Equal(w, 5, s.Stats().Uncommitted)
		g.back()
		w.wait(time.Minute)
		for _, id := range ids {
			j := w.job(id)
			assert.Equal(w, store.Succeeded, j.State)
			assert.Len(w, j.History, 1)
		}
		assert.Equal(w, Stats{Slots: DefaultSlots}, s.Stats())
		w.stop(s)
	})
}

// An answer that was lost is asked for again; nothing is counted twice, and nobody is warned of a stale write: R38, R27.
func TestWritesInDoubtAreRepeated(t *testing.T) {
	for _, lost := range []int{1, 2, 1000} {
		inWorld(t, func(w *world) {
			g := w.gate()
			g.ack = func(ctx context.Context, acks []store.Ack) ([]store.Outcome, error) {
				outcomes, err := g.Store.Ack(ctx, acks)
				return outcomes, lose(err, g.count("ack") <= lost)
			}
			g.nack = func(ctx context.Context, nacks []store.NAck) ([]store.Outcome, error) {
				outcomes, err := g.Store.NAck(ctx, nacks)
				return outcomes, lose(err, g.count("nack") <= lost)
			}
			w.handlers["quick"] = work(time.Second)
			w.handlers["fail"] = func(context.Context, *Run) error { return errors.New("no luck") }
			w.handlers["later"] = func(context.Context, *Run) error { return &Wish{Form: store.Snooze, Delay: time.Hour} }
			heard := &ends{}
			quick := w.enqueue(3, "quick")
			failed := w.enqueue(1, "fail", func(n *store.NewJob) { n.Backoff.Base = time.Hour })[0]
			later := w.enqueue(1, "later")[0]
			s := w.start(Options{Observer: heard}, g)
			w.wait(5 * time.Minute)
			for _, id := range quick {
				assert.Equal(w, store.Succeeded, w.job(id).State)
			}
			assert.Equal(w, 1, w.job(failed).Retries)
			assert.Equal(w, store.Ready, w.job(later).State)
			assert.Len(w, heard.all, 5)
			assert.Empty(w, w.said("jq: stale write refused"))
			assert.Equal(w, Stats{Slots: DefaultSlots}, s.Stats())
			w.stop(s)
		})
	}
}

func lose(err error, lost bool) error {
	if lost {
		return errors.Join(store.ErrInDoubt, err)
	}
	return err
}
