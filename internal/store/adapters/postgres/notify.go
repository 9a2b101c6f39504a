package postgres

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/lib/pq"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
	"github.com/seed-ed332417/jq/internal/store/wake"
)

// pollEvery is how often, in real time, the queues are looked at where nobody can listen.
const pollEvery = 500 * time.Millisecond

// Subscribe is part of the contract.
func (s *Store) Subscribe(ctx context.Context, queues []string) (<-chan store.Wakeup, error) {
	if err := sqlkit.Admit(ctx, s.closed, nil); err != nil {
		return nil, err
	}
	wakeups, err := s.hub.Subscribe(ctx, queues)
	if err != nil {
		return nil, err
	}
	if err := s.hub.ready(ctx); err != nil {
		return nil, sqlkit.Because(ctx, s.closed, ours(err))
	}
	return wakeups, nil
}

// channel is what the store's wake-ups are sent on: each schema has its own.
func (s *Store) channel() string { return "jq " + s.options.Schema }

// told is what the server tells all who listen on the channel: of which queue, and by which store. That has told its own
// listeners by then; it gives no name where they have to hear it as well.
func told(by, queue string) string { return by + "/" + queue }

// notifyEvery is how often a queue's wake-ups are sent, at most: two transactions that send any can not commit at once.
const notifyEvery = 10 * time.Millisecond

// A notifyLimiter decides when the server is to tell of a queue: at once, with the commit, or a little later for several.
type notifyLimiter struct {
	s *Store

	mu      sync.Mutex           // guards what follows
	latest  map[string]time.Time // when the server was last sent to tell of a queue
	pending map[string]time.Time // when what is still to be told of was last committed
}

func newNotifyLimiter(s *Store) *notifyLimiter {
	return &notifyLimiter{s: s, latest: map[string]time.Time{}, pending: map[string]time.Time{}}
}

// sort says of which queues to tell with the commit, and of which afterwards.
func (l *notifyLimiter) sort(queues []string) (now, later []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range queues {
		if time.Since(l.latest[q]) < notifyEvery {
			later = append(later, q)
			continue
		}
		now = append(now, q)
		if len(l.latest) >= cursor.MaxQueues {
			clear(l.latest)
		}
		l.latest[q] = time.Now()
	}
	return now, later
}

// put tells of the queues in a while, unless a later commit does.
func (l *notifyLimiter) put(queues []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range queues {
		if _, waits := l.pending[q]; !waits {
			l.later(q)
		}
		l.pending[q] = time.Now()
	}
}

func (l *notifyLimiter) later(queue string) {
	time.AfterFunc(notifyEvery, func() {
		if l.due(queue) {
			l.s.background(func(ctx context.Context) { l.tell(ctx, queue) })
		}
	})
}

// due says whether a queue that waits is to be told of now.
func (l *notifyLimiter) due(queue string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	latest := l.latest[queue]
	switch {
	case latest.After(l.pending[queue]): // a commit has told of all that waits
		delete(l.pending, queue)
		return false
	case time.Since(latest) < notifyEvery: // a commit has told of a part just now, and the next one may tell of the rest
		l.later(queue)
		return false
	default:
		delete(l.pending, queue)
		l.latest[queue] = time.Now()
		return true
	}
}

func (l *notifyLimiter) tell(ctx context.Context, queue string) {
	l.s.roundTrips.transactions.Add(1)
	l.s.roundTrips.messages.Add(1)
	_, _ = l.s.db.ExecContext(ctx, `SELECT pg_notify($1, $2)`, l.s.channel(), told(l.s.name, queue)) // a wake-up may be lost
}

// A hub hands wake-ups to those who listen. One goroutine gets them from the server, from the first subscription on.
type hub struct {
	wake.Hub
	s *Store

	started   sync.Once
	ctx       context.Context // ends when the store is closed, and with it the goroutine
	quit      func()
	listening chan struct{} // closed when wake-ups come
	done      chan struct{} // closed when none will come any more
}

func newHub(s *Store) *hub {
	ctx, quit := context.WithCancel(context.Background())
	return &hub{s: s, ctx: ctx, quit: quit, listening: make(chan struct{}), done: make(chan struct{})}
}

// ready waits until wake-ups come, but not long: none is promised.
func (h *hub) ready(ctx context.Context) error {
	h.started.Do(func() { go h.run() })
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

func (h *hub) run() {
	defer close(h.done)
	if h.s.options.Pooled && h.s.options.ListenDSN == "" {
		h.poll()
	} else {
		h.listen()
	}
}

// Tell is that of wake.Hub, and tells the claims to come.
func (h *hub) Tell(queues ...string) {
	h.s.cursors.Tell(queues)
	h.Hub.Tell(queues...)
}

// Close is that of wake.Hub, and waits for the goroutine.
func (h *hub) Close() {
	h.Hub.Close()
	h.quit()
	h.started.Do(func() { close(h.done) }) // where nobody has wanted wake-ups
	<-h.done
}

// listen passes on what the server tells. While there was no connection, every queue may have been told of.
func (h *hub) listen() {
	dsn := h.s.options.ListenDSN
	server := pq.NewListener(dsn, 100*time.Millisecond, 10*time.Second, nil)
	stop := context.AfterFunc(h.ctx, func() { _ = server.Close() })
	defer func() {
		stop()
		_ = server.Close() // once more does no harm
	}()
	if err := server.Listen(h.s.channel()); err != nil {
		return // the store was closed
	}
	close(h.listening)
	h.lookAround() // who has subscribed may have waited for the server before it listened
	for {
		select {
		case <-h.ctx.Done():
			return
		case n, open := <-server.Notify:
			switch {
			case !open:
				return
			case n == nil:
				h.lookAround()
			default:
				if by, queue, _ := strings.Cut(n.Extra, "/"); by != h.s.name { // ours were told after the commit
					h.Tell(queue)
				}
			}
		}
	}
}

// poll wakes everybody every so often, for nothing more often than not: a claim that finds nothing costs little.
func (h *hub) poll() {
	close(h.listening)
	look := time.NewTicker(pollEvery)
	defer look.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-look.C:
			if h.TellNamed() {
				h.lookAround()
			}
		}
	}
}

// lookAround tells of every queue with waiting jobs.
func (h *hub) lookAround() {
	names, err := once(h.ctx, h.s, h.s.with.get, (*txn).waitingQueues)
	if err == nil {
		h.Tell(names...)
	}
}

func (t *txn) waitingQueues() ([]string, error) {
	return sqlkit.Names(t.each, `
		SELECT * FROM (`+readyQueues+`) AS ready
		UNION
		SELECT * FROM (`+retryingQueues+`) AS retrying`)
}
