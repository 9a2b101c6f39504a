package server

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/await"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/timeout"
)

// Once runs one claimed job in the caller's goroutine, and writes its verdict.
func Once(ctx context.Context, s store.Store, lookup Lookup, slab Slab, job store.Job) (store.Outcome, error) {
	handler, ok := lookup(job.Kind)
	if !ok {
		return store.Outcome{}, fmt.Errorf("jq: no handler for kind %q", job.Kind)
	}
	base := context.WithoutCancel(ctx) // so that only cancel ends it, with the cause
	r := newRuns(base, slab, unheld{s}, []store.Job{job}, DefaultTimeout)[0]
	defer r.cancel(context.Canceled)
	stop := context.AfterFunc(ctx, func() { r.cancel(ErrDrained) })
	defer stop()
	c := clock.New()
	timer := c.AfterFunc(r.timeout, func() { r.cancel(ErrTimeout) })
	defer timer.Stop()
	v := r.execute(handler)
	r.cancel(context.Canceled) // a transaction that the handler has left open is rolled back
	limited, cancel := timeout.Of(base, c, DefaultLease)
	defer cancel()
	return v.writeTo(limited, c, s, job.Lease())
}

// execute runs the handler and returns the verdict. A panic is a failure that carries the stack.
func (r *Run) execute(h Handler) (v verdict) {
	defer func() {
		if p := recover(); p != nil {
			v = confirmIfFinished(r, panicked(p, debug.Stack()))
		}
	}()
	err := h(&r.ctx, r)
	return confirmIfFinished(r, verdictOf(r, err, r.cancelCause()))
}

// writeTo writes one verdict with calls of its own. It waits for transactions that hold the job, until the context ends.
func (v verdict) writeTo(ctx context.Context, c clock.Clock, s store.Store, lease store.Lease) (store.Outcome, error) {
	for wait := firstRetryDelay; ; wait = min(2*wait, time.Second) {
		o, err := v.send(ctx, s, lease)
		switch {
		case err != nil:
			return store.Outcome{}, err
		case o.Status == store.StatusBusy:
			if !rest(ctx, c, wait) {
				return o, fmt.Errorf("%w: a transaction holds the job: %w", store.ErrUnavailable, ctx.Err())
			}
		case v.op == confirm && o.Status == store.StatusOK: // the job is still in flight: its transaction was not committed
			return v.otherwise.writeTo(ctx, c, s, lease)
		case o.Status == store.StatusInvalid:
			return asFailure(v, o.Err()).writeTo(ctx, c, s, lease)
		default:
			return o, nil
		}
	}
}

func (v verdict) send(ctx context.Context, s store.Store, lease store.Lease) (store.Outcome, error) {
	var outcomes []store.Outcome
	var err error
	switch v.op {
	case ack:
		outcomes, err = s.Ack(ctx, []store.Ack{{Lease: lease, Result: v.result}})
	case nack:
		outcomes, err = s.NAck(ctx, []store.NAck{{Lease: lease, Form: v.form, Delay: v.delay, Error: v.reason}})
	default:
		outcomes, err = s.Extend(ctx, []store.Lease{lease}, DefaultLease)
	}
	if err != nil {
		return store.Outcome{}, err
	}
	await.Tell(s, outcomes)
	return outcomes[0], nil
}

// rest returns false if the context ends first.
func rest(ctx context.Context, c clock.Clock, d time.Duration) bool {
	over := c.Timer(d)
	defer over.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-over.C:
		return true
	}
}

// unheld is the holder of a run that no server holds.
type unheld struct{ store store.Store }

func (l unheld) backend() store.Store                           { return l.store }
func (l unheld) writeRefused(r *Run, _ string, o store.Outcome) { r.cancel(causeOf(o)) }
