package jqtest

import (
	"context"
	"fmt"
	"testing"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/enginetest"
	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/kv"
)

// An EngineAdapter is a kind of engine of package kv, as its cases see it.
//
// Its fields:
//
//	// New makes a place for keys, which has none.
//	New func(ctx context.Context) (*EnginePlace, error)
type EngineAdapter = enginetest.Adapter

// An EnginePlace is where one engine keeps its keys.
//
// Its fields:
//
//	// Open opens an engine on the keys. It is called again when the engine before was closed, and of a kv.Watcher or kv.Sharer also while others are open.
//	Open func(ctx context.Context) (kv.Engine, error)
//
//	// Remove takes the keys away when all engines are closed; it may be nil.
//	Remove func() error
type EnginePlace = enginetest.Place

// Engine tests an engine by itself, in seconds: each case quotes the sentence of package kv that it checks. Then run the suite on the store
// that kv makes of it, by [Run] and [EngineStores]. It does not end the process or the power: see the guide.
func Engine(t *testing.T, a EngineAdapter) {
	cases := enginetest.Cases()
	figures.Print(t, "%s: %d cases of an engine", t.Name(), len(cases))
	for _, k := range cases {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			if err := k.Run(t.Context(), a); err != nil {
				t.Errorf("%v\nkv says: %q", err, k.Sentence)
			}
		})
	}
}

// EngineStores returns the stores on such engines, for the suite.
func EngineStores(a EngineAdapter) Adapter {
	return Adapter{Exclude: KVExclusions(), AnyOrder: "waiters are told by notes, whose order is that of the clocks of stores", New: func(ctx context.Context, clk clock.Clock) (*Instance, error) {
		place, err := a.New(ctx)
		if err != nil {
			return nil, err
		}
		open := func(ctx context.Context) (contract.Store, error) {
			e, err := place.Open(ctx)
			if err != nil {
				return nil, err
			}
			return kv.Open(ctx, e, &kv.Options{Clock: clk})
		}
		return Reopened(ctx, open, place.Remove)
	}}
}

// Reopened returns an instance of a store that keeps what it has when it is closed. The function open opens it, at first and again, and remove takes away
// what it has kept; remove may be nil.
func Reopened(ctx context.Context, open func(ctx context.Context) (contract.Store, error), remove func() error) (*Instance, error) {
	s, err := open(ctx)
	if err != nil {
		return nil, err
	}
	return &Instance{
		Store: s,
		Reopen: func(ctx context.Context) (contract.Store, error) {
			if err := s.Close(); err != nil {
				return nil, fmt.Errorf("closing the store: %w", err)
			}
			again, err := open(ctx)
			if err == nil {
				s = again
			}
			return again, err
		},
		Remove: func() error {
			if err := s.Close(); err != nil {
				return fmt.Errorf("closing the store: %w", err)
			}
			if remove == nil {
				return nil
			}
			return remove()
		},
	}, nil
}
