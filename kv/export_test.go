package kv

import (
	"context"
	"log/slog"
	"time"
)

// On returns options for a store on a machine whose clocks the test sets. The store keeps and follows the time by Look alone.
func On(wall func() time.Time, steady func() time.Duration) *Options {
	return &Options{machine: &machine{wall, steady}}
}

// Look makes the store look at the time of the engine once, as a store that is open does each second.
func (s *Store) Look(ctx context.Context) error { return s.keeper.look(ctx) }

// Now returns the time of the store.
func (s *Store) Now() time.Time { return s.now() }

// KeepsTime reports whether the store is the one that keeps the time.
func (s *Store) KeepsTime() bool { return s.keeper.keeps }

// A Timekeeper is that of a store that has not opened yet.
type Timekeeper = timekeeper

// NewTimekeeper returns one of a machine.
func NewTimekeeper(e Engine, of *Options) *Timekeeper {
	return newTimekeeper(e, of.machine, slog.Default())
}

// Look is a look of a store that opens. It reports whether the time is known, so that the store is open.
func (k *timekeeper) Look(ctx context.Context) (bool, error) {
	err := k.look(ctx)
	k.opened = k.told && err == nil
	return k.opened, err
}

// Open returns how many stores the last tick that was seen counts as open.
func (s *Store) Open() int { return s.keeper.seen.Open }

// Now returns the time.
func (k *timekeeper) Now() time.Time { return k.now() }
