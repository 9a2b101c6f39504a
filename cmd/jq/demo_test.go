package main

import (
	"bufio"
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
)

// liar is a store that answers ok to every Ack, stale or not.
type liar struct{ store.Store }

func (l liar) Ack(ctx context.Context, acks []store.Ack) ([]store.Outcome, error) {
	outcomes, err := l.Store.Ack(ctx, acks)
	for i := range outcomes {
		outcomes[i].Status = store.StatusOK
	}
	return outcomes, err
}

// forgetful is a store whose recovery finds nothing.
type forgetful struct{ store.Store }

func (forgetful) RecoverExpiredLeases(context.Context, store.RecoverRequest) ([]store.Recovered, error) {
	return nil, nil
}

func TestDemoFailsOnAStoreThatBreaksItsContract(t *testing.T) {
	cases := []struct {
		name string
		with func(store.Store) store.Store
		want string
	}{
		{"StaleAckAccepted", func(s store.Store) store.Store { return liar{s} }, "A's late Ack: got ok, want stale"},
		{"ExpiredLeaseNotRecovered", func(s store.Store) store.Store { return forgetful{s} }, "leases recovered: got 0, want 1"},
	}
	for _, k := range cases {
		t.Run(k.name, func(t *testing.T) {
			s := newStory(k.with)
			assert.ErrorContains(t, s.tell(t.Context()), k.want)
		})
	}
}

func TestDemoEndsWhenItIsInterrupted(t *testing.T) {
	s := newStory(func(s store.Store) store.Store { return s })
	s.pause = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	s.store = interrupter{s.store, cancel}
	assert.EqualError(t, s.tell(ctx), "interrupted")
}

// interrupter is a store whose user presses Ctrl-C right after the first jobs are enqueued.
type interrupter struct {
	store.Store
	interrupt func()
}

func (i interrupter) Enqueue(ctx context.Context, req store.EnqueueRequest) ([]store.Enqueued, error) {
	defer i.interrupt()
	return i.Store.Enqueue(ctx, req)
}

func newStory(with func(store.Store) store.Store) *story {
	clk := clock.NewMock()
	clk.Set(demoStart)
	return &story{store: with(memory.New(memory.Options{Clock: clk})), clock: clk, out: bufio.NewWriter(&bytes.Buffer{})}
}
