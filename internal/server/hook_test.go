package server

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
)

// A hook is one server's access to the store of its world, with all its abilities. It counts the calls. A test can set a function to run
// before each call; if that returns an error, the error is the answer and the store is not called.
type hook struct {
	*memory.Store

	mu     sync.Mutex // guards what follows
	counts map[string]int
	before func(ctx context.Context, method string) error
}

func (w *world) hook() *hook { return &hook{Store: w.store, counts: map[string]int{}} }

// plain returns the hook without any ability beyond the core.
func (h *hook) plain() store.Store { return struct{ store.Store }{h} }

// every runs the function before each call from now on.
func (h *hook) every(before func(ctx context.Context, method string) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.before = before
}

// refuse answers every call at once with an error, like a closed port.
func (h *hook) refuse() {
	h.every(func(context.Context, string) error { return fmt.Errorf("connection refused: %w", store.ErrUnavailable) })
}

// swallow answers no call: what is sent gets lost on the way.
func (h *hook) swallow() {
	h.every(func(ctx context.Context, _ string) error {
		<-ctx.Done()
		return fmt.Errorf("%w: %w", store.ErrInDoubt, ctx.Err())
	})
}

// delay makes every call take so long before it reaches the store.
func (h *hook) delay(d time.Duration) {
	h.every(func(ctx context.Context, _ string) error { return travel(ctx, d) })
}

// travel is the way of a call to the store.
func travel(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
	}
}

// let lets every call through again.
func (h *hook) let() { h.every(nil) }

// count returns how often the method was called, or any method if the name is empty.
func (h *hook) count(method string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if method != "" {
		return h.counts[method]
	}
	all := 0
	for _, n := range h.counts {
		all += n
	}
	return all
}

// passed makes the call, unless the function before it returns an error.
func passed[T any](ctx context.Context, h *hook, method string, call func() (T, error)) (T, error) {
	h.mu.Lock()
	h.counts[method]++
	before := h.before
	h.mu.Unlock()
	if before != nil {
		if err := before(ctx, method); err != nil {
			var none T
			return none, err
		}
	}
	return call()
}

func (h *hook) FetchAndClaim(ctx context.Context, req store.ClaimRequest) ([]store.Job, error) {
	return passed(ctx, h, "claim", func() ([]store.Job, error) { return h.Store.FetchAndClaim(ctx, req) })
}

func (h *hook) Ack(ctx context.Context, acks []store.Ack) ([]store.Outcome, error) {
	return passed(ctx, h, "ack", func() ([]store.Outcome, error) { return h.Store.Ack(ctx, acks) })
}

func (h *hook) NAck(ctx context.Context, nacks []store.NAck) ([]store.Outcome, error) {
	return passed(ctx, h, "nack", func() ([]store.Outcome, error) { return h.Store.NAck(ctx, nacks) })
}

func (h *hook) Extend(ctx context.Context, leases []store.Lease, ttl time.Duration) ([]store.Outcome, error) {
	return passed(ctx, h, "extend", func() ([]store.Outcome, error) { return h.Store.Extend(ctx, leases, ttl) })
}

func (h *hook) RecoverExpiredLeases(ctx context.Context, req store.RecoverRequest) ([]store.Recovered, error) {
	return passed(ctx, h, "recover", func() ([]store.Recovered, error) { return h.Store.RecoverExpiredLeases(ctx, req) })
}

func (h *hook) Settle(ctx context.Context, limit int) ([]store.Settled, error) {
	return passed(ctx, h, "settle", func() ([]store.Settled, error) { return h.Store.Settle(ctx, limit) })
}

func (h *hook) Get(ctx context.Context, id int64) (store.JobDetail, error) {
	return passed(ctx, h, "get", func() (store.JobDetail, error) { return h.Store.Get(ctx, id) })
}

func (h *hook) Delete(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	return passed(ctx, h, "delete", func() ([]store.Outcome, error) { return h.Store.Delete(ctx, filter, limit) })
}

func (h *hook) Subscribe(ctx context.Context, queues []string) (<-chan store.Wakeup, error) {
	return passed(ctx, h, "subscribe", func() (<-chan store.Wakeup, error) { return h.Store.Subscribe(ctx, queues) })
}

func (h *hook) Queues(ctx context.Context) ([]store.Queue, error) {
	return passed(ctx, h, "queues", func() ([]store.Queue, error) { return h.Store.Queues(ctx) })
}

func (h *hook) Beat(ctx context.Context, w store.Worker) error {
	_, err := passed(ctx, h, "register", func() (struct{}, error) { return struct{}{}, h.Store.Beat(ctx, w) })
	return err
}

func (h *hook) AddActivity(ctx context.Context, items []store.Activity) error {
	_, err := passed(ctx, h, "addactivity", func() (struct{}, error) { return struct{}{}, h.Store.AddActivity(ctx, items) })
	return err
}

func (h *hook) Schedules(ctx context.Context, filter store.ScheduleFilter, page store.Page) (store.SchedulePage, error) {
	return passed(ctx, h, "schedules", func() (store.SchedulePage, error) { return h.Store.Schedules(ctx, filter, page) })
}

func (h *hook) Fire(ctx context.Context, firings []store.Firing) ([]store.Fired, error) {
	return passed(ctx, h, "fire", func() ([]store.Fired, error) { return h.Store.Fire(ctx, firings) })
}
