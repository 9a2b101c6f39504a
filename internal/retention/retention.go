// Package retention deletes finished jobs as the retention policies of their queues say. Servers do so regularly, and people
// with the command prune.
package retention

import (
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Batch is how many jobs one call deletes at most, so that it blocks nobody for long.
const Batch = 500

// A Pruning selects the jobs of one state that finished longer ago than Age, and that no job needs any more.
type Pruning struct {
	Queue string // empty for all queues
	State store.State
	Age   time.Duration
}

// filter finds the jobs with ids above after.
func (p Pruning) filter(after int64) store.Filter {
	return store.Filter{Queue: p.Queue, States: []store.State{p.State}, FinishedFor: p.Age, After: after, Unneeded: true}
}

// States are the states in which a job can be deleted, in the order of their deletion.
func States() []store.State { return []store.State{store.Succeeded, store.Cancelled, store.Dead} }

// prunings returns what the policies of the queues allow to delete. The queues are all queues that have a job, so a state for
// which all policies agree needs only one pruning.
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

// Calls are the calls that Run makes.
type Calls struct {
	// List returns all queues that have a job, with their policies. It returns none if the store keeps no policies.
	List func() ([]store.Queue, error)
	// Delete deletes one batch from the store. An error ends the run.
	Delete func(p Pruning, filter store.Filter, limit int) ([]store.Outcome, error)
}

// Run deletes in rounds, one batch for each pruning, until nothing is left. It lists the policies again before each round, so
// that after a policy changes, at most one batch follows the old one. Each batch begins after the last id of the one before it,
// because a database may still have to walk over deleted rows.
func Run(c Calls) error {
	var behind map[Pruning]int64 // the prunings that may have more, with the last deleted id; nil in the first round
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
