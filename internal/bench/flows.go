package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ed332417/jq"
)

// Parts of the workload flows.
const (
	Single  = "single"
	Batched = "batch"
	Waiters = "waiters"
	Rest    = "rest"
	FanOut  = "fan-out"
	Chained = "chain"
)

// flowing measures jobs of a batch beside jobs without one, how soon jobs go on that wait for others, and cancellations that go on to
// many jobs. These come first: the others leave the database much to clean up, which would disturb the jobs that are probed beside them.
func flowing(ctx context.Context, r *run) ([]Part, error) {
	cascades, err := r.cascades(ctx)
	if err != nil {
		return nil, err
	}
	waiters, err := r.waiters(ctx)
	if err != nil {
		return nil, err
	}
	members, err := r.members(ctx)
	return slices.Concat(members, []Part{waiters}, cascades), err
}

// members measures the lives of jobs without a batch and of as many in one. Each is measured twice, in an order from which neither gains
// more: the store grows meanwhile. What comes first also opens connections and files, so it is not counted.
func (r *run) members(ctx context.Context) ([]Part, error) {
	var callbacks times
	figures := map[string][][]Figure{}
	for i, name := range []string{Single, Batched, Single, Batched, Batched, Single} {
		part := r.beside(fmt.Sprintf("%s-%d", name, i))
		if i < 2 {
			part.o.Jobs = max(1, r.o.Jobs/10)
		}
		some, callback, err := part.lives(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if i < 2 {
			continue
		}
		figures[name] = append(figures[name], some)
		if name == Batched {
			callbacks.add(callback)
		}
	}
	single := Part{Single, mean(figures[Single])}
	batch := versus(Part{Batched, mean(figures[Batched])}, single)
	batch.Figures = append(batch.Figures, callbacks.figures("callback ")...)
	return []Part{single, batch}, nil
}

// mean returns the mean of each figure of several measurements, which have the same figures but for those that a short one lacks.
func mean(several [][]Figure) []Figure {
	var all []Figure
	for _, f := range several[0] {
		for _, other := range several[1:] {
			more, ok := Part{Figures: other}.Figure(f.Name)
			if f.Value += more.Value; !ok {
				f.Name = ""
			}
		}
		if f.Value /= float64(len(several)); f.Name != "" {
			all = append(all, f)
		}
	}
	return all
}

// lives measures jobs from the first call that enqueues some until the store has accepted the end of the last. Of a batch it also returns
// how long after that its callback was claimed.
func (r *run) lives(ctx context.Context, name string) (figures []Figure, callback time.Duration, err error) {
	defer func() { err = errors.Join(err, r.remove(ctx)) }()
	t := newTally()
	w, err := r.work(nothing, t)
	if err != nil {
		return nil, 0, err
	}
	defer stopped(ctx, w, &err)
	if err := w.server.Start(ctx); err != nil {
		return nil, 0, err
	}
	count := func() int64 { return min(t.succeeded.Load(), int64(r.o.Jobs)) } // without the callback
	m, err := r.measure(ctx, count, ofJobs("jobs of "+name, count, int64(r.o.Jobs)))
	if err != nil {
		return nil, 0, err
	}
	defer m.halt()
	batch, err := r.sendAll(ctx, name)
	if err != nil {
		return nil, 0, err
	}
	if err := w.await(ctx, int64(r.o.Jobs)); err != nil {
		return nil, 0, err
	}
	m.halt()
	jobs := int64(r.o.Jobs)
	if name == Batched {
		jobs++
		if err := t.reach(ctx, jobs); err != nil {
			return nil, 0, fmt.Errorf("the callback: %w", err)
		}
	}
	if figures, err = w.finish(ctx, m, jobs); err != nil {
		return nil, 0, err
	}
	if name == Batched {
		if callback, err = r.sinceTheLast(ctx, batch); err != nil {
			return nil, 0, err
		}
	}
	return figures, callback, r.verify(ctx, map[jq.State]int64{jq.Succeeded: jobs})
}

// sendAll enqueues the jobs of the run, with or without a batch. A batch of several calls needs a request key, so all calls have one. The client
// has no middleware, so that it checks a batch as it does for most applications.
func (r *run) sendAll(ctx context.Context, name string) (jq.Batched, error) {
	client := jq.NewClient(r.store, &jq.ClientOptions{Defaults: jq.EnqueueOptions{Queue: r.queue}})
	items := r.items(r.o.Jobs, nil)
	if name == Batched {
		return r.sendBatch(ctx, client, &jq.Batch{Items: items, OnSuccess: &jq.Item{Payload: r.payload}})
	}
	calls := 0
	for part := range slices.Chunk(items, r.o.most()) {
		calls++
		added, err := client.EnqueueMany(ctx, part, &jq.EnqueueManyOptions{RequestKey: fmt.Sprintf("%s-%d", r.queue, calls)})
		if r.ids.add(added, err); err != nil {
			return jq.Batched{}, err
		}
	}
	return jq.Batched{}, nil
}

// sendBatch enqueues a batch. After an error it seals the group, which would stay open for good otherwise.
func (r *run) sendBatch(ctx context.Context, client *jq.Client, batch *jq.Batch) (jq.Batched, error) {
	batched, err := client.EnqueueBatch(ctx, batch, &jq.EnqueueManyOptions{RequestKey: r.queue})
	r.ids.add(append(batched.Jobs, batched.OnSuccess), err)
	if err == nil {
		return batched, nil
	}
	if sealed := client.SealGroup(context.WithoutCancel(ctx), batched.Group); !errors.Is(sealed, jq.ErrInvalid) { // it is not open
		err = errors.Join(err, sealed)
	}
	return batched, err
}

// sinceTheLast returns how long after the last job of the batch its callback was claimed, by the store's clock.
func (r *run) sinceTheLast(ctx context.Context, b jq.Batched) (time.Duration, error) {
	callback, err := r.store.Get(ctx, b.OnSuccess.ID)
	if err != nil {
		return 0, err
	}
	last, err := r.latest(ctx, jq.Filter{Group: b.Group}, func(j jq.Job) time.Time { return j.FinishedAt })
	return callback.ClaimedAt.Sub(last), err
}

// latest returns the latest time of the jobs that match.
func (r *run) latest(ctx context.Context, filter jq.Filter, of func(jq.Job) time.Time) (last time.Time, err error) {
	for job, err := range r.client().Jobs(ctx, filter) {
		if err != nil {
			return last, err
		}
		if at := of(job); at.After(last) {
			last = at
		}
	}
	return last, nil
}

const (
	mostWaiters = 1_000 // that wait for one job
	releases    = 5     // how often they are measured
)

// waiters measures how long after the Ack of one job the last of those is claimed that wait for it.
func (r *run) waiters(ctx context.Context) (part Part, err error) {
	r = r.beside(Waiters)
	defer func() { err = errors.Join(err, r.remove(ctx)) }()
	t := newTally()
	w, err := r.work(nothing, t)
	if err != nil {
		return Part{}, err
	}
	defer stopped(ctx, w, &err)
	if err := w.server.Start(ctx); err != nil {
		return Part{}, err
	}
	defer r.telling(ofJobs("releasing jobs that wait", t.succeeded.Load, 0))()
	jobs := min(mostWaiters, r.o.Jobs)
	var took times
	for range releases {
		one, err := r.release(ctx, t, jobs)
		if err != nil {
			return Part{}, err
		}
		took.add(one)
	}
	if err := w.stop(ctx); err != nil {
		return Part{}, err
	}
	figures := append(took.figures(""), Figure{"jobs", "", float64(jobs)})
	return Part{Waiters, figures}, r.verify(ctx, map[jq.State]int64{jq.Succeeded: int64(releases * (jobs + 1))})
}

// release lets a job run once the others wait for it, and returns how long after its Ack the last of them was claimed, by the store's
// clock.
func (r *run) release(ctx context.Context, t *tally, jobs int) (time.Duration, error) {
	before := t.succeeded.Load()
	client := r.client()
	first, err := client.Enqueue(ctx, r.payload, &jq.EnqueueOptions{Delay: time.Hour})
	if err != nil {
		return 0, err
	}
	if err := r.fill(ctx, jobs, &jq.EnqueueOptions{After: []jq.Wait{{ID: first.ID}}}); err != nil {
		return 0, err
	}
	if err := client.Reschedule(ctx, first.ID, time.Time{}); err != nil {
		return 0, err
	}
	if err := t.reach(ctx, before+int64(jobs)+1); err != nil {
		return 0, err
	}
	ended, err := r.store.Get(ctx, first.ID)
	if err != nil {
		return 0, err
	}
	last, err := r.latest(ctx, jq.Filter{Queue: r.queue, After: first.ID}, func(j jq.Job) time.Time { return j.ClaimedAt })
	return last.Sub(ended.FinishedAt), err
}

// watched is how often to look whether something has happened.
const watched = time.Millisecond

// reach waits until that many jobs have succeeded.
func (t *tally) reach(ctx context.Context, jobs int64) error {
	for since := time.Now(); t.succeeded.Load() < jobs; {
		if err := sleep(ctx, watched); err != nil {
			return err
		}
		if time.Since(since) >= stuck {
			return fmt.Errorf("the run does not count: %d of %d jobs have succeeded within %v", t.succeeded.Load(), jobs, stuck)
		}
	}
	return nil
}
