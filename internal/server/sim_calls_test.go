package server_test

import (
	"context"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// The methods of the contract, each through the link.

func (l *link) Enqueue(ctx context.Context, req store.EnqueueRequest) ([]store.Enqueued, error) {
	return through(ctx, l, "Enqueue", func(ctx context.Context) ([]store.Enqueued, error) { return l.to.Enqueue(ctx, req) })
}

func (l *link) FetchAndClaim(ctx context.Context, req store.ClaimRequest) ([]store.Job, error) {
	jobs, err := through(ctx, l, "FetchAndClaim", func(ctx context.Context) ([]store.Job, error) { return l.to.FetchAndClaim(ctx, req) })
	l.to.delivered(l, jobs)
	return jobs, err
}

func (l *link) Ack(ctx context.Context, acks []store.Ack) ([]store.Outcome, error) {
	return through(ctx, l, "Ack", func(ctx context.Context) ([]store.Outcome, error) { return l.to.Ack(ctx, acks) })
}

func (l *link) NAck(ctx context.Context, nacks []store.NAck) ([]store.Outcome, error) {
	return through(ctx, l, "NAck", func(ctx context.Context) ([]store.Outcome, error) { return l.to.NAck(ctx, nacks) })
}

func (l *link) Extend(ctx context.Context, leases []store.Lease, ttl time.Duration) ([]store.Outcome, error) {
	return through(ctx, l, "Extend", func(ctx context.Context) ([]store.Outcome, error) { return l.to.Extend(ctx, leases, ttl) })
}

func (l *link) Save(ctx context.Context, saves []store.Save) ([]store.Outcome, error) {
	return through(ctx, l, "Save", func(ctx context.Context) ([]store.Outcome, error) { return l.to.Save(ctx, saves) })
}

func (l *link) RecoverExpiredLeases(ctx context.Context, req store.RecoverRequest) ([]store.Recovered, error) {
	ctx = context.WithValue(ctx, linkKey{}, l)
	return through(ctx, l, "Recover", func(ctx context.Context) ([]store.Recovered, error) { return l.to.RecoverExpiredLeases(ctx, req) })
}

func (l *link) Settle(ctx context.Context, limit int) ([]store.Settled, error) {
	return through(ctx, l, "Settle", func(ctx context.Context) ([]store.Settled, error) { return l.to.Settle(ctx, limit) })
}

func (l *link) Get(ctx context.Context, id int64) (store.JobDetail, error) {
	return through(ctx, l, "Get", func(ctx context.Context) (store.JobDetail, error) { return l.to.Get(ctx, id) })
}

func (l *link) List(ctx context.Context, filter store.Filter, page store.Page) (store.JobPage, error) {
	return through(ctx, l, "List", func(ctx context.Context) (store.JobPage, error) { return l.to.List(ctx, filter, page) })
}

func (l *link) Count(ctx context.Context, filter store.Filter) (store.Counts, error) {
	return through(ctx, l, "Count", func(ctx context.Context) (store.Counts, error) { return l.to.Count(ctx, filter) })
}

func (l *link) Cancel(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	return through(ctx, l, "Cancel", func(ctx context.Context) ([]store.Outcome, error) { return l.to.Cancel(ctx, filter, limit) })
}

func (l *link) Requeue(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	return through(ctx, l, "Requeue", func(ctx context.Context) ([]store.Outcome, error) { return l.to.Requeue(ctx, filter, limit) })
}

func (l *link) Reschedule(ctx context.Context, filter store.Filter, at time.Time, limit int) ([]store.Outcome, error) {
	return through(ctx, l, "Reschedule", func(ctx context.Context) ([]store.Outcome, error) { return l.to.Reschedule(ctx, filter, at, limit) })
}

func (l *link) Delete(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	return through(ctx, l, "Delete", func(ctx context.Context) ([]store.Outcome, error) { return l.to.Delete(ctx, filter, limit) })
}

// linkKey is the key of the link in the context of a recovery, so that the witness sees which server recovers.
type linkKey struct{}

// Close leaves the store open for the others.
func (l *link) Close() error { return nil }

// An ableLink also has the abilities of the store.
type ableLink struct{ *link }

var (
	_ store.Notifier     = ableLink{}
	_ store.PolicyKeeper = ableLink{}
	_ store.Registry     = ableLink{}
)

// Subscribe loses some wake-ups, and all later ones when the connection breaks.
func (l ableLink) Subscribe(ctx context.Context, queues []string) (<-chan store.Wakeup, error) {
	return through(ctx, l.link, "Subscribe", func(context.Context) (<-chan store.Wakeup, error) {
		ctx, end := context.WithCancel(ctx) // that of the reader, also where the call outlives it
		in, err := l.to.Subscribe(ctx, queues)
		if err != nil {
			end()
			return nil, err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.breaks = append(l.breaks, end)
		out := make(chan store.Wakeup, 64)
		l.sim.readers.Go(func() { l.forward(in, out) })
		return out, nil
	})
}

func (l ableLink) forward(in <-chan store.Wakeup, out chan<- store.Wakeup) {
	defer close(out)
	d := dice(l.sim.seed, l.name+"/wake-ups", 0)
	for w := range in {
		if l.sim.faulty() && d.IntN(8) == 0 {
			l.sim.count(dropped)
			continue
		}
		select {
		case out <- w:
		default: // a slow reader loses some
		}
	}
}

func (l ableLink) Queues(ctx context.Context) ([]store.Queue, error) {
	return through(ctx, l.link, "Queues", l.to.Queues)
}

func (l ableLink) SetPaused(ctx context.Context, queue string, paused bool) error {
	_, err := through(ctx, l.link, "SetPaused", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, l.to.SetPaused(ctx, queue, paused)
	})
	return err
}

func (l ableLink) Policy(ctx context.Context, queue string) (store.Policy, error) {
	return through(ctx, l.link, "Policy", func(ctx context.Context) (store.Policy, error) { return l.to.Policy(ctx, queue) })
}

func (l ableLink) SetPolicy(ctx context.Context, queue string, p store.Policy) (store.Policy, error) {
	return through(ctx, l.link, "SetPolicy", func(ctx context.Context) (store.Policy, error) { return l.to.SetPolicy(ctx, queue, p) })
}

func (l ableLink) Beat(ctx context.Context, w store.Worker) error {
	_, err := through(ctx, l.link, "Beat", func(ctx context.Context) (struct{}, error) { return struct{}{}, l.to.Beat(ctx, w) })
	return err
}

func (l ableLink) Leave(ctx context.Context, name string) error {
	_, err := through(ctx, l.link, "Leave", func(ctx context.Context) (struct{}, error) { return struct{}{}, l.to.Leave(ctx, name) })
	return err
}

func (l ableLink) Workers(ctx context.Context, filter store.WorkerFilter, page store.Page) (store.WorkerPage, error) {
	return through(ctx, l.link, "Workers", func(ctx context.Context) (store.WorkerPage, error) { return l.to.Workers(ctx, filter, page) })
}
