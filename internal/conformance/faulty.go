package conformance

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// A fault is what a faulty store does to a call.
type fault int

// The faults. After refuse nothing was applied, after lose everything was: the two ends of what a caller can not tell
// apart when a connection breaks.
const (
	pass   fault = iota // the call reaches the store, and its answer the caller
	refuse              // the call never reaches the store: ErrUnavailable
	lose                // the call reaches the store, and its answer is lost: ErrInDoubt
)

// faulty is a store whose calls fail as decided, and are seen. It shows nothing of the abilities of the store behind it.
type faulty struct {
	Store store.Store

	// Decide is asked at every call but Close, with the name of the method, from the goroutine of the caller. Nil lets all pass.
	Decide func(method string) fault

	// Seen is told of every call that has passed, unless it is nil.
	Seen func(method string, request, answer any, err error)
}

var _ store.Store = (*faulty)(nil)

func (f *faulty) Enqueue(ctx context.Context, req store.EnqueueRequest) ([]store.Enqueued, error) {
	return through(f, "Enqueue", req, func() ([]store.Enqueued, error) { return f.Store.Enqueue(ctx, req) })
}

func (f *faulty) FetchAndClaim(ctx context.Context, req store.ClaimRequest) ([]store.Job, error) {
	return through(f, "FetchAndClaim", req, func() ([]store.Job, error) { return f.Store.FetchAndClaim(ctx, req) })
}

func (f *faulty) Ack(ctx context.Context, acks []store.Ack) ([]store.Outcome, error) {
	return through(f, "Ack", acks, func() ([]store.Outcome, error) { return f.Store.Ack(ctx, acks) })
}

func (f *faulty) NAck(ctx context.Context, nacks []store.NAck) ([]store.Outcome, error) {
	return through(f, "NAck", nacks, func() ([]store.Outcome, error) { return f.Store.NAck(ctx, nacks) })
}

func (f *faulty) Extend(ctx context.Context, leases []store.Lease, ttl time.Duration) ([]store.Outcome, error) {
	return through(f, "Extend", []any{leases, ttl}, func() ([]store.Outcome, error) { return f.Store.Extend(ctx, leases, ttl) })
}

func (f *faulty) Save(ctx context.Context, saves []store.Save) ([]store.Outcome, error) {
	return through(f, "Save", saves, func() ([]store.Outcome, error) { return f.Store.Save(ctx, saves) })
}

func (f *faulty) Settle(ctx context.Context, limit int) ([]store.Settled, error) {
	return through(f, "Settle", limit, func() ([]store.Settled, error) { return f.Store.Settle(ctx, limit) })
}

func (f *faulty) RecoverExpiredLeases(ctx context.Context, req store.RecoverRequest) ([]store.Recovered, error) {
	return through(f, "RecoverExpiredLeases", req, func() ([]store.Recovered, error) { return f.Store.RecoverExpiredLeases(ctx, req) })
}

func (f *faulty) Get(ctx context.Context, id int64) (store.JobDetail, error) {
	return through(f, "Get", id, func() (store.JobDetail, error) { return f.Store.Get(ctx, id) })
}

func (f *faulty) List(ctx context.Context, filter store.Filter, page store.Page) (store.JobPage, error) {
	return through(f, "List", []any{filter, page}, func() (store.JobPage, error) { return f.Store.List(ctx, filter, page) })
}

func (f *faulty) Count(ctx context.Context, filter store.Filter) (store.Counts, error) {
	return through(f, "Count", filter, func() (store.Counts, error) { return f.Store.Count(ctx, filter) })
}

func (f *faulty) Cancel(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	return through(f, "Cancel", []any{filter, limit}, func() ([]store.Outcome, error) { return f.Store.Cancel(ctx, filter, limit) })
}

func (f *faulty) Requeue(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	return through(f, "Requeue", []any{filter, limit}, func() ([]store.Outcome, error) { return f.Store.Requeue(ctx, filter, limit) })
}

func (f *faulty) Reschedule(ctx context.Context, filter store.Filter, at time.Time, limit int) ([]store.Outcome, error) {
	return through(f, "Reschedule", []any{filter, at, limit}, func() ([]store.Outcome, error) { return f.Store.Reschedule(ctx, filter, at, limit) })
}

func (f *faulty) Delete(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	return through(f, "Delete", []any{filter, limit}, func() ([]store.Outcome, error) { return f.Store.Delete(ctx, filter, limit) })
}

func (f *faulty) Close() error { return f.Store.Close() }

func through[T any](f *faulty, method string, request any, call func() (T, error)) (T, error) {
	var none T
	decided := pass
	if f.Decide != nil {
		decided = f.Decide(method)
	}
	switch decided {
	case refuse:
		return none, fmt.Errorf("%s was refused: %w", method, store.ErrUnavailable)
	case lose:
		if _, err := call(); err != nil {
			return none, fmt.Errorf("the answer of %s was lost: %w; it was: %s", method, store.ErrInDoubt, err.Error())
		}
		return none, fmt.Errorf("the answer of %s was lost: %w", method, store.ErrInDoubt)
	default:
		answer, err := call()
		if f.Seen != nil {
			f.Seen(method, request, answer, err)
		}
		return answer, err
	}
}
