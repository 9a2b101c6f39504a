package retention

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

const day = 24 * time.Hour

var byDefault = []Pruning{{"", store.Succeeded, day}, {"", store.Cancelled, 7 * day}}

func TestPrunings(t *testing.T) {
	assert.Equal(t, byDefault, prunings(nil), "of a store that can not say which queues it has")
	assert.Equal(t, byDefault, prunings([]store.Queue{
		{Name: "a"}, {Name: "b", Paused: true, Policy: store.Policy{Version: 4}}, {Name: "c", Policy: store.Policy{RetainSucceeded: day}},
	}), "of queues that agree, in one call a state")
	assert.Equal(t, []Pruning{{"", store.Cancelled, 7 * day}, {"", store.Dead, time.Hour}}, prunings([]store.Queue{
		{Name: "a", Policy: store.Policy{RetainSucceeded: store.KeepForEver, RetainDead: time.Hour}},
		{Name: "b", Policy: store.Policy{RetainSucceeded: store.KeepForEver, RetainDead: time.Hour}},
	}), "of queues that agree on something else than the default")

	mixed := prunings([]store.Queue{
		{Name: "a"},
		{Name: "b", Policy: store.Policy{RetainSucceeded: 7 * day}},
		{Name: "c", Policy: store.Policy{RetainSucceeded: store.KeepForEver, RetainDead: 30 * day}},
	})
	assert.Equal(t, []Pruning{
		{"a", store.Succeeded, day}, {"b", store.Succeeded, 7 * day}, {"", store.Cancelled, 7 * day}, {"c", store.Dead, 30 * day},
	}, mixed)
	for _, p := range mixed {
		require.NoError(t, p.filter(0).CheckBulk(Batch))
	}
	assert.Equal(t, store.Filter{Queue: "b", States: []store.State{store.Succeeded}, FinishedFor: 7 * day, After: 3, Unneeded: true}, mixed[1].filter(3))
}

// A fake store has so many jobs to be deleted by each pruning, with ids from 1 on.
type fake struct {
	left    map[Pruning]int
	queues  func(round int) []store.Queue
	rounds  int
	calls   []Pruning
	deleted map[Pruning]int
	err     error
}

func (f *fake) run() error {
	f.deleted = map[Pruning]int{}
	return Run(Calls{
		List: func() ([]store.Queue, error) {
			f.rounds++
			if f.queues == nil {
				return nil, nil
			}
			return f.queues(f.rounds), nil
		},
		Delete: func(p Pruning, filter store.Filter, limit int) ([]store.Outcome, error) {
			f.calls = append(f.calls, p)
			if f.err != nil {
				return nil, f.err
			}
			if filter.After != int64(f.deleted[p]) {
				return nil, errors.New("a batch did not go on behind the one before")
			}
			outcomes := make([]store.Outcome, min(limit, f.left[p]))
			f.left[p] -= len(outcomes)
			f.deleted[p] += len(outcomes)
			for i := range outcomes {
				outcomes[i].ID = filter.After + int64(i) + 1
			}
			return outcomes, nil
		},
	})
}

// Rounds go on for those that have more, and for nobody else.
func TestRunGoesOnUntilNothingIsLeft(t *testing.T) {
	f := &fake{left: map[Pruning]int{byDefault[0]: 2*Batch + 1, byDefault[1]: 3}}
	require.NoError(t, f.run())
	assert.Equal(t, map[Pruning]int{byDefault[0]: 2*Batch + 1, byDefault[1]: 3}, f.deleted)
	assert.Equal(t, []Pruning{byDefault[0], byDefault[1], byDefault[0], byDefault[0]}, f.calls)
	assert.Equal(t, 3, f.rounds, "the policies are read anew before each round")
}

// A policy that is set while a run is under way stops it: at most a batch was deleted by the one before.
func TestRunHeedsPolicyThatIsSetMeanwhile(t *testing.T) {
	f := &fake{left: map[Pruning]int{byDefault[0]: 10 * Batch}}
	f.queues = func(round int) []store.Queue {
		if round == 1 {
			return []store.Queue{{Name: "a"}, {Name: "b"}}
		}
		return []store.Queue{{Name: "a", Policy: store.Policy{RetainSucceeded: store.KeepForEver, Version: 1}}, {Name: "b"}}
	}
	require.NoError(t, f.run())
	assert.Equal(t, Batch, f.deleted[byDefault[0]])
	assert.Len(t, f.calls, 2, "what is left of b comes with the next run")
}

func TestRunEndsWithAnError(t *testing.T) {
	f := &fake{err: errors.New("disk on fire")}
	require.ErrorIs(t, f.run(), f.err)
	assert.Len(t, f.calls, 1)
}
