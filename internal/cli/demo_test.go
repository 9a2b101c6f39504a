package cli

import (
	"bufio"
	"bytes"
	"context"
	"testing"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
)

// liar is a store that returns ok for every Ack, even a stale one.
type liar struct{ jq.Store }

func (l liar) Ack(ctx context.Context, acks []contract.Ack) ([]jq.Outcome, error) {
	outcomes, err := l.Store.Ack(ctx, acks)
	for i := range outcomes {
		outcomes[i].Status = contract.StatusOK
	}
	return outcomes, err
}

// forgetful is a store whose recovery finds nothing.
type forgetful struct{ jq.Store }

func (forgetful) RecoverExpiredLeases(context.Context, contract.RecoverRequest) ([]jq.Recovered, error) {
	return nil, nil
}

func TestDemoFailsOnAStoreThatBreaksItsContract(t *testing.T) {
	cases := []struct {
		name string
		with func(jq.Store) jq.Store
		want string
	}{
		{"StaleAckAccepted", func(s jq.Store) jq.Store { return liar{s} }, "A's late Ack: got ok, want stale"},
		{"ExpiredLeaseNotRecovered", func(s jq.Store) jq.Store { return forgetful{s} }, "leases recovered: got 0, want 1"},
	}
	for _, k := range cases {
		t.Run(k.name, func(t *testing.T) {
			s := newStory(k.with)
			assert.ErrorContains(t, s.run(t.Context()), k.want)
		})
	}
}

func TestDemoEndsWhenItIsInterrupted(t *testing.T) {
	s := newStory(func(s jq.Store) jq.Store { return s })
	s.slow = true
	ctx, cancel := context.WithCancel(t.Context())
	s.store = interrupter{s.store, cancel}
	assert.ErrorIs(t, s.run(ctx), context.Canceled)
}

// interrupter is a store whose user presses Ctrl-C right after the first jobs are enqueued.
type interrupter struct {
	jq.Store
	interrupt func()
}

func (i interrupter) Enqueue(ctx context.Context, req jq.EnqueueRequest) ([]jq.Enqueued, error) {
	defer i.interrupt()
	return i.Store.Enqueue(ctx, req)
}

func newStory(with func(jq.Store) jq.Store) *story {
	clk := clock.NewMock()
	clk.Set(demoStart)
	return &story{store: with(jq.NewMemory(&jq.MemoryOptions{Clock: clk})), clock: clk, out: bufio.NewWriter(&bytes.Buffer{})}
}
