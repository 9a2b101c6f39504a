package bbolt

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/contract"
)

// Subscribe returns a channel of wake-ups for the queues. Only this process changes the file, so it knows about every
// change.
func (s *Store) Subscribe(ctx context.Context, names []string) (<-chan contract.Wakeup, error) {
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

// A hub sends wake-ups to listeners without waiting for them.
type hub struct {
	mu        sync.Mutex // guards the fields below
	closed    bool
	listeners map[*listener]struct{}
	alarms    map[string]*clock.Timer // by queue
}

type listener struct {
	names   []string // all queues if empty
	wakeups chan contract.Wakeup
	forget  func() bool // detaches the listener from its context
}

// unread is how many unread wake-ups a slow reader can have before it loses some.
const unread = 64

func (h *hub) subscribe(ctx context.Context, names []string) (<-chan contract.Wakeup, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, contract.ErrClosed
	}
	if h.listeners == nil {
		h.listeners = map[*listener]struct{}{}
	}
	l := &listener{names: slices.Clone(names), wakeups: make(chan contract.Wakeup, unread)}
	h.listeners[l] = struct{}{}
	l.forget = context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.end(l)
	})
	return l.wakeups, nil
}

// end closes the listener's channel once. The caller must hold the lock.
func (h *hub) end(l *listener) {
	if _, there := h.listeners[l]; there {
		delete(h.listeners, l)
		l.forget()
		close(l.wakeups)
	}
}

// tell sends the wake-ups to the listeners of their queues.
func (h *hub) tell(wakeups map[contract.Wakeup]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.listeners {
		for w := range wakeups {
			if len(l.names) == 0 || slices.Contains(l.names, w.Queue) {
				l.offer(w)
			}
		}
	}
}

// tellLater sends a wake-up for each queue after a while. The latest call for a queue replaces the earlier ones: it knows best when there is
// room.
func (h *hub) tellLater(c clock.Clock, waits map[string]time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for queue, wait := range waits {
		if before := h.alarms[queue]; before != nil {
			before.Stop()
		}
		if h.alarms == nil {
			h.alarms = map[string]*clock.Timer{}
		}
		h.alarms[queue] = c.AfterFunc(wait, func() { h.tell(map[contract.Wakeup]bool{{Queue: queue}: true}) })
	}
}

func (l *listener) offer(w contract.Wakeup) {
	select {
	case l.wakeups <- w:
	default:
	}
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, alarm := range h.alarms {
		alarm.Stop()
	}
	for l := range h.listeners {
		h.end(l)
	}
}
