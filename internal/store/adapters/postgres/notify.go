package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lib/pq"

	"github.com/seed-ed332417/jq/internal/store"
)

// pending is how many wake-ups a slow reader can leave unread before it loses some.
const pending = 64

// pollEvery is how often, in real time, the queues are looked at where nobody can listen.
const pollEvery = 500 * time.Millisecond

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
	wakeups, err := s.hub.subscribe(ctx, queues)
	if err != nil {
		return nil, err
	}
	if err := s.hub.ready(ctx); err != nil {
		return nil, s.closedOr(because(ctx, err))
	}
	return wakeups, nil
}

// channel is what the store's wake-ups are sent on: each schema has its own.
func (s *Store) channel() string { return "jq " + s.options.Schema }

// heraldEvery is how often a queue's wake-ups are sent, at most: two transactions that send any can not commit at once.
const heraldEvery = 10 * time.Millisecond

// A herald decides when the server is to tell of a queue: at once, with the commit, or a little later for several.
type herald struct {
	s *Store

	mu      sync.Mutex // guards what follows
	latest  map[string]time.Time
	pending map[string]bool
}

func newHerald(s *Store) *herald {
	return &herald{s: s, latest: map[string]time.Time{}, pending: map[string]bool{}}
}

// sort says of which queues to tell with the commit, and of which afterwards.
func (h *herald) sort(queues []string) (now, later []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, q := range queues {
		if time.Since(h.latest[q]) < heraldEvery {
			later = append(later, q)
			continue
		}
		now = append(now, q)
		if len(h.latest) == mostTrail {
			clear(h.latest)
		}
		h.latest[q] = time.Now()
	}
	return now, later
}

// put tells of the queues in a while, unless that is to be done already.
func (h *herald) put(queues []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, q := range queues {
		if !h.pending[q] {
			h.pending[q] = true
			time.AfterFunc(heraldEvery, func() { h.s.aside(func(ctx context.Context) { h.tell(ctx, q) }) })
		}
	}
}

func (h *herald) tell(ctx context.Context, queue string) {
	h.mu.Lock()
	delete(h.pending, queue)
	h.latest[queue] = time.Now()
	h.mu.Unlock()
	_, _ = h.s.db.ExecContext(ctx, `SELECT pg_notify($1, $2)`, h.s.channel(), queue) // a wake-up may be lost
}

// A hub hands wake-ups to those who listen. One goroutine gets them from the server, from the first subscription on.
type hub struct {
	s *Store

	mu        sync.Mutex // guards what follows
	closed    bool
	listeners map[*listener]struct{}
	listening chan struct{} // closed when wake-ups come; nil before anybody wants them
	quit      func()        // ends the goroutine
	done      chan struct{} // closed when it has ended
}

type listener struct {
	queues []string // none means all
	out    chan store.Wakeup
	stop   func() bool // forgets the context
}

func newHub(s *Store) *hub { return &hub{s: s, listeners: map[*listener]struct{}{}} }

func (h *hub) subscribe(ctx context.Context, queues []string) (<-chan store.Wakeup, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, fmt.Errorf("subscribing: %w", store.ErrClosed)
	}
	if h.listening == nil {
		h.start()
	}
	l := &listener{queues: slices.Clone(queues), out: make(chan store.Wakeup, pending)}
	h.listeners[l] = struct{}{}
	l.stop = context.AfterFunc(ctx, func() { h.drop(l) })
	return l.out, nil
}

// start lets wake-ups come in. The caller has locked the hub.
func (h *hub) start() {
	ctx, cancel := context.WithCancel(context.Background())
	h.listening, h.quit, h.done = make(chan struct{}), cancel, make(chan struct{})
	go func() {
		defer close(h.done)
		if h.s.options.Pooled && h.s.options.ListenDSN == "" {
			h.poll(ctx)
		} else {
			h.listen(ctx)
		}
	}()
}

// ready waits until wake-ups come, but not long: none is promised.
func (h *hub) ready(ctx context.Context) error {
	patience := time.NewTimer(time.Second)
	defer patience.Stop()
	select {
	case <-h.listening:
		return nil
	case <-patience.C:
		return nil
	case <-h.done:
		return store.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
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
	h.closed = true
	for l := range h.listeners {
		l.stop()
		close(l.out)
	}
	clear(h.listeners)
	quit, done := h.quit, h.done
	h.mu.Unlock()
	if quit != nil {
		quit()
		<-done
	}
}

// tellAll wakes all who have named their queues, and says whether somebody has not.
func (h *hub) tellAll() (unnamed bool) {
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

// tell wakes the listener, unless it has left too many wake-ups unread.
func (l *listener) tell(queue string) {
	select {
	case l.out <- store.Wakeup{Queue: queue}:
	default:
	}
}

// tell wakes whoever listens to one of the queues, and holds up nobody.
func (h *hub) tell(queues ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.listeners {
		for _, q := range queues {
			if len(l.queues) > 0 && !slices.Contains(l.queues, q) {
				continue
			}
			l.tell(q)
		}
	}
}

// listen passes on what the server tells. After a connection was lost, every queue may have been told of.
func (h *hub) listen(ctx context.Context) {
	dsn := h.s.options.ListenDSN
	server := pq.NewListener(dsn, 100*time.Millisecond, 10*time.Second, nil)
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Listen(h.s.channel()); err != nil {
		return // the store was closed
	}
	close(h.listening)
	for {
		select {
		case <-ctx.Done():
			return
		case n, open := <-server.Notify:
			switch {
			case !open:
				return
			case n == nil:
				h.lookAround(ctx)
			default:
				h.tell(n.Extra)
			}
		}
	}
}

// poll wakes everybody every so often, for nothing more often than not: a claim that finds nothing costs little.
func (h *hub) poll(ctx context.Context) {
	close(h.listening)
	look := time.NewTicker(pollEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			if h.tellAll() {
				h.lookAround(ctx)
			}
		}
	}
}

// lookAround tells of every queue with waiting jobs.
func (h *hub) lookAround(ctx context.Context) {
	names, err := once(ctx, h.s, h.s.with.read, (*txn).waitingQueues)
	if err == nil {
		h.tell(names...)
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
		SELECT * FROM (`+readyQueues+`) AS ready
		UNION
		SELECT * FROM (`+retryingQueues+`) AS retrying`)
	return names, err
}
