package random

import (
	"context"
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-ed332417/jq/internal/store"
)

// A choice is a filter whose jobs are picked.
type choice struct {
	store.Filter
	named    []pick
	after    *pick
	waitsFor *pick
}

func (c choice) String() string {
	return when(len(c.named) > 0, "jobs %v ", c.named) + when(c.after != nil, "after %v ", c.after) + when(c.Queue != "", "queue %s ", c.Queue) +
		when(len(c.Queues) > 0, "queues %v ", c.Queues) + when(c.Kind != "", "kind %s ", c.Kind) + when(c.Tag != "", "tag %s ", c.Tag) +
		when(c.Worker != "", "worker %s ", c.Worker) + when(c.UniqueKey != "", "unique %s ", c.UniqueKey) +
		when(c.Group != "", "of group %s ", c.Group) + when(c.LimitKey != "", "limited by %s ", c.LimitKey) + when(len(c.States) > 0, "in %v ", c.States) + when(c.FinishedFor > 0, "finished for %v ", c.FinishedFor) +
		when(c.waitsFor != nil, "waiting for %v ", c.waitsFor) +
		when(c.WaitsForGroup != "", "waiting for group %s ", c.WaitsForGroup) + when(c.Unneeded, "unneeded ")
}

func (c choice) of(r *run) store.Filter {
	f := c.Filter
	for _, p := range c.named {
		f.IDs = append(f.IDs, r.job(p))
	}
	if c.after != nil {
		f.After = r.job(*c.after)
	}
	if c.waitsFor != nil {
		f.WaitsFor = r.job(*c.waitsFor)
	}
	return f
}

// drawNamed names one to four jobs, seldom with a further condition.
func drawNamed(t *rapid.T) choice {
	c := choice{named: several(t, drawJob, func(p *pick, before pick) { *p = before })}
	if rarely(t, 8) {
		c.Filter = drawCondition(t)
	}
	c.Unneeded = rarely(t, 8)
	return c
}

// drawMatching chooses jobs by one or two conditions.
func drawMatching(t *rapid.T) choice {
	c := choice{Filter: drawCondition(t)}
	if rarely(t, 3) {
		c.Queue = among(t, "a", "b")
	}
	if rarely(t, 3) {
		p := drawJob(t)
		c.after = &p
	}
	if rarely(t, 6) {
		p := drawJob(t)
		c.waitsFor = &p
	}
	if rarely(t, 6) {
		c.WaitsForGroup = drawGroup(t)
	}
	c.Unneeded = rarely(t, 6)
	return c
}

func drawCondition(t *rapid.T) store.Filter {
	switch among(t, "states", "age", "queue", "queues", "kind", "tag", "worker", "unique", "group", "limit key", "states", "none") {
	case "queue":
		return store.Filter{Queue: among(t, "a", "b")}
	case "queues":
		return store.Filter{Queues: among(t, []string{"a"}, []string{"b*", "c"}, []string{"*"}, []string{"c*"})}
	case "kind":
		return store.Filter{Kind: among(t, "k", "l")}
	case "tag":
		return store.Filter{Tag: among(t, "t", "u")}
	case "worker":
		return store.Filter{Worker: among(t, "w", "v")}
	case "unique":
		return store.Filter{UniqueKey: among(t, "x", "y")}
	case "limit key":
		return store.Filter{LimitKey: among(t, "u", "uv")}
	case "group":
		return store.Filter{Group: drawGroup(t)}
	case "states":
		state := func(t *rapid.T) store.State { // as filters know it
			return among(t, store.Dead, store.Retrying, store.Failed, store.Ready, store.InFlight, store.Succeeded, store.Cancelled)
		}
		return store.Filter{States: several(t, state, func(*store.State, store.State) {})}
	case "age":
		return store.Filter{FinishedFor: among(t, time.Microsecond, time.Second, 1500*time.Nanosecond, time.Hour)}
	default:
		return store.Filter{}
	}
}

func cancel(t *rapid.T) op  { return operation(t, store.OpCancel, store.Store.Cancel) }
func requeue(t *rapid.T) op { return operation(t, store.OpRequeue, store.Store.Requeue) }
func remove(t *rapid.T) op  { return operation(t, store.OpDelete, store.Store.Delete) }

// reschedule makes jobs due now, at a time that is past or still to come, or at one that no job can have.
func reschedule(t *rapid.T) op {
	wait := among(t, time.Second, 0, 1500*time.Nanosecond, -time.Second, time.Minute, time.Hour)
	now, never := rapid.Bool().Draw(t, ""), rarely(t, 8)
	what := when(now, "now ") + when(!now && !never, "in %v ", wait) + when(!now && never, "after all time ")
	return onJobs(t, store.OpReschedule, what, func(r *run, s store.Store, filter store.Filter, limit int) ([]store.Outcome, error) {
		at := r.clk.Now().Add(wait)
		switch {
		case now:
			at = time.Time{}
		case never:
			at = store.MaxTime
		}
		return s.Reschedule(r.ctx, filter, at, limit)
	})
}

// operation cancels, requeues or deletes.
func operation(
	t *rapid.T, name store.Op, do func(store.Store, context.Context, store.Filter, int) ([]store.Outcome, error),
) op {
	return onJobs(t, name, "", func(r *run, s store.Store, filter store.Filter, limit int) ([]store.Outcome, error) {
		return do(s, r.ctx, filter, limit)
	})
}

// onJobs changes jobs: mostly some that are named, since conditions meet few phases.
func onJobs(
	t *rapid.T, name store.Op, how string, do func(*run, store.Store, store.Filter, int) ([]store.Outcome, error),
) op {
	c := choice{}
	if rarely(t, 4) {
		c = drawMatching(t)
	} else {
		c = drawNamed(t)
	}
	limit := rapid.IntRange(1, 3).Draw(t, "")
	return op{fmt.Sprintf("%s %s%vat most %d", name, how, c, limit), func(r *run) error {
		filter := c.of(r)
		what := fmt.Sprintf("%s %v", name, filter.IDs)
		return r.outcomes(what, func(int) store.Op { return name }, func(s store.Store) ([]store.Outcome, error) {
			return do(r, s, filter, limit)
		})
	}}
}

// look lists jobs in small pages and counts them.
func look(t *rapid.T) op {
	c := drawMatching(t)
	if rarely(t, 4) {
		c = drawNamed(t)
	}
	size := rapid.IntRange(1, 4).Draw(t, "")
	return op{fmt.Sprintf("list and count %vby %d", c, size), func(r *run) error {
		filter := c.of(r)
		jobs, err := both(r, "List", func(s store.Store) ([]store.Job, error) { return r.list(s, filter, size) })
		if err != nil {
			return err
		}
		r.note("%d jobs", len(jobs))
		foreign := store.Filter{Worker: "nobody"}.Cursor(1)
		_, err = both(r, "List with the cursor of another filter", func(s store.Store) (store.JobPage, error) {
			return s.List(r.ctx, filter, store.Page{Limit: size, Cursor: foreign})
		})
		if err != nil {
			return err
		}
		_, err = both(r, "Count", func(s store.Store) (store.Counts, error) { return s.Count(r.ctx, filter) })
		return err
	}}
}
