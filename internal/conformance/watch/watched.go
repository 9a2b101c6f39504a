package watch

import (
	"context"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// watched is a store whose calls are kept. It shows nothing of the abilities of the store behind it.
type watched struct {
	store.Store
	log *Log
}

func (w *watched) Enqueue(ctx context.Context, req store.EnqueueRequest) ([]store.Enqueued, error) {
	return through(w, "Enqueue", req, func() ([]store.Enqueued, error) { return w.Store.Enqueue(ctx, req) })
}

func (w *watched) FetchAndClaim(ctx context.Context, req store.ClaimRequest) ([]store.Job, error) {
	return through(w, "FetchAndClaim", req, func() ([]store.Job, error) { return w.Store.FetchAndClaim(ctx, req) })
}

func (w *watched) Ack(ctx context.Context, acks []store.Ack) ([]store.Outcome, error) {
	return through(w, "Ack", acks, func() ([]store.Outcome, error) { return w.Store.Ack(ctx, acks) })
}

func (w *watched) NAck(ctx context.Context, nacks []store.NAck) ([]store.Outcome, error) {
	return through(w, "NAck", nacks, func() ([]store.Outcome, error) { return w.Store.NAck(ctx, nacks) })
}

func (w *watched) Extend(ctx context.Context, leases []store.Lease, ttl time.Duration) ([]store.Outcome, error) {
	return through(w, "Extend", []any{leases, ttl}, func() ([]store.Outcome, error) { return w.Store.Extend(ctx, leases, ttl) })
}

func (w *watched) Save(ctx context.Context, saves []store.Save) ([]store.Outcome, error) {
	return through(w, "Save", saves, func() ([]store.Outcome, error) { return w.Store.Save(ctx, saves) })
}

func (w *watched) Settle(ctx context.Context, limit int) ([]store.Settled, error) {
	return through(w, "Settle", limit, func() ([]store.Settled, error) { return w.Store.Settle(ctx, limit) })
}

func (w *watched) RecoverExpiredLeases(ctx context.Context, req store.RecoverRequest) ([]store.Recovered, error) {
	return through(w, "RecoverExpiredLeases", req, func() ([]store.Recovered, error) { return w.Store.RecoverExpiredLeases(ctx, req) })
}

func (w *watched) Get(ctx context.Context, id int64) (store.JobDetail, error) {
	return through(w, "Get", id, func() (store.JobDetail, error) { return w.Store.Get(ctx, id) })
}

func (w *watched) List(ctx context.Context, filter store.Filter, page store.Page) (store.JobPage, error) {
	return through(w, "List", []any{filter, page}, func() (store.JobPage, error) { return w.Store.List(ctx, filter, page) })
}

func (w *watched) Count(ctx context.Context, filter store.Filter) (store.Counts, error) {
	return through(w, "Count", filter, func() (store.Counts, error) { return w.Store.Count(ctx, filter) })
}

func (w *watched) Cancel(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	return through(w, "Cancel", []any{filter, limit}, func() ([]store.Outcome, error) { return w.Store.Cancel(ctx, filter, limit) })
}

func (w *watched) Requeue(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	return through(w, "Requeue", []any{filter, limit}, func() ([]store.Outcome, error) { return w.Store.Requeue(ctx, filter, limit) })
}

func (w *watched) Reschedule(ctx context.Context, filter store.Filter, at time.Time, limit int) ([]store.Outcome, error) {
	return through(w, "Reschedule", []any{filter, at, limit}, func() ([]store.Outcome, error) { return w.Store.Reschedule(ctx, filter, at, limit) })
}

func (w *watched) Delete(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	return through(w, "Delete", []any{filter, limit}, func() ([]store.Outcome, error) { return w.Store.Delete(ctx, filter, limit) })
}

func through[T any](w *watched, method string, request any, call func() (T, error)) (T, error) {
	answer, err := call()
	w.log.add(method, request, answer, err)
	return answer, err
}
