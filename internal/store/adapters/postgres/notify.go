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

// told returns the payload of a notification: the store that sends it, a mark if jobs in flight were cancelled or something is to settle,
// and the queue. A store has already told its own subscribers, so it ignores notifications with its own name. The name is left out if that
// store must hear the notification too.
//
// The mark stands with the name, which consists of letters and digits. A program from before there was the mark takes it for a
// part of the name, and makes one claim that finds nothing.
func told(by string, w store.Wakeup) string {
	if w.Cancelled {
		by += cancelledMark
	}
	if w.Settle {
		by += settleMark
	}
	return by + "/" + w.Queue
}

// heard reads the payload of a notification.
func heard(payload string) (by string, w store.Wakeup) {
	by, w.Queue, _ = strings.Cut(payload, "/")
	by, w.Settle = strings.CutSuffix(by, settleMark)
	by, w.Cancelled = strings.CutSuffix(by, cancelledMark)
	return by, w
}

const cancelledMark, settleMark = "!", "?"

// toFollow is the payload of a notification that something follows from what a caller has committed.
const toFollow = "*/"

// usualNotifyEvery is the default of Options.NotifyEvery.
const usualNotifyEvery = 10 * time.Millisecond

// A notifyLimiter decides when to send a wake-up: with the commit, or a little later for several commits.
type notifyLimiter struct {
	s     *Store
	every time.Duration // see Options.NotifyEvery

	mu      sync.Mutex // guards the fields below
	latest  spacing
	pending map[store.Wakeup]time.Time // when the latest commit that still needs it was
}

func newNotifyLimiter(s *Store) *notifyLimiter {
	return &notifyLimiter{s: s, every: s.options.NotifyEvery, latest: spacing{}, pending: map[store.Wakeup]time.Time{}}
}

// between is the least time between two notifications of the wake-up. Cancellations, and what is to settle, do not wait for longer than usual.
func (l *notifyLimiter) between(w store.Wakeup) time.Duration {
	if w.Cancelled || w.Settle {
		return min(l.every, usualNotifyEvery)
	}
	return l.every
}

// sort splits the wake-ups into those to send with the commit, and afterwards.
func (l *notifyLimiter) sort(wakeups []store.Wakeup) (now, later []store.Wakeup) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.latest.sort(wakeups, l.between)
}

// unsent says that the wake-ups were not sent with the commit after all.
func (l *notifyLimiter) unsent(wakeups []store.Wakeup) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest.forget(wakeups)
}

// put schedules the wake-ups, unless a later commit sends them.
func (l *notifyLimiter) put(wakeups []store.Wakeup) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range wakeups {
		if _, waits := l.pending[w]; !waits {
			l.later(w, l.between(w))
		}
		l.pending[w] = time.Now()
	}
}

func (l *notifyLimiter) later(w store.Wakeup, after time.Duration) {
	time.AfterFunc(after, func() {
		if l.due(w) {
			l.s.background(func(ctx context.Context) { l.tell(ctx, w) })
		}
	})
}

// due reports whether a pending wake-up must be sent now.
func (l *notifyLimiter) due(w store.Wakeup) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	latest := l.latest[w]
	ago := time.Since(latest)
	switch {
	case latest.After(l.pending[w]): // a later commit has sent it
		delete(l.pending, w)
		return false
	case ago < l.between(w): // a commit has just sent it for a part, and the next one may do so for the rest
		l.later(w, l.between(w)-ago)
		return false
	default:
		delete(l.pending, w)
		l.latest[w] = time.Now()
		return true
	}
}

func (l *notifyLimiter) tell(ctx context.Context, w store.Wakeup) {
	l.s.roundTrips.transactions.Add(1)
	l.s.roundTrips.messages.Add(1)
	_, _ = l.s.db.ExecContext(ctx, `SELECT pg_notify($1, $2)`, l.s.channel(), told(l.s.name, w)) // a wake-up may be lost
}

// A spacing knows when wake-ups were last sent.
type spacing map[store.Wakeup]time.Time

// sort splits the wake-ups into those to be sent now, which it notes, and those that were sent too short a time ago.
func (s spacing) sort(wakeups []store.Wakeup, between func(store.Wakeup) time.Duration) (now, later []store.Wakeup) {
	for _, w := range wakeups {
		if time.Since(s[w]) < between(w) {
			later = append(later, w)
		} else {
			now = append(now, w)
		}
	}
	s.note(now)
	return now, later
}

// note notes that the wake-ups are sent now.
func (s spacing) note(wakeups []store.Wakeup) {
	for _, w := range wakeups {
		if len(s) >= cursor.MaxQueues {
			clear(s)
		}
		s[w] = time.Now()
	}
}

// forget says that the wake-ups were not sent after all.
func (s spacing) forget(wakeups []store.Wakeup) {
	for _, w := range wakeups {
		delete(s, w)
	}
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

// Tell is wake.Hub's Tell, and also notes for later claims which queues have claimable jobs.
func (h *hub) Tell(wakeups ...store.Wakeup) {
	for _, w := range wakeups {
		if !w.Cancelled && !w.Settle {
			h.s.cursors.Tell(w.Queue)
		}
	}
	h.Hub.Tell(wakeups...)
}

// Close is wake.Hub's Close, and also waits for the goroutine.
func (h *hub) Close() {
	h.Hub.Close()
	h.quit()
	h.started.Do(func() { close(h.done) }) // nobody has subscribed
	<-h.done
}

// listen passes on the server's notifications. With each new connection it makes up for those that it may have missed.
func (h *hub) listen() {
	var first sync.Once
	connected := func() {
		first.Do(func() { close(h.listening) })
		h.missed()
	}
	h.s.listen(h.ctx, h.s.channel(), connected, func(payload string) {
		if payload == toFollow {
			h.s.followInBackground()
			return
		}
		if by, w := heard(payload); by != h.s.name { // the store tells its own subscribers after the commit
			h.Tell(w)
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
			if h.TellNamed(false) {
				h.lookAround()
			}
		}
	}
}

// missed makes up for notifications that may have been missed while nobody listened.
func (h *hub) missed() {
	h.TellNamed(true)
	h.lookAround()
}

// lookAround wakes every queue that has waiting jobs.
func (h *hub) lookAround() {
	names, err := once(h.ctx, h.s, h.s.with.get, (*txn).waitingQueues)
	if err == nil {
		h.Tell(wake.For(names)...)
	}
}

func (t *txn) waitingQueues() ([]string, error) {
	return sqlkit.Values[string](t.each, `
		SELECT * FROM (`+readyQueues+`) AS ready
		UNION
		SELECT * FROM (`+retryingQueues+`) AS retrying`)
}
