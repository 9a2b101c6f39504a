package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq"
)

// Parts of the workload fairness.
const (
	NoFlood = "no-flood" // all tenants but one, on a fair queue
	Fair    = "fair"     // and one more, who floods it
	Plain   = "plain"    // the same on a queue whose keys take no turns
)

// P95ToAllowed is how long 95 % of the jobs wait on a fair queue with a flood, beside what is allowed: twice as long as without the flood, and the
// time of a handler more.
const P95ToAllowed = "p95 to allowed"

// What the workload fairness is about. Other packages measure the same.
const (
	Tenants     = 50                    // with the one who floods
	HandlerTime = 50 * time.Millisecond // of a job, on average
	FloodRatio  = 9                     // jobs of the flood to all others
)

// SteadyRate is how many jobs a second all tenants but one enqueue: half of what so many handlers can do.
func SteadyRate(handlers int) float64 { return float64(handlers) / HandlerTime.Seconds() / 2 }

// SteadyJobs is how many jobs they enqueue.
func SteadyJobs(handlers int, d time.Duration) int {
	return max(1, int(SteadyRate(handlers)*d.Seconds()))
}

// Work takes as long as the handler of a job does, by its number: half of the average to one and a half. Handlers that all take the same time end
// together, and jobs wait for that.
func Work(ctx context.Context, number int64) error {
	return sleep(ctx, HandlerTime/2+HandlerTime*time.Duration(number*7919%101)/100)
}

// AllowedWait is how long 95 % of their jobs may wait beside a flood, in milliseconds, if it is so long without one.
func AllowedWait(p95 float64) float64 {
	return 2*p95 + float64(HandlerTime)/float64(time.Millisecond)
}

// flooder is the limit key of the flood.
const flooder = "flooder"

// sharing measures how long jobs wait without a flood, with it on a fair queue, and with it on a plain queue.
func sharing(ctx context.Context, r *run) ([]Part, error) {
	r.o.Rate = SteadyRate(r.o.Concurrency)
	var parts []Part
	for _, p := range []flooding{
		{name: NoFlood, policy: jq.Policy{Fair: true}},
		{name: Fair, policy: jq.Policy{Fair: true}, ratio: FloodRatio},
		{name: Plain, ratio: FloodRatio},
	} {
		figures, err := r.beside(p.name).flooded(ctx, p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		parts = append(parts, Part{p.name, figures})
	}
	return besideAllowed(parts), nil
}

// besideAllowed adds to the part with a flood on a fair queue how long jobs wait beside what is allowed.
func besideAllowed(parts []Part) []Part {
	calm, _ := parts[0].Figure(P95)
	fair, _ := parts[1].Figure(P95)
	parts[1].Figures = append(parts[1].Figures, Figure{P95ToAllowed, "%", 100 * fair.Value / AllowedWait(calm.Value)})
	return parts
}

// A flooding is one part.
type flooding struct {
	name   string
	policy jq.Policy
	ratio  int // jobs of the flood to all others
}

// flooded enqueues the flood, if there is one, starts a worker, and enqueues the jobs of the others one by one. It ends when all of these have
// succeeded. The first tenth of them opens connections, and is left out.
func (r *run) flooded(ctx context.Context, p flooding) (figures []Figure, err error) {
	defer func() { err = errors.Join(err, r.lift(ctx, p.policy), r.remove(ctx)) }()
	if err := r.limit(ctx, p.policy); err != nil {
		return nil, err
	}
	steady := SteadyJobs(r.o.Concurrency, r.o.Duration)
	flood := p.ratio * steady
	if err := r.fill(ctx, flood, &jq.EnqueueOptions{LimitKey: flooder}); err != nil {
		return nil, err
	}
	t := newTurns(steady)
	w, err := r.work(t.handle, t.tally)
	if err != nil {
		return nil, err
	}
	if figures, err = r.behindFlood(ctx, w, t); err != nil {
		return nil, errors.Join(err, w.stop(ctx))
	}
	if err := w.stop(ctx); err != nil {
		return nil, err
	}
	done := t.seen()
	return figures, errors.Join(
		r.verify(ctx, map[jq.State]int64{jq.Succeeded: done, jq.Ready: int64(steady+flood) - done}),
		t.fair(p, r.o.Concurrency+max(0, r.o.Buffer)), r.stillLimited(ctx, p.policy))
}

// behindFlood measures the jobs of the others.
func (r *run) behindFlood(ctx context.Context, w *worker, t *turns) ([]Figure, error) {
	if err := w.server.Start(ctx); err != nil {
		return nil, err
	}
	m, err := r.measure(ctx, t.seen, ofJobs("enqueueing at a fixed rate", t.succeeded.Load, int64(len(t.left))))
	if err != nil {
		return nil, err
	}
	defer m.halt()
	if err := r.send(ctx, ctx, t.journeys); err != nil {
		return nil, err
	}
	if err := w.await(ctx, int64(len(t.left))); err != nil {
		return nil, err
	}
	costs, err := m.stop(ctx)
	if err != nil {
		return nil, err
	}
	first := len(t.left) / 10
	return slices.Concat(t.figures(first), t.passed(first), costs), nil
}

// turns are the journeys of the jobs of all tenants but the flooder, and how many of the flooder's jobs have passed each.
type turns struct {
	*journeys
	*tally
	begun         atomic.Int64   // jobs of the flood
	before, since []atomic.Int64 // how many had begun when the job was in the store, and when it began itself
}

func newTurns(jobs int) *turns {
	t := &turns{journeys: newJourneys(jobs), tally: newTally(), before: make([]atomic.Int64, jobs), since: make([]atomic.Int64, jobs)}
	t.counts = func(job jq.Job) bool { return job.LimitKey() != flooder }
	t.options = func(i int) *jq.EnqueueOptions {
		return &jq.EnqueueOptions{LimitKey: fmt.Sprint("tenant-", i%(Tenants-1))}
	}
	t.stored = func(i int) { t.before[i].Store(t.begun.Load()) }
	return t
}

// handle is the handler of all tenants.
func (t *turns) handle(ctx context.Context, run *jq.Run) error {
	if run.Job.LimitKey() == flooder {
		t.begun.Add(1)
	} else {
		t.arrive(run.Job)
		var payload struct{ Number int }
		if err := json.Unmarshal(run.Job.Payload, &payload); err == nil && payload.Number < len(t.since) {
			t.since[payload.Number].CompareAndSwap(0, t.begun.Load())
		}
	}
	return Work(ctx, run.Job.ID)
}

// passing returns how many jobs of the flood have begun while a job waited, sorted. Jobs that began before the answer to their enqueue call waited for none.
func (t *turns) passing(first int) []int64 {
	var all []int64
	for i := first; i < len(t.before); i++ {
		all = append(all, max(0, t.since[i].Load()-t.before[i].Load()))
	}
	slices.Sort(all)
	return all
}

// passed returns the figures of that.
func (t *turns) passed(first int) []Figure {
	all := t.passing(first)
	return []Figure{{"flood jobs before p50", "", float64(percentile(all, 0.5))}, {"flood jobs before p95", "", float64(percentile(all, 0.95))}}
}

// fair checks that the keys of a fair queue have taken turns. A job waits for one job of the flood in its round, and for those that have their slots already. Some
// jobs may wait for more: a store may find new keys a little later.
func (t *turns) fair(p flooding, slots int) error {
	all := t.passing(0)
	if middle := percentile(all, 0.5); p.policy.Fair && middle > int64(2*slots) {
		return fmt.Errorf("the run does not count: keys take no turns: half of the jobs have waited for %d jobs of another key or more, with %d slots", middle, slots)
	}
	return nil
}
