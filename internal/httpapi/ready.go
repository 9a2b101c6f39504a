package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/timeout"
	"github.com/seed-ed332417/jq/internal/wire"
)

// readyWithin is how quickly the store must answer to count as ready.
const readyWithin = time.Second

// A check asks the store once whether it answers. Anyone may call /readyz, so concurrent calls share one check. Later calls
// make a new one, because an old answer says nothing about now.
type check struct {
	done   chan struct{} // closed when the fields below are set
	health wire.Health
	err    error
}

// checks runs one check at a time.
type checks struct {
	mu      sync.Mutex // guards running
	running *check
}

// ready answers whether the store works, with the names of warnings. It gives no details, because anyone may call it.
func (a *API) ready(w *exchange, r *http.Request) error {
	asked, err := a.check()
	if err != nil {
		return err
	}
	ctx, cancel := timeout.Of(r.Context(), a.clock, readyWithin)
	defer cancel()
	select {
	case <-asked.done:
	case <-ctx.Done():
		return fmt.Errorf("%w: the store has not answered within %v", store.ErrUnavailable, readyWithin)
	}
	if asked.err != nil {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, asked.err)
	}
	return a.answer(w, http.StatusOK, asked.health)
}

// check returns the running check, or starts one.
func (a *API) check() (*check, error) {
	a.checks.mu.Lock()
	defer a.checks.mu.Unlock()
	if a.checks.running != nil {
		return a.checks.running, nil
	}
	done, err := a.lasting()
	if err != nil {
		return nil, err
	}
	c := &check{done: make(chan struct{})}
	a.checks.running = c
	go func() {
		defer done()
		ctx, cancel := timeout.Of(a.life, a.clock, readyWithin)
		defer cancel()
		c.health, c.err = a.health(ctx)
		a.checks.mu.Lock()
		a.checks.running = nil
		a.checks.mu.Unlock()
		close(c.done)
	}()
	return c, nil
}

// health returns the health of the store. If only reading the warnings fails, the store counts as ready without warnings.
func (a *API) health(ctx context.Context) (wire.Health, error) {
	if err := store.Ping(ctx, a.store); err != nil {
		return wire.Health{}, err
	}
	ready := wire.Health{Status: "ready"}
	if warner, ok := a.store.(store.Warner); ok {
		ctx, cancel := timeout.Of(ctx, a.clock, readyWithin/2)
		defer cancel()
		found, err := warner.Warnings(ctx)
		if err != nil {
			a.log.Warn("jq: the warnings of the store can not be read", "error", err)
		}
		for _, f := range found {
			ready.Warnings = append(ready.Warnings, f.Name)
		}
	}
	return ready, nil
}
