package kv

import (
	"context"
	"sync"
)

// Turns keep calls of this process apart that would conflict in the engine, such as claims on one queue.
type turns struct {
	mu   sync.Mutex
	held map[string]*turn
}

type turn struct {
	taken chan struct{} // has a value while somebody has the turn
	users int           // who have it or wait for it
}

// take waits for the turn with the name. The caller must call leave, unless there is an error.
func (t *turns) take(ctx context.Context, name string) (leave func(), err error) {
	one := t.use(name)
	select {
	case one.taken <- struct{}{}:
		return func() { <-one.taken; t.drop(name, one) }, nil
	case <-ctx.Done():
		t.drop(name, one)
		return nil, unavailable(ctx.Err())
	}
}

func (t *turns) use(name string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held == nil {
		t.held = map[string]*turn{}
	}
	if t.held[name] == nil {
		t.held[name] = &turn{taken: make(chan struct{}, 1)}
	}
	t.held[name].users++
	return t.held[name]
}

func (t *turns) drop(name string, one *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(t.held, name)
	}
}
