package kv

import (
	"context"
	"time"
)

// On returns options for a store on a machine whose clocks the test sets. The store keeps and follows the time by Look alone.
func On(wall func() time.Time, steady func() time.Duration) *Options {
	return &Options{machine: &machine{wall, steady}}
}

// Look makes the store look at the time of the engine once, as a store that is open does each second.
func (s *Store) Look(ctx context.Context) error {
	_, err := s.keeper.look(ctx)
	return err
}

// Now returns the time of the store.
func (s *Store) Now() time.Time { return s.now() }

// KeepsTime reports whether the store is the one that keeps the time.
func (s *Store) KeepsTime() bool { return s.keeper.keeps }

// A Timekeeper is that of a store that has not opened yet.
type Timekeeper = timekeeper

// NewTimekeeper returns one of a machine.
func NewTimekeeper(e Engine, of *Options) *Timekeeper {
	return newTimekeeper(e, of.machine)
}

// Look is a look of a store that opens. It reports whether the time is known, so that the store is open.
func (k *timekeeper) Look(ctx context.Context) (bool, error) {
	_, err := k.look(ctx)
	return k.told, err
}

// Open returns how many stores the last tick that was seen counts as open.
func (s *Store) Open() int { return s.keeper.seen.Open }

// Close does what Close does of the time.
func (k *timekeeper) Close() { k.close() }

// Now returns the time.
func (k *timekeeper) Now() time.Time { return k.now() }

// IsKeeper reports whether the store has the name, under which it keeps the time.
func (s *Store) IsKeeper(name string) bool { return s.keeper.name == name }

// Share makes a call that may share a commit. It puts the key after the function has returned.
func (s *Store) Share(ctx context.Context, key string, decide func()) error {
	_, err := together(ctx, s, &s.adds, nil, itemWeight, ask{}, func(t *txn) struct{} {
		decide()
		t.putBlind([]byte(key), "")
		return struct{}{}
	})
	return err
}

// Walk sets when the store raises marks, and how far they stay behind the time.
func (s *Store) Walk(most int, behind time.Duration) { s.walks.most, s.walks.behind = most, behind }

// RaiseAlways makes the store raise each mark at each look, up to its time, whatever its engine is.
func (s *Store) RaiseAlways() {
	s.marks = true
	s.Walk(0, 0)
}
