// Package wake delivers wake-ups to the listeners in this process. Several stores share it. Each store decides for itself when
// to send a wake-up.
package wake

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/store"
)

// pending is how many wake-ups a slow subscriber can leave unread before it loses some.
const pending = 64

// A Hub delivers wake-ups to listeners and never waits for a listener. The zero value is ready for use. Any goroutine may call
// its methods at any time.
type Hub struct {
	mu        sync.Mutex // guards the fields below
	closed    bool
	listeners map[*listener]struct{}
	alarms    map[string]alarm // by queue
}

// An alarm tells the listeners of a queue at a time.
type alarm struct {
	at    time.Time
	timer *clock.Timer
}

type listener struct {
	queues []string // empty means every queue
	out    chan store.Wakeup
	stop   func() bool // stops watching the context
}

// Subscribe returns a channel of wake-ups for the named queues, or for every queue if none is named. The channel is closed when
// the context ends or the hub is closed. Subscribe returns ErrInvalid for a queue name that breaks a limit, and ErrClosed after
// Close.
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

// For returns wake-ups that say that jobs of the queues are claimable.
func For(queues []string) []store.Wakeup {
	wakeups := make([]store.Wakeup, len(queues))
	for i, q := range queues {
		wakeups[i].Queue = q
	}
	return wakeups
}

// Tell sends each wake-up to every listener of its queue, or to every listener if something is to settle. A listener that has left too many
// wake-ups unread loses this one, or another.
func (h *Hub) Tell(wakeups ...store.Wakeup) {
	if len(wakeups) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.listeners {
		for _, w := range wakeups {
			if w.Settle || len(l.queues) == 0 || slices.Contains(l.queues, w.Queue) {
				l.tell(w)
			}
		}
	}
}

// TellLater sends every listener of the queue a wake-up after a while, unless it is going to send one before.
func (h *Hub) TellLater(c clock.Clock, wait time.Duration, queue string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := c.Now().Add(wait)
	before, set := h.alarms[queue]
	if h.closed || set && !at.Before(before.at) {
		return
	}
	if set {
		before.timer.Stop()
	}
	if h.alarms == nil {
		h.alarms = map[string]alarm{}
	}
	h.alarms[queue] = alarm{at, c.AfterFunc(wait, func() {
		h.forget(queue, at)
		h.Tell(store.Wakeup{Queue: queue})
	})}
}

// forget forgets an alarm, unless another one has taken its place.
func (h *Hub) forget(queue string, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.alarms[queue].at.Equal(at) {
		delete(h.alarms, queue)
	}
}

// TellNamed sends every listener a wake-up for each queue that it has named, with Cancelled as given. It reports whether there is a
// listener that has named no queue.
func (h *Hub) TellNamed(cancelled bool) (unnamed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.listeners {
		unnamed = unnamed || len(l.queues) == 0
		for _, q := range l.queues {
			l.tell(store.Wakeup{Queue: q, Cancelled: cancelled})
		}
	}
	return unnamed
}

// tell loses the wake-up if there is no room. One with Settle takes the room of another, since nobody looks often for what is to settle.
func (l *listener) tell(w store.Wakeup) {
	select {
	case l.out <- w:
		return
	default:
	}
	if w.Settle {
		select {
		case <-l.out:
		default:
		}
		select {
		case l.out <- w:
		default:
		}
	}
}

// Silent reports whether there are no listeners.
func (h *Hub) Silent() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.listeners) == 0
}

// Close ends every subscription and refuses new ones. It is fine to call Close twice.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, a := range h.alarms {
		a.timer.Stop()
	}
	clear(h.alarms)
	for l := range h.listeners {
		l.stop()
		close(l.out)
	}
	clear(h.listeners)
}
