// Package retention deletes the finished jobs that the policies of their queues keep no longer. Servers do so again and again,
// and people by the command prune.
package retention

import (
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Batch is how many jobs one call deletes at most, so that it holds up nobody.
const Batch = 500

// A Pruning is jobs of one state that finished so long ago that they are kept no longer.
type Pruning struct {
	Queue string // empty for all queues
	State store.State
	Age   time.Duration
}

// filter finds the jobs behind an id.
func (p Pruning) filter(after int64) store.Filter {
	return store.Filter{Queue: p.Queue, States: []store.State{p.State}, FinishedFor: p.Age, After: after}
}

// States are those in which a job can be let go, in the order in which they are.
func States() []store.State { return []store.State{store.Succeeded, store.Cancelled, store.Dead} }

// prunings are what the policies of the queues keep no longer, where these are all queues that have a job. A state for which
// all of them agree needs one pruning, however many queues there are.
func prunings(queues []store.Queue) []Pruning {
	if len(queues) == 0 {
		queues = []store.Queue{{}}
	}
	var all []Pruning
	for _, state := range States() {
		first := queues[0].Policy.Retention(state)
		each := queues
		if !slices.ContainsFunc(queues, func(q store.Queue) bool { return q.Policy.Retention(state) != first }) {
			each = []store.Queue{{Policy: queues[0].Policy}}
		}
		for _, q := range each {
			if age := q.Policy.Retention(state); age != store.KeepForEver {
				all = append(all, Pruning{Queue: q.Name, State: state, Age: age})
			}
		}
	}
	return all
}

// Calls are what a run needs of a store.
type Calls struct {
	// List returns all queues that have a job, with their policies; none where the store can not tell, and keeps no policies.
	List func() ([]store.Queue, error)
	// Delete is that of the store, for one batch. An error ends the run.
	Delete func(p Pruning, filter store.Filter, limit int) ([]store.Outcome, error)
}

// Run deletes in rounds, in each of them a batch of what each queue keeps no longer, until nothing is left. It lists the
// policies anew before each round: once one was set, no more than a batch is deleted by the policy before. Each batch goes on
// behind the one before it, for a database may still have to walk over what was deleted.
func Run(c Calls) error {
	var behind map[Pruning]int64 // those that may have more, with the last id that was deleted; nil in the first round
	for behind == nil || len(behind) > 0 {
		queues, err := c.List()
		if err != nil {
			return err
		}
		full := map[Pruning]int64{}
		for _, p := range prunings(queues) {
			after, more := behind[p]
			if behind != nil && !more {
				continue
			}
			outcomes, err := c.Delete(p, p.filter(after), Batch)
			if err != nil {
				return err
			}
			if n := len(outcomes); n == Batch {
				full[p] = outcomes[n-1].ID
			}
		}
		behind = full
	}
	return nil
}
