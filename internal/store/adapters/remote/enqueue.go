package remote

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// repeats lists the pauses before each repeat of an Enqueue whose answer was lost.
var repeats = [...]time.Duration{50 * time.Millisecond, 300 * time.Millisecond, 1500 * time.Millisecond}

// Enqueue is part of the contract. If the caller gives no request key, the store makes one, so that it can repeat the request.
func (s *Store) Enqueue(ctx context.Context, req store.EnqueueRequest) ([]store.Enqueued, error) {
	if err := s.admit(ctx, req.Check()); err != nil || len(req.Jobs) == 0 {
		return nil, err
	}
	c := enqueueCall(req)
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
			return added.Jobs, nil
		case errors.Is(err, store.ErrInDoubt):
			doubt = err
		case doubt == nil || errors.Is(err, store.ErrInvalid): // an invalid request is invalid at every try
			return nil, err
		}
		// Once an answer was lost, the call stays in doubt: if a repeat was not applied, an earlier try may still have been.
		if n == len(repeats) || !s.pause(ctx, repeats[n]) {
			return nil, s.because(ctx, doubt)
		}
	}
}

func enqueueCall(req store.EnqueueRequest) call {
	jobs := make([]wire.NewJob, len(req.Jobs))
	for i, n := range req.Jobs {
		jobs[i] = wire.NewJobOf(n)
		dropTwin(&jobs[i].Payload, jobs[i].PayloadText)
	}
	c := post(wire.PathJobs, nil, wire.Enqueue{Jobs: jobs, Open: req.Open}, mostOf(len(jobs)))
	c.key = req.RequestKey
	if c.key == "" {
		c.key = wire.RandomKey()
	}
	return c
}

// pause waits for d. It returns false if the context ends or the store is closed before.
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
