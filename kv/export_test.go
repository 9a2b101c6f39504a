package kv

import (
	"context"
	"time"
)

// On returns options for a store on a machine whose clocks the test sets. The store keeps and follows the time by Step alone.
func On(wall func() time.Time, steady func() time.Duration) *Options {
	return &Options{machine: &machine{wall, steady}}
}

// Step makes the store look at the time of the engine once, as a store that is open does each second.
func (s *Store) Step(ctx context.Context) error { return s.keeper.step(ctx) }

// Now returns the time of the store.
func (s *Store) Now() time.Time { return s.now() }

// KeepsTime reports whether the store is the one that keeps the time.
func (s *Store) KeepsTime() bool { return s.keeper.keeps }

// A Timekeeper is that of a store that has not opened yet.
type Timekeeper = timekeeper

// NewTimekeeper returns one of a machine.
func NewTimekeeper(e Engine, of *Options) *Timekeeper { return newTimekeeper(e, of.machine) }

// Step is a look of a store that opens. It reports whether the time is known.
func (k *timekeeper) Step(ctx context.Context) (bool, error) {
	err := k.step(ctx)
	return k.joined, err
}

// Now returns the time.
func (k *timekeeper) Now() time.Time { return k.now() }
