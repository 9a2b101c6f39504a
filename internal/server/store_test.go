package server

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
)

// A gate stands between a server and the store of its world: a test says which calls pass, and what happens to the others. Its abilities
// beyond the core are those of the store.
type gate struct {
	*memory.Store

	mu     sync.Mutex // guards what follows
	calls  map[string]int
	before func(ctx context.Context, method string) error // an error is the answer, and the store is not asked
	ack    func(ctx context.Context, acks []store.Ack) ([]store.Outcome, error)
	nack   func(ctx context.Context, nacks []store.NAck) ([]store.Outcome, error)
	extend func(ctx context.Context, leases []store.Lease) ([]store.Outcome, error)
	claim  func(ctx context.Context, req store.ClaimRequest) ([]store.Job, error)
}

func (w *world) gate() *gate { return &gate{Store: w.store, calls: map[string]int{}} }

// set changes the gate, even while calls pass.
func (g *gate) set(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
}

// away lets no call reach the store any more.
func (g *gate) away() {
	g.set(func() {
		g.before = func(context.Context, string) error { return fmt.Errorf("cut off: %w", store.ErrUnavailable) }
	})
}

// back lets every call pass again.
func (g *gate) back() { g.set(func() { g.before = nil }) }

// hang keeps the calls of a method waiting until their contexts end.
func (g *gate) hang(method string) {
	g.set(func() {
		g.before = func(ctx context.Context, called string) error {
			if called != method {
				return nil
			}
			return gone(ctx)
		}
	})
}

// gone waits for the end of the context, like a call to an unreachable host.
func gone(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
}

// count returns how often the method was called.
func (g *gate) count(method string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls[method]
}

// pass counts the call, and returns the error with which it ends here.
func (g *gate) pass(ctx context.Context, method string) error {
	g.mu.Lock()
	g.calls[method]++
	before := g.before
	g.mu.Unlock()
	if before == nil {
		return nil
	}
	return before(ctx, method)
}

// instead returns the replacement for a method, or nil.
func instead[F any](g *gate, field *F) F {
	g.mu.Lock()
	defer g.mu.Unlock()
	return *field
}

func (g *gate) FetchAndClaim(ctx context.Context, req store.ClaimRequest) ([]store.Job, error) {
	if err := g.pass(ctx, "claim"); err != nil {
		return nil, err
	}
	if claim := instead(g, &g.claim); claim != nil {
		return claim(ctx, req)
	}
	return g.Store.FetchAndClaim(ctx, req)
}

func (g *gate) Ack(ctx context.Context, acks []store.Ack) ([]store.Outcome, error) {
	if err := g.pass(ctx, "ack"); err != nil {
		return nil, err
	}
	if ack := instead(g, &g.ack); ack != nil {
		return ack(ctx, acks)
	}
	return g.Store.Ack(ctx, acks)
}

func (g *gate) NAck(ctx context.Context, nacks []store.NAck) ([]store.Outcome, error) {
	if err := g.pass(ctx, "nack"); err != nil {
		return nil, err
	}
	if nack := instead(g, &g.nack); nack != nil {
		return nack(ctx, nacks)
	}
	return g.Store.NAck(ctx, nacks)
}

func (g *gate) Extend(ctx context.Context, leases []store.Lease, ttl time.Duration) ([]store.Outcome, error) {
	if err := g.pass(ctx, "extend"); err != nil {
		return nil, err
	}
	if extend := instead(g, &g.extend); extend != nil {
		return extend(ctx, leases)
	}
	return g.Store.Extend(ctx, leases, ttl)
}

func (g *gate) Save(ctx context.Context, saves []store.Save) ([]store.Outcome, error) {
	if err := g.pass(ctx, "save"); err != nil {
		return nil, err
	}
	return g.Store.Save(ctx, saves)
}

func (g *gate) RecoverExpiredLeases(ctx context.Context, req store.RecoverRequest) ([]store.Recovered, error) {
	if err := g.pass(ctx, "recover"); err != nil {
		return nil, err
	}
	return g.Store.RecoverExpiredLeases(ctx, req)
}

func (g *gate) Settle(ctx context.Context, limit int) ([]store.Settled, error) {
	if err := g.pass(ctx, "settle"); err != nil {
		return nil, err
	}
	return g.Store.Settle(ctx, limit)
}

func (g *gate) Get(ctx context.Context, id int64) (store.JobDetail, error) {
	if err := g.pass(ctx, "get"); err != nil {
		return store.JobDetail{}, err
	}
	return g.Store.Get(ctx, id)
}

func (g *gate) Delete(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	if err := g.pass(ctx, "delete"); err != nil {
		return nil, err
	}
	return g.Store.Delete(ctx, filter, limit)
}

// said returns what the log has under the message: the attributes of each line.
func (w *world) said(message string) []map[string]any {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	var lines []map[string]any
	for _, r := range w.log.records {
		if r.Message != message {
			continue
		}
		line := map[string]any{}
		r.Attrs(func(a slog.Attr) bool {
			line[a.Key] = a.Value.Any()
			return true
		})
		lines = append(lines, line)
	}
	return lines
}

// since returns how much time has passed in the bubble, which always begins at the same moment.
func (w *world) since() time.Duration { return time.Since(dawn) }

var dawn = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// work returns a handler that takes so long, or until its context ends: then it returns the context's error.
func work(d time.Duration) Handler {
	return func(ctx context.Context, _ *Run) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// deaf returns a handler that takes so long and ignores its context.
func deaf(d time.Duration) Handler {
	return func(context.Context, *Run) error {
		<-time.NewTimer(d).C
		return nil
	}
}

// A told is what a handler was told, and when.
type told struct {
	cause error
	after time.Duration
}

// listening returns a handler that waits for the end of its context, records the cause, and returns the error.
func listening(w *world, heard *told, err error) Handler {
	return func(ctx context.Context, _ *Run) error {
		began := w.since()
		<-ctx.Done()
		*heard = told{context.Cause(ctx), w.since() - began}
		return err
	}
}
