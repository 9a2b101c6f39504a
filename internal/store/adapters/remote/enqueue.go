package remote

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// repeats are the pauses before an Enqueue whose answer was lost is repeated.
var repeats = [...]time.Duration{50 * time.Millisecond, 300 * time.Millisecond, 1500 * time.Millisecond}

// Enqueue is part of the contract. It has a request key even where the caller gives none, so that it can be repeated here.
func (s *Store) Enqueue(ctx context.Context, req store.EnqueueRequest) ([]store.Enqueued, error) {
	if err := s.admit(ctx, req.Check()); err != nil || len(req.Jobs) == 0 {
		return nil, err
	}
	c, err := enqueueCall(req)
	if err != nil {
		return nil, err
	}
	valid := func(e wire.Enqueued) error {
		if len(e.Jobs) != len(req.Jobs) {
			return fmt.Errorf("%d answers for %d jobs", len(e.Jobs), len(req.Jobs))
		}
		for i, added := range e.Jobs {
			if added.ID <= 0 && !added.Duplicate {
				return fmt.Errorf("answer %d has no job", i)
			}
		}
		return nil
	}
	var doubt error
	for n := 0; ; n++ {
		added, err := ask(ctx, s, c, valid)
		switch {
		case err == nil:
			return added.Store(), nil
		case errors.Is(err, store.ErrInDoubt):
			doubt = err
		case doubt == nil || errors.Is(err, store.ErrInvalid): // which is true of every time
			return nil, err
		}
		// From the first lost answer on the whole is in doubt: that a repeat was not applied says nothing of what it repeats.
		if n == len(repeats) || !s.pause(ctx, repeats[n]) {
			return nil, s.because(ctx, doubt)
		}
	}
}

func enqueueCall(req store.EnqueueRequest) (call, error) {
	jobs := make([]wire.NewJob, len(req.Jobs))
	for i, n := range req.Jobs {
		jobs[i] = wire.NewJobOf(n)
		dropTwin(&jobs[i].Payload, jobs[i].PayloadText)
	}
	c, err := post(wire.PathJobs, wire.Enqueue{Jobs: jobs}, mostOf(len(jobs)))
	c.key = req.RequestKey
	if c.key == "" {
		c.key = wire.RandomKey()
	}
	return c, err
}

// pause says whether the time has passed before the context has ended or the store was closed.
func (s *Store) pause(ctx context.Context, d time.Duration) bool {
	timer := s.clock.Timer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	case <-s.closed:
		return false
	}
}
