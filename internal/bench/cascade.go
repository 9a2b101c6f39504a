package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq"
)

// cascades measures how long the cancellation of a job takes that many others need: all of them this one, or each the one before. Other
// jobs are probed meanwhile, and before that beside the same jobs at rest.
func (r *run) cascades(ctx context.Context) (parts []Part, err error) {
	fan, chain := &cascade{run: r.beside(FanOut)}, &cascade{run: r.beside(Chained)}
	defer func() { err = errors.Join(err, fan.run.remove(ctx), chain.run.remove(ctx)) }()
	// The chain comes first: a list begins with the newest jobs, so the wait for the others would go through the whole chain at each look.
	if err := chain.link(ctx, max(1, r.o.Jobs/shallower)); err != nil {
		return nil, err
	}
	if err := fan.spread(ctx, r.o.Jobs); err != nil {
		return nil, err
	}
	p, err := r.beside("probe").probe(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.end(ctx)) }()
	rest, err := p.during(ctx, Rest, func() error { return sleep(ctx, r.o.Duration) })
	if err != nil {
		return nil, err
	}
	parts = []Part{{Rest, rest}}
	for i, c := range []*cascade{fan, chain} {
		name := []string{FanOut, Chained}[i]
		meanwhile, err := p.during(ctx, name, func() error { return c.cancel(ctx) })
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		figures, err := c.figures(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		parts = append(parts, Part{name, append(figures, meanwhile...)})
	}
	return parts, nil
}

// shallower is how many times as many jobs fan out as are in the chain.
const shallower = 10

// A cascade is a job and others that need it, itself or through others. It has a queue of its own, on which no server works.
type cascade struct {
	run    *run
	first  int64 // the job
	others int
	call   time.Duration // how long it took to cancel the job
}

// spread enqueues a job, and others that all need it.
func (c *cascade) spread(ctx context.Context, others int) error {
	first, err := c.run.client().Enqueue(ctx, c.run.payload, nil)
	if err != nil {
		return err
	}
	c.first, c.others = first.ID, others
	return c.run.fill(ctx, others, &jq.EnqueueOptions{After: []jq.Wait{{ID: first.ID}}})
}

// link enqueues a chain of jobs.
func (c *cascade) link(ctx context.Context, others int) error {
	var none atomic.Int64
	defer c.run.telling(ofJobs("enqueueing a chain", none.Load, 0))()
	chain := jq.Chain(c.run.items(1+others, nil)...)
	added, err := c.run.client().EnqueueFlow(ctx, chain, &jq.EnqueueManyOptions{RequestKey: c.run.queue})
	if err != nil {
		return err
	}
	c.first, c.others = added[0].ID, others
	return nil
}

// looked is how often to look for blocked jobs: seldom enough to cost little.
const looked = 100 * time.Millisecond

// cancel cancels the job, and waits until none of the others is blocked.
func (c *cascade) cancel(ctx context.Context) error {
	began := time.Now()
	if err := c.run.client().Cancel(ctx, c.first); err != nil {
		return err
	}
	c.call = time.Since(began)
	for {
		blocked, err := c.run.store.List(ctx, jq.Filter{Queue: c.run.queue, States: []jq.State{jq.Blocked}}, jq.Page{Limit: 1})
		switch {
		case err != nil:
			return err
		case len(blocked.Jobs) == 0:
			return nil
		case time.Since(began) >= c.run.o.patience:
			return fmt.Errorf("the run does not count: jobs are still blocked %v after the cancellation of one that they need", c.run.o.patience)
		}
		if err := sleep(ctx, looked); err != nil {
			return err
		}
	}
}

// figures verifies that all jobs are cancelled. It says how long that took, by the store's clock: at least as long as the call, which
// cancels some of them.
func (c *cascade) figures(ctx context.Context) ([]Figure, error) {
	first, err := c.run.store.Get(ctx, c.first)
	if err != nil {
		return nil, err
	}
	last, err := c.run.latest(ctx, jq.Filter{Queue: c.run.queue}, func(j jq.Job) time.Time { return j.FinishedAt })
	if err != nil {
		return nil, err
	}
	return []Figure{
		{"jobs", "", float64(c.others)},
		{"cancel", "ms", float64(c.call) / float64(time.Millisecond)},
		{Settled, "s", max(c.call, last.Sub(first.FinishedAt)).Seconds()},
	}, c.run.verify(ctx, map[jq.State]int64{jq.Cancelled: int64(c.others) + 1})
}
