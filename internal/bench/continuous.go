package bench

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq"
)

// continuing measures the whole way of a job at a steady rate.
func continuing(ctx context.Context, r *run) ([]Part, error) {
	part, err := r.continuous(ctx, "continuous")
	return []Part{part}, err
}

// continuous enqueues and works at once, with so many jobs waiting that neither has to wait for the other. What is counted is
// what the store has accepted as ended within the time; the rest is worked off, and looked for as well.
func (r *run) continuous(ctx context.Context, name string) (part Part, err error) {
	t := newTally()
	t.lend(r.backlog()/r.o.Batch+r.o.Producers, r.o.Batch)
	w, err := r.work(nothing, t)
	if err != nil {
		return Part{}, err
	}
	defer stopped(ctx, w, &err)
	if err := w.server.Start(ctx); err != nil {
		return Part{}, err
	}
	over := make(chan struct{})
	p := r.producing(ctx, t.borrow(ctx, over))
	figures, err := r.meanwhile(ctx, ofTime(name, t.succeeded.Load, r.o.Duration), t.succeeded.Load, p.ended)
	close(over)
	<-p.ended
	if err = cmp.Or(p.err, err); err != nil {
		return Part{}, err
	}
	if err := w.await(ctx, p.sent.Load()); err != nil {
		return Part{}, err
	}
	if err := w.stop(ctx); err != nil {
		return Part{}, err
	}
	return Part{Name: name, Figures: figures}, r.verify(ctx, map[jq.State]int64{jq.Succeeded: p.sent.Load()})
}

// backlog is how many jobs may wait: enough for some claims and calls ahead.
func (r *run) backlog() int {
	return max(2*(r.o.Concurrency+max(0, r.o.Buffer)), 2*r.o.Batch*r.o.Producers)
}

// borrow says how many jobs the next call enqueues: as many as a credit is for, or none when it is over.
func (t *tally) borrow(ctx context.Context, over <-chan struct{}) func() int {
	return func() int {
		select {
		case <-over: // also where there is credit
			return 0
		default:
		}
		select {
		case <-t.credits:
			return int(t.of)
		case <-over:
		case <-ctx.Done():
		}
		return 0
	}
}

// Producers enqueue in the background.
type producers struct {
	sent  atomic.Int64
	ended chan struct{}
	err   error // once they have ended
}

func (r *run) producing(ctx context.Context, next func() int) *producers {
	p := &producers{ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		p.err = r.produce(ctx, r.o.Producers, next, func(jobs int, _ time.Duration) { p.sent.Add(int64(jobs)) })
	}()
	return p
}

// meanwhile measures for the duration of the run what goes on, unless that ends before.
func (r *run) meanwhile(ctx context.Context, progress func() Progress, count func() int64, ended <-chan struct{}) ([]Figure, error) {
	m, err := r.measure(ctx, count, progress)
	if err != nil {
		return nil, err
	}
	defer m.halt()
	end := time.NewTimer(r.o.Duration)
	defer end.Stop()
	select {
	case <-end.C:
		return m.stop(ctx)
	case <-ended:
	case <-ctx.Done():
	}
	return nil, cmp.Or(ctx.Err(), errEarly)
}

// errEarly stands for the error of what has ended, where that has none.
var errEarly = errors.New("the producers have ended early")
