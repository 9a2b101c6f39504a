package bench

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq"
)

// continuing measures the whole life of a job at a steady rate.
func continuing(ctx context.Context, r *run) ([]Part, error) {
	part, err := r.continuous(ctx, "continuous")
	return []Part{part}, err
}

// continuous enqueues and works at the same time, with enough waiting jobs that neither waits for the other. It counts the jobs
// whose end the store accepts within the time. The rest is worked off, and verified as well.
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

// backlog returns how many jobs may wait: enough for a few claims and calls ahead.
func (r *run) backlog() int {
	return max(2*(r.o.Concurrency+max(0, r.o.Buffer)), 2*r.o.Batch*r.o.Producers)
}

// borrow returns how many jobs the next call enqueues: one credit's worth, or none when over is closed.
func (t *tally) borrow(ctx context.Context, over <-chan struct{}) func() int {
	return func() int {
		select {
		case <-over: // even if there is credit
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

// producers enqueue in the background.
type producers struct {
	sent  atomic.Int64
	ended chan struct{}
	err   error // set once they have ended
}

func (r *run) producing(ctx context.Context, next func() int) *producers {
	p := &producers{ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		p.err = r.produce(ctx, r.o.Producers, next, func(jobs int, _ time.Duration) { p.sent.Add(int64(jobs)) })
	}()
	return p
}

// meanwhile measures for the duration of the run, or until ended is closed.
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

// errEarly is the error of producers that have ended early without one.
var errEarly = errors.New("the producers have ended early")
