package bench

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/seed-ed332417/jq"
)

// remove deletes the jobs of the run, even if its context has ended.
func (r *run) remove(ctx context.Context) error {
	if r.o.Keep {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	var done atomic.Int64
	defer r.telling(ofJobs("deleting the jobs", done.Load, 0))()
	after := r.ids.before()
	live := jq.Filter{Queue: r.queue, After: after, States: []jq.State{jq.Blocked, jq.Ready, jq.InFlight, jq.Retrying}}
	err := each(ctx, r.store.Cancel, live, &done)
	if err == nil {
		err = each(ctx, r.store.Delete, jq.Filter{Queue: r.queue, After: after}, &done)
	}
	if err != nil {
		return fmt.Errorf("jobs are left in the queue %s, remove them with jobs cancel and jobs rm: %w", r.queue, err)
	}
	return nil
}

// each repeats a call on a filter until nothing is left to change, and counts the changes.
func each(ctx context.Context, call func(context.Context, jq.Filter, int) ([]jq.Outcome, error), filter jq.Filter, done *atomic.Int64) error {
	for {
		outcomes, err := call(ctx, filter, portion)
		if err != nil {
			return err
		}
		done.Add(int64(len(outcomes)))
		if len(outcomes) < portion {
			return nil
		}
		filter.After = outcomes[portion-1].ID
	}
}

// portion is how many jobs one call lists or deletes.
const portion = 1000

// ids records where the ids of a run begin, so that calls skip the dead rows of earlier runs.
type ids struct {
	mu    sync.Mutex // guards the fields below
	first int64      // or 0
	doubt bool       // a call has failed, but may have added jobs
}

// note is middleware.
func (i *ids) note(next jq.EnqueueFunc) jq.EnqueueFunc {
	return func(ctx context.Context, req jq.EnqueueRequest) ([]jq.Enqueued, error) {
		added, err := next(ctx, req)
		i.add(added, err)
		return added, err
	}
}

// add records the answer of a call.
func (i *ids) add(added []jq.Enqueued, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err != nil {
		i.doubt = true
	}
	for _, a := range added {
		if i.first == 0 || a.ID < i.first {
			i.first = a.ID
		}
	}
}

// before returns an id that is smaller than all of the run's.
func (i *ids) before() int64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.doubt:
		return 0
	case i.first == 0: // there are none
		return math.MaxInt64
	}
	return i.first - 1
}
