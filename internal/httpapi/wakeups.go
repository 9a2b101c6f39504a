package httpapi

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// waiters holds the waiting claims. A wake-up for a queue goes to one of them, which passes it on if it has found a job. So
// one enqueued job costs one claim however many wait, and a hundred jobs wake as many claims as they can serve.
type waiters struct {
	mu      sync.Mutex
	byQueue map[string][]*waiter // in the order in which they will be woken
}

type waiter struct {
	queues []string
	woken  chan string // the queue
}

func (w *waiters) join(queues []string) *waiter {
	one := &waiter{queues: queues, woken: make(chan string, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byQueue == nil {
		w.byQueue = map[string][]*waiter{}
	}
	for _, q := range queues {
		w.byQueue[q] = append(w.byQueue[q], one)
	}
	return one
}

// leave removes the waiter, and passes on a wake-up that it has not used.
func (w *waiters) leave(one *waiter) {
	w.mu.Lock()
	for _, q := range one.queues {
		rest := slices.DeleteFunc(w.byQueue[q], func(other *waiter) bool { return other == one })
		if w.byQueue[q] = rest; len(rest) == 0 {
			delete(w.byQueue, q)
		}
	}
	w.mu.Unlock()
	select {
	case queue := <-one.woken:
		w.tell(queue)
	default:
	}
}

// tell wakes the next waiter that is not awake yet.
func (w *waiters) tell(queue string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	waiting := w.byQueue[queue]
	for i, one := range waiting {
		select {
		case one.woken <- queue:
			w.byQueue[queue] = append(slices.Delete(waiting, i, i+1), one)
			return
		default:
		}
	}
}

// tellAll wakes one waiter of each queue.
func (w *waiters) tellAll() {
	w.mu.Lock()
	queues := make([]string, 0, len(w.byQueue))
	for q := range w.byQueue {
		queues = append(queues, q)
	}
	w.mu.Unlock()
	for _, q := range queues {
		w.tell(q)
	}
}

// poll regularly wakes waiting claims, and ends expired tokens and sessions, until the API is closed. It is needed because
// jobs become due without a wake-up, and wake-ups get lost. The pause varies, so that servers do not poll at the same time.
func (a *API) poll() {
	for {
		select {
		case <-a.life.Done():
			return
		case <-a.clock.After(a.vary(a.options.PollPause)):
			a.bearers.endExpired()
			a.sessions.sweep()
			a.refusals.tell()
			a.waiters.tellAll()
		}
	}
}

func (a *API) vary(pause time.Duration) time.Duration {
	return pause - time.Duration(rand.Int64N(int64(pause)/5+1))
}

// listen passes the store's wake-ups to the waiters. If the store has no wake-ups, the poll has to suffice.
func (a *API) listen(n store.Notifier) {
	for a.life.Err() == nil {
		wakeups, err := n.Subscribe(a.life, nil)
		if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, store.ErrClosed) {
			return
		}
		if err == nil {
			for wakeup := range wakeups {
				if !wakeup.Cancelled && !wakeup.Settle {
					a.waiters.tell(wakeup.Queue)
				}
			}
		} else {
			a.log.Warn("jq: no wake-ups, queues are polled until there are", "error", err)
		}
		select {
		case <-a.life.Done():
		case <-a.clock.After(a.vary(5 * time.Second)):
		}
	}
}

// wakeups streams the store's wake-ups.
func (a *API) wakeups(w *exchange, r *http.Request) error {
	notifier, err := able[store.Notifier](r.Context(), a)
	if err != nil {
		return err
	}
	req, err := decode[wire.Wakeups](w, r)
	if err != nil {
		return err
	}
	if len(req.Queues) > store.MaxItems {
		return refuse("queues", fmt.Sprintf("must be at most %d", store.MaxItems))
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	wakeups, err := notifier.Subscribe(ctx, req.Queues) // subscribe before the stream begins: its first line says that no wake-up is missed from now on
	if err != nil {
		return named(err, "queue", "queues")
	}
	s, err := a.stream(w, r)
	if err != nil {
		return err
	}
	defer s.close()
	for s.send() {
		select {
		case wakeup, open := <-wakeups:
			if !open {
				return nil
			}
			if !wakeup.Settle { // which this server does for all its clients
				s.event("", "wakeup", wire.Wakeup{Queue: wakeup.Queue, Cancelled: wakeup.Cancelled})
			}
		case <-s.ctx.Done():
		case <-s.silent.C:
			s.sign()
		}
	}
	return nil
}
