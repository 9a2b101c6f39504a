package server

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/await"
	"github.com/seed-ed332417/jq/internal/store"
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
	timer := clock.New().AfterFunc(r.timeout, func() { r.cancel(ErrTimeout) })
	defer timer.Stop()
	return r.execute(handler).writeTo(base, s, job.Lease())
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

// writeTo writes one verdict with a call of its own.
func (v verdict) writeTo(ctx context.Context, s store.Store, lease store.Lease) (store.Outcome, error) {
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
	switch o := outcomes[0]; {
	case v.op == confirm && o.Status == store.StatusOK: // the job is still in flight: its transaction was not committed
		return v.otherwise.writeTo(ctx, s, lease)
	case o.Status == store.StatusInvalid:
		return asFailure(v, o.Err()).writeTo(ctx, s, lease)
	default:
		return o, nil
	}
}

// unheld is the holder of a run that no server holds.
type unheld struct{ store store.Store }

func (l unheld) backend() store.Store                           { return l.store }
func (l unheld) writeRefused(r *Run, _ string, o store.Outcome) { r.cancel(causeOf(o)) }
