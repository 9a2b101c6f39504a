package conformance_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"

	"github.com/seed-ed332417/jq/internal/conformance"
	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
)

// The model wakes nobody, so wake-ups are broken in the store in memory.

// A mumbling store changes its wake-ups, or loses them.
type mumbling struct {
	*memory.Store
	searched atomic.Bool // the latest Cancel had no ids
	alter    func(m *mumbling, w *store.Wakeup) (lost bool)
}

func (m *mumbling) Cancel(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	m.searched.Store(len(filter.IDs) == 0)
	return m.Store.Cancel(ctx, filter, limit)
}

func (m *mumbling) Subscribe(ctx context.Context, queues []string) (<-chan store.Wakeup, error) {
	in, err := m.Store.Subscribe(ctx, queues)
	if err != nil {
		return nil, err
	}
	out := make(chan store.Wakeup, 64)
	go func() {
		defer close(out)
		for w := range in {
			if m.alter(m, &w) {
				continue
			}
			select {
			case out <- w:
			default:
			}
		}
	}()
	return out, nil
}

const unbroken = "nothing is broken"

var notifyMutants = map[string]func(m *mumbling, w *store.Wakeup) (lost bool){
	unbroken:                          func(*mumbling, *store.Wakeup) bool { return false },
	"nobody is told of cancellations": func(_ *mumbling, w *store.Wakeup) bool { return w.Cancelled },
	"nobody is told of cancellations without ids": func(m *mumbling, w *store.Wakeup) bool {
		return w.Cancelled && m.searched.Load()
	},
	"one queue of a Cancel is forgotten": func(_ *mumbling, w *store.Wakeup) bool { return w.Cancelled && w.Queue == "b" },
	"what is cancelled looks claimable": func(_ *mumbling, w *store.Wakeup) bool {
		w.Cancelled = false
		return false
	},
	"what is claimable looks cancelled": func(_ *mumbling, w *store.Wakeup) bool {
		w.Cancelled = true
		return false
	},
}

// Each of them must be failed by a case that is about wake-ups, and the store that they are made of by none.
func TestMumblingNotifiersAreKilled(t *testing.T) {
	if race.Enabled {
		t.Skip("broken stores are left to the pass without the race detector: what is looked for in them is no race")
	}
	about := []string{"Notify/FollowsTheCancellationOfJobsInFlight", "Notify/FollowsEachCommitThatMakesAJobClaimable"}
	for what, alter := range notifyMutants {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			adapter := conformance.Adapter{New: func(_ context.Context, clk clock.Clock) (*conformance.Instance, error) {
				return &conformance.Instance{Store: &mumbling{Store: memory.New(memory.Options{Clock: clk}), alter: alter}}, nil
			}}
			killed := slices.ContainsFunc(conformance.Cases(), func(k conformance.Case) bool {
				if !slices.Contains(about, k.Name) {
					return false
				}
				result := conformance.Run(t.Context(), adapter, k)
				assert.False(t, result.Hung, "%s hangs: %s", k.Name, strings.Join(result.Log, "\n"))
				return result.Failed
			})
			assert.Equal(t, what != unbroken, killed, "a case notices")
		})
	}
}
