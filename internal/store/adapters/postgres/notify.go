package postgres

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
	"github.com/seed-ed332417/jq/internal/store/wake"
)

// pollEvery is how often, in real time, the store polls the queues if it cannot listen.
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

// channel returns the name of the schema's notification channel.
func (s *Store) channel() string { return "jq " + s.options.Schema }

// told returns the payload of a notification: the queue, and the store that sends it. A store has already told its own
// subscribers, so it ignores notifications with its own name. The name is left out if that store must hear the notification
// too.
func told(by, queue string) string { return by + "/" + queue }

// notifyEvery limits how often a queue's notifications are sent: two transactions that notify cannot commit at once.
const notifyEvery = 10 * time.Millisecond

// A notifyLimiter decides when to notify about a queue: with the commit, or a little later for several commits.
type notifyLimiter struct {
	s *Store

	mu      sync.Mutex           // guards the fields below
	latest  map[string]time.Time // when a notification about a queue was last sent
	pending map[string]time.Time // when the latest commit that still needs a notification was
}

func newNotifyLimiter(s *Store) *notifyLimiter {
	return &notifyLimiter{s: s, latest: map[string]time.Time{}, pending: map[string]time.Time{}}
}

// sort splits the queues into those to notify about with the commit, and afterwards.
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

// put schedules notifications about the queues, unless a later commit sends them.
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

// due reports whether a pending notification must be sent now.
func (l *notifyLimiter) due(queue string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	latest := l.latest[queue]
	switch {
	case latest.After(l.pending[queue]): // a later commit has sent the notification
		delete(l.pending, queue)
		return false
	case time.Since(latest) < notifyEvery: // a commit has just notified about a part, and the next one may do so for the rest
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

// A hub passes wake-ups to subscribers. One goroutine receives them from the server, from the first subscription on.
type hub struct {
	wake.Hub
	s *Store

	started   sync.Once
	ctx       context.Context // ends when the store is closed, which ends the goroutine
	quit      func()
	listening chan struct{} // closed when wake-ups arrive
	done      chan struct{} // closed when no more will arrive
}

func newHub(s *Store) *hub {
	ctx, quit := context.WithCancel(context.Background())
	return &hub{s: s, ctx: ctx, quit: quit, listening: make(chan struct{}), done: make(chan struct{})}
}

// ready waits until the store listens, but not long: wake-ups are not guaranteed.
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
	if h.s.listen == nil {
		h.poll()
	} else {
		h.listen()
	}
}

// Tell is wake.Hub's Tell, and also notes for later claims that jobs are claimable.
func (h *hub) Tell(queues ...string) {
	h.s.cursors.Tell(queues)
	h.Hub.Tell(queues...)
}

// Close is wake.Hub's Close, and also waits for the goroutine.
func (h *hub) Close() {
	h.Hub.Close()
	h.quit()
	h.started.Do(func() { close(h.done) }) // nobody has subscribed
	<-h.done
}

// listen passes on the server's notifications. With each new connection it wakes every queue, since it may have missed some.
func (h *hub) listen() {
	var first sync.Once
	connected := func() {
		first.Do(func() { close(h.listening) })
		h.lookAround()
	}
	h.s.listen(h.ctx, h.s.channel(), connected, func(payload string) {
		if by, queue, _ := strings.Cut(payload, "/"); by != h.s.name { // the store tells its own subscribers after the commit
			h.Tell(queue)
		}
	})
}

// poll wakes all subscribers regularly. Mostly there is nothing new, but a claim that finds nothing costs little.
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

// lookAround wakes every queue that has waiting jobs.
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
