package bbolt

import (
	"context"
	"slices"
	"sync"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
)

// Subscribe returns a channel of wake-ups for the queues. All that happens to the file happens in this process, which can
// therefore tell.
func (s *Store) Subscribe(ctx context.Context, names []string) (<-chan jq.Wakeup, error) {
	var refused error
	for _, name := range names {
		if err := contract.CheckQueue(name); err != nil {
			refused = err
		}
	}
	if err := s.admit(ctx, refused); err != nil {
		return nil, err
	}
	return s.hub.subscribe(ctx, names)
}

// A hub hands wake-ups to those who listen, and waits for none of them.
type hub struct {
	mu        sync.Mutex // guards what follows
	closed    bool
	listeners map[*listener]struct{}
}

type listener struct {
	names   []string // all queues if empty
	wakeups chan jq.Wakeup
	forget  func() bool // lets go of the listener's context
}

// unread is how many wake-ups a slow reader can leave waiting before it loses some.
const unread = 64

func (h *hub) subscribe(ctx context.Context, names []string) (<-chan jq.Wakeup, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, jq.ErrClosed
	}
	if h.listeners == nil {
		h.listeners = map[*listener]struct{}{}
	}
	l := &listener{names: slices.Clone(names), wakeups: make(chan jq.Wakeup, unread)}
	h.listeners[l] = struct{}{}
	l.forget = context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.end(l)
	})
	return l.wakeups, nil
}

// end closes the listener's channel, unless that has been done. The caller has the lock.
func (h *hub) end(l *listener) {
	if _, there := h.listeners[l]; there {
		delete(h.listeners, l)
		l.forget()
		close(l.wakeups)
	}
}

// tell wakes whoever listens to one of the queues.
func (h *hub) tell(queues map[string]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.listeners {
		for queue, woken := range queues {
			if woken && (len(l.names) == 0 || slices.Contains(l.names, queue)) {
				l.offer(jq.Wakeup{Queue: queue})
			}
		}
	}
}

func (l *listener) offer(w jq.Wakeup) {
	select {
	case l.wakeups <- w:
	default:
	}
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for l := range h.listeners {
		h.end(l)
	}
}
