// Package wake hands wake-ups to those who listen in this process. Stores share it; where their wake-ups come from is their
// own affair.
package wake

import (
	"context"
	"slices"
	"sync"

	"github.com/seed-ed332417/jq/internal/store"
)

// pending is how many wake-ups a slow reader can leave unread before it loses some.
const pending = 64

// A Hub hands wake-ups to listeners, and waits for none of them. The zero value is ready for use. Its methods may be called at
// any time, from any goroutine.
type Hub struct {
	mu        sync.Mutex // guards what follows
	closed    bool
	listeners map[*listener]struct{}
}

type listener struct {
	queues []string // none means all
	out    chan store.Wakeup
	stop   func() bool // forgets the context
}

// Subscribe returns a channel of wake-ups for the queues, or for all queues where none is named. It is closed when the context
// ends or the hub is closed. The name of a queue that breaks a limit is ErrInvalid, and a hub that was closed ErrClosed.
func (h *Hub) Subscribe(ctx context.Context, queues []string) (<-chan store.Wakeup, error) {
	for _, q := range queues {
		if err := store.CheckQueue(q); err != nil {
			return nil, err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, store.ErrClosed
	}
	l := &listener{queues: slices.Clone(queues), out: make(chan store.Wakeup, pending)}
	if h.listeners == nil {
		h.listeners = map[*listener]struct{}{}
	}
	h.listeners[l] = struct{}{}
	l.stop = context.AfterFunc(ctx, func() { h.drop(l) })
	return l.out, nil
}

func (h *Hub) drop(l *listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, there := h.listeners[l]; there {
		delete(h.listeners, l)
		close(l.out)
	}
}

// Tell wakes whoever listens to one of the queues. A listener that has left too many wake-ups unread loses this one.
func (h *Hub) Tell(queues ...string) {
	if len(queues) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.listeners {
		for _, q := range queues {
			if len(l.queues) == 0 || slices.Contains(l.queues, q) {
				l.tell(q)
			}
		}
	}
}

// TellNamed wakes every listener once for each queue that it has named, and says whether somebody has named none.
func (h *Hub) TellNamed() (unnamed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.listeners {
		unnamed = unnamed || len(l.queues) == 0
		for _, q := range l.queues {
			l.tell(q)
		}
	}
	return unnamed
}

func (l *listener) tell(queue string) {
	select {
	case l.out <- store.Wakeup{Queue: queue}:
	default:
	}
}

// Silent says that nobody listens.
func (h *Hub) Silent() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.listeners) == 0
}

// Close ends every subscription, and refuses new ones. To close twice is fine.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for l := range h.listeners {
		l.stop()
		close(l.out)
	}
	clear(h.listeners)
}
