package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// lookEvery is how often the writer looks, in real time, whether somebody else has written, while anybody listens.
const lookEvery = 50 * time.Millisecond

// pending is how many wake-ups a slow reader can leave unread before it loses some.
const pending = 64

// Subscribe is part of the contract.
func (s *Store) Subscribe(ctx context.Context, queues []string) (<-chan store.Wakeup, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	for _, q := range queues {
		if err := store.CheckQueue(q); err != nil {
			return nil, err
		}
	}
	return s.hub.subscribe(ctx, queues)
}

// A hub hands wake-ups to those who listen.
type hub struct {
	mu        sync.Mutex // guards what follows
	closed    bool
	listeners map[*listener]struct{}
}

type listener struct {
	queues []string // none means all
	out    chan store.Wakeup
	stop   func() bool // forgets the context
}

func newHub() *hub { return &hub{listeners: map[*listener]struct{}{}} }

func (h *hub) subscribe(ctx context.Context, queues []string) (<-chan store.Wakeup, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, fmt.Errorf("subscribing: %w", store.ErrClosed)
	}
	l := &listener{queues: slices.Clone(queues), out: make(chan store.Wakeup, pending)}
	h.listeners[l] = struct{}{}
	l.stop = context.AfterFunc(ctx, func() { h.drop(l) })
	return l.out, nil
}

func (h *hub) drop(l *listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, there := h.listeners[l]; there {
		delete(h.listeners, l)
		close(l.out)
	}
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for l := range h.listeners {
		l.stop()
		close(l.out)
	}
	clear(h.listeners)
}

// silent says that nobody listens.
func (h *hub) silent() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.listeners) == 0
}

// tell wakes whoever listens to one of the queues, and holds up nobody.
func (h *hub) tell(queues ...string) {
	if len(queues) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.listeners {
		for _, q := range queues {
			if len(l.queues) > 0 && !slices.Contains(l.queues, q) {
				continue
			}
			select {
			case l.out <- store.Wakeup{Queue: q}:
			default:
			}
		}
	}
}

// lookAround tells of what others have committed: other processes, and callers' transactions. Which queue they wrote to is
// not known, so every queue with waiting jobs is told of.
func (w *writer) lookAround() {
	if w.hub.silent() || w.connect() != nil {
		return
	}
	var version int64
	if err := w.kept.QueryRowContext(w.ctx, `PRAGMA data_version`).Scan(&version); err != nil || version == w.seen {
		return
	}
	w.seen = version
	t := &txn{ctx: w.ctx, tx: w.kept}
	if names, err := t.waitingQueues(); err == nil {
		w.hub.tell(names...)
	}
}

func (t *txn) waitingQueues() ([]string, error) {
	var names []string
	err := t.each(func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		names = append(names, name)
		return err
	}, `
		SELECT * FROM (`+readyQueues+`)
		UNION
		SELECT * FROM (`+retryingQueues+`)`)
	return names, err
}
