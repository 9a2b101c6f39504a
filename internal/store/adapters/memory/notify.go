package memory

import (
	"context"
	"slices"

	"github.com/seed-ed332417/jq/internal/store"
)

// Subscribe is part of the contract. It does not wait for an open transaction.
func (s *Store) Subscribe(ctx context.Context, queues []string) (<-chan store.Wakeup, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.admit(ctx, nil); err != nil {
		return nil, err
	}
	return s.hub.Subscribe(ctx, queues)
}

// wake notes a wake-up to send once the call or the transaction takes effect.
func (s *Store) wake(w store.Wakeup) {
	if s.tx == nil && s.hub.Silent() {
		return
	}
	if !slices.Contains(s.woken, w) {
		s.woken = append(s.woken, w)
	}
}

// announce sends the noted wake-ups. A subscriber that has left too many wake-ups unread may lose some.
func (s *Store) announce() {
	s.hub.Tell(s.woken...)
	s.woken = s.woken[:0]
}
