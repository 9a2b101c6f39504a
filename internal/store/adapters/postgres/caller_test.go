package postgres

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed-ed332417/jq/internal/store"
)

// A caller makes one call after another, and knows what must be in its queue.
type caller struct {
	*load
	t     *testing.T
	s     *Store
	queue string
	known map[int64]fact
	calls int
}

// A fact is what is known of a job.
type fact struct {
	Phase    store.State
	Token    int64
	Attempts int
	Lease    int64 // the microsecond at which it ends
	Payload  string
}

func factOf(j store.Job) fact {
	f := fact{Phase: j.Phase(), Token: j.Token, Attempts: j.Attempts, Payload: string(j.Payload)}
	if !j.LeaseExpiresAt.IsZero() {
		f.Lease = j.LeaseExpiresAt.UnixMicro()
	}
	return f
}

// step makes a call. If it fails, the queue must be as the error says.
func (c *caller) step() {
	c.calls++
	m := c.choose()
	err := c.ask(m)
	if err == nil {
		m.note()
		return
	}
	wellSaid(c.t, err)
	doubt := errors.Is(err, store.ErrInDoubt)
	if doubt && m.settle != nil {
		m.settle()
	}
	after := c.facts()
	switch {
	case !maps.Equal(c.known, after):
		assert.True(c.t, doubt, "%s: %v, and yet something changed\nbefore: %v\nafter:  %v", m.name, err, c.known, after)
		assert.True(c.t, m.whole(c.known, after), "%s: %v, and it was applied in part\nbefore: %v\nafter:  %v", m.name, err, c.known, after)
		c.applied.Add(1)
	case doubt:
		c.undone.Add(1)
	default:
		c.unavailable.Add(1)
	}
	c.known = after
	for m.again && !c.t.Failed() {
		if err := c.ask(m); err == nil {
			m.note()
			return
		}
		c.facts() // no session holds the jobs any more
	}
}

// ask makes the call, with time enough.
func (c *caller) ask(m move) error {
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	began := time.Now()
	err := m.ask(ctx)
	took := time.Since(began)
	c.count(err, took)
	assert.Less(c.t, took, callBound, "%s: %v", m.name, err)
	return err
}

// finish checks the queue, and then that every job of it can be finished: nothing stays hidden.
func (c *caller) finish() {
	assert.Equal(c.t, c.known, c.facts(), "all that was answered is there, and nothing else")
	if held := c.in(store.InFlight); len(held) > 0 {
		c.must(c.ack(held))
	}
	for began := time.Now(); !c.t.Failed(); {
		ready := c.in(store.Ready)
		if len(ready) == 0 {
			break
		}
		var jobs []store.Job
		c.must(move{name: "FetchAndClaim", ask: func(ctx context.Context) (err error) {
			jobs, err = c.s.FetchAndClaim(ctx, store.ClaimRequest{Queue: c.queue, Limit: store.MaxItems, Worker: "w", TTL: time.Hour})
			return err
		}, note: func() {
			for _, j := range jobs {
				c.known[j.ID] = factOf(j)
			}
		}})
		if held := c.in(store.InFlight); len(held) > 0 {
			c.must(c.ack(held))
		}
		assert.Less(c.t, time.Since(began), callBound, "%d jobs are ready and stay hidden", len(ready))
	}
	assert.Equal(c.t, c.known, c.facts(), "every job is finished")
}

// must makes a call that has no reason to fail.
func (c *caller) must(m move) {
	if assert.NoError(c.t, c.ask(m), m.name) {
		m.note()
	}
}

// in is the ids of the jobs in a phase.
func (c *caller) in(phase store.State) []int64 {
	var ids []int64
	for id, f := range c.known {
		if f.Phase == phase {
			ids = append(ids, id)
		}
	}
	return ids
}

// leases are those that the caller has on the jobs.
func (c *caller) leases(ids []int64) []store.Lease {
	held := make([]store.Lease, len(ids))
	for i, id := range ids {
		held[i] = store.Lease{ID: id, Token: c.known[id].Token}
	}
	return held
}

// facts is what there is in the queue.
func (c *caller) facts() map[int64]fact {
	found := map[int64]fact{}
	for id, j := range c.look(c.t, c.queue) {
		found[id] = factOf(j)
	}
	return found
}
