package memory

import (
	"context"
	"slices"

	"github.com/seed-ed332417/jq/internal/store"
)

// wakeupsKept is how many wake-ups a slow reader can leave waiting before it loses some.
const wakeupsKept = 64

// A subscription is one reader of wake-ups.
type subscription struct {
	wakeups chan store.Wakeup
	queues  []string    // all if empty
	forget  func() bool // lets go of the reader's context
}

// Subscribe returns a channel of wake-ups for the queues. It does not wait for an open transaction.
func (s *Store) Subscribe(ctx context.Context, queues []string) (<-chan store.Wakeup, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.admit(ctx, checkQueues(queues)); err != nil {
		return nil, err
	}
	sub := &subscription{wakeups: make(chan store.Wakeup, wakeupsKept), queues: slices.Clone(queues)}
	s.subscriptions[sub] = struct{}{}
	sub.forget = context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unsubscribe(sub)
	})
	return sub.wakeups, nil
}

func checkQueues(names []string) error {
	for _, name := range names {
		if err := store.CheckQueue(name); err != nil {
			return err
		}
	}
	return nil
}

// unsubscribe ends a subscription, unless it has ended.
func (s *Store) unsubscribe(sub *subscription) {
	if _, ok := s.subscriptions[sub]; !ok {
		return
	}
	delete(s.subscriptions, sub)
	sub.forget()
	close(sub.wakeups)
}

// wake notes that a claim from the queue may find something once the call, or the transaction, has its effect.
func (s *Store) wake(queue string) {
	if len(s.subscriptions) == 0 && s.tx == nil {
		return
	}
	if !slices.Contains(s.woken, queue) {
		s.woken = append(s.woken, queue)
	}
}

// announce tells the subscribers what was noted, those at least that keep up.
func (s *Store) announce() {
	for _, queue := range s.woken {
		for sub := range s.subscriptions {
			sub.offer(store.Wakeup{Queue: queue})
		}
	}
	s.woken = s.woken[:0]
}

func (sub *subscription) offer(w store.Wakeup) {
	if len(sub.queues) > 0 && !slices.Contains(sub.queues, w.Queue) {
		return
	}
	select {
	case sub.wakeups <- w:
	default:
	}
}
