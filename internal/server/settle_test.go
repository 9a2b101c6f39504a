package server

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// leave lets a call leave so many jobs to Settle: it cancels a job that more need than a call settles.
func (w *world) leave(more int) {
	w.Helper()
	const elsewhere = "a queue without workers"
	root := w.enqueue(1, "any", func(n *store.NewJob) { n.Queue = elsewhere })[0]
	for left := store.SettledByCall + more; left > 0; left -= store.MaxItems {
		w.enqueue(min(left, store.MaxItems), "any", func(n *store.NewJob) { n.Queue, n.After = elsewhere, []store.Wait{{ID: root}} })
	}
	_, err := w.store.Cancel(w.Context(), store.Filter{IDs: []int64{root}}, 1)
	require.NoError(w, err)
	require.Equal(w, more, w.blocked(), "jobs that the call has left")
}

func (w *world) blocked() int {
	w.Helper()
	counts, err := w.store.Count(w.Context(), store.Filter{States: []store.State{store.Blocked}})
	require.NoError(w, err)
	return int(counts.Total())
}

// What a call leaves is settled within a second, whether the server has queues or not. Without wake-ups it waits for the next recovery.
func TestWhatACallLeavesIsSettledWithinASecond(t *testing.T) {
	for name, c := range map[string]struct {
		o    Options
		deaf bool
		want int
	}{
		"a worker":                  {Options{}, false, 0},
		"a server without queues":   {Options{Queues: map[string]QueueOptions{}}, false, 0},
		"a server without recovery": {Options{Recovery: RecoveryOptions{Interval: -1}}, false, 2500},
		"a store without wake-ups":  {Options{}, true, 2500},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				var on store.Store = w.store
				if c.deaf {
					on = struct{ store.Store }{w.store}
				}
				s := w.start(c.o, on)
				w.wait(time.Second) // the first recovery is over
				w.leave(2500)
				w.wait(time.Second)
				assert.Equal(w, c.want, w.blocked(), "jobs that are left after a second")
				w.wait(10 * time.Second)
				if c.o.Recovery.Interval == 0 {
					assert.Zero(w, w.blocked(), "jobs that are left after the next recovery")
				}
				w.stop(s)
			})
		})
	}
}

// Servers that are told at once do not settle at once, and none asks again and again where nothing changes.
func TestSettlersTakeTurns(t *testing.T) {
	inWorld(t, func(w *world) {
		const servers = 10
		g := w.gate()
		var all []*Server
		for range servers {
			all = append(all, w.start(Options{}, g))
		}
		w.wait(time.Second) // behind the first recoveries, and long before the next
		times := map[time.Time]int{}
		g.set(func() {
			g.before = func(_ context.Context, called string) error {
				if called == "settle" {
					g.set(func() { times[time.Now()]++ })
					return fmt.Errorf("nothing can be settled now: %w", errors.ErrUnsupported)
				}
				return nil
			}
		})
		before := g.count("settle")
		w.leave(10)
		w.wait(time.Second)
		assert.Equal(w, servers, g.count("settle")-before, "calls: one of each server")
		g.set(func() { assert.Greater(w, len(times), servers/2, "moments at which they were made") })
		g.back()
		w.wait(15 * time.Second)
		assert.Zero(w, w.blocked(), "jobs that are left after the next recovery")
		for _, s := range all {
			w.stop(s)
		}
	})
}

// partial is a store that answers with a part of what it was asked to settle.
type partial struct {
	store.Store
	store.Notifier
}

func (p partial) Settle(ctx context.Context, limit int) ([]store.Settled, error) {
	return p.Store.Settle(ctx, min(limit, 7))
}

// A store that settles fewer jobs than it may is asked again: an outage may have cut it short.
func TestSettlesOnAfterAPart(t *testing.T) {
	inWorld(t, func(w *world) {
		s := w.start(Options{}, partial{w.store, w.store})
		w.wait(time.Second) // the first recovery is over
		w.leave(50)
		w.wait(time.Second)
		assert.Zero(w, w.blocked(), "jobs that are left after a second")
		w.stop(s)
	})
}
