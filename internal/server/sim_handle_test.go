package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/server"
	"github.com/seed-ed332417/jq/internal/store"
)

// handle is the handler of all kinds: it behaves as the job's plan says.
func (m *member) handle(ctx context.Context, r *server.Run) error {
	s := m.sim
	p := s.plans[numberOf(r.Job.Payload)]
	s.handlers.Add(1)
	s.countNamed("runs of " + p.Kind)
	s.witness.started(r.Lease(), stepOf(r.Job.Checkpoint))
	began := time.Now()
	var err error
	defer func() { // also where it panics, or ends its goroutine
		s.returned(ctx, m, r, p, began, err)
		s.handlers.Add(-1)
	}()
	if p.Kind != stubborn {
		if n := m.running.Add(1); n > int64(m.options.Slots) {
			s.problem(r.ID, "%d handlers run in %d slots", n, m.options.Slots)
		}
		defer m.running.Add(-1)
	}
	err = m.behave(ctx, r, p)
	return err
}

func (m *member) behave(ctx context.Context, r *server.Run, p *plan) error {
	misbehaves := r.Job.Attempts <= p.times
	if p.adds != nil {
		if err := m.add(ctx, r, p.adds); err != nil {
			return err
		}
	}
	switch {
	case p.Kind == never:
		return &server.Wish{Form: store.Never, Err: errors.New("this can not work")}
	case p.Kind == hopeless, p.Kind == flaky && misbehaves:
		pause(ctx, p.work)
		return fmt.Errorf("attempt %d went wrong", r.Job.Attempts)
	case p.Kind == later && misbehaves:
		return &server.Wish{Form: store.After, Delay: 3 * p.work, Err: errors.New("not yet")}
	case p.Kind == snoozing && misbehaves:
		return &server.Wish{Form: store.Snooze, Delay: 3 * p.work, Err: errors.New(putOff[snoozing])}
	case p.Kind == panicking && misbehaves:
		panic("as planned")
	case p.Kind == exiting && misbehaves:
		runtime.Goexit()
	case p.Kind == stubborn && misbehaves:
		return m.work(context.WithoutCancel(ctx), r, p, p.work)
	case p.Kind == stubborn:
		return m.work(ctx, r, p, 0)
	case p.Kind == overtime && misbehaves:
		return m.work(ctx, r, p, 2*p.Timeout)
	case p.Kind == steps:
		return m.walk(ctx, r, p)
	}
	return m.work(ctx, r, p, p.work)
}

// work takes a while, has its effect outside, and succeeds.
func (m *member) work(ctx context.Context, r *server.Run, p *plan, d time.Duration) error {
	if p.early {
		if err := m.sim.effects.apply(r.Lease()); err != nil {
			return err
		}
	}
	if !pause(ctx, d) {
		return ctx.Err()
	}
	if !p.early {
		if err := m.sim.effects.apply(r.Lease()); err != nil {
			return err
		}
	}
	if r.SetResult(resultOf(r.Token)); p.Kind == garbled {
		r.SetResult([]byte("{"))
	}
	return nil
}

func resultOf(token int64) []byte { return fmt.Appendf(nil, `{"token":%d}`, token) }

// walk continues from the step that an earlier run has saved. A failed save is an error like any other.
func (m *member) walk(ctx context.Context, r *server.Run, p *plan) error {
	for step := stepOf(r.Job.Checkpoint) + 1; step <= p.steps; step++ {
		if !pause(ctx, p.work) {
			return ctx.Err()
		}
		if err := r.Save(ctx, fmt.Appendf(nil, `{"step":%d}`, step), nil); err != nil {
			return err
		}
	}
	return m.work(ctx, r, p, 0)
}

// stepOf returns the step in the checkpoint, or zero.
func stepOf(checkpoint []byte) int {
	var doc struct{ Step int }
	_ = json.Unmarshal(checkpoint, &doc) // an empty one is step zero
	return doc.Step
}

// returned records that a handler has returned and why it was cancelled, if it was, and checks that it was cancelled in time.
func (s *simulation) returned(ctx context.Context, m *member, r *server.Run, p *plan, began time.Time, err error) {
	interrupted := false
	if cause := context.Cause(ctx); cause != nil {
		s.countNamed("handlers told: " + cause.Error())
		interrupted = errors.Is(err, context.Canceled) && (errors.Is(cause, server.ErrDrained) || errors.Is(cause, server.ErrLeaseUnknown))
	}
	s.witness.returned(r.Lease(), p, interrupted)
	timeout := p.Timeout
	if timeout == 0 {
		timeout = m.options.Timeout
	}
	if over := time.Since(began) - timeout; over > 0 && p.Kind != stubborn {
		s.problem(r.ID, "a handler went on for %v after its timeout of %v, token %d", over, timeout, r.Token)
	}
}

// effects are what handlers have done outside: a store that refuses a token older than the newest that it has seen.
type effects struct {
	sim *simulation

	mu      sync.Mutex // guards what follows
	latest  map[int64]int64
	refused int
}

var errOvertaken = errors.New("the outside has seen a newer run")

func newEffects(s *simulation) *effects { return &effects{sim: s, latest: map[int64]int64{}} }

// apply has the effect of the run that holds the lease.
func (e *effects) apply(l store.Lease) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l.Token < e.latest[l.ID] && !e.sim.broken.blindOutside {
		e.refused++
		if e.sim.witness.inForce(l) {
			e.sim.problem(l.ID, "the outside refuses the lease in force, token %d", l.Token)
		}
		return errOvertaken
	}
	e.latest[l.ID] = l.Token
	return nil
}

// inForce returns whether the lease is in force.
func (w *witness) inForce(l store.Lease) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.holds(w.claims[l])
}
