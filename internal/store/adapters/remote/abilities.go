package remote

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// Abilities that the server's own store lacks are answered by errors.ErrUnsupported.

// Queues is part of the contract.
func (s *Store) Queues(ctx context.Context) ([]store.Queue, error) {
	if err := s.admit(ctx, nil); err != nil {
		return nil, err
	}
	c := call{method: http.MethodGet, path: wire.PathQueues, reads: true, most: mostNames}
	answer, err := ask(ctx, s, c, func(q wire.Queues) error { return listed(q.Queues, len(q.Queues), "queues") })
	if err != nil {
		return nil, err
	}
	return answer.Store(), nil
}

// SetPaused is part of the contract.
func (s *Store) SetPaused(ctx context.Context, queue string, paused bool) error {
	if err := s.admit(ctx, store.CheckQueue(queue)); err != nil {
		return err
	}
	path := wire.PathResume
	if paused {
		path = wire.PathPause
	}
	return tell(ctx, s, call{method: http.MethodPost, path: fmt.Sprintf(path, segment(queue))})
}

// Beat is part of the contract.
func (s *Store) Beat(ctx context.Context, w store.Worker) error {
	if err := s.admit(ctx, w.Check()); err != nil {
		return err
	}
	body := wire.WorkerOf(w)
	path := fmt.Sprintf(wire.PathWorker, segment(w.Name))
	body.Name, body.BeatAt, body.Stale = "", wire.Time{}, false // the path has the name, the store sets the others
	c, err := post(path, body, mostNothing)
	if err != nil {
		return err
	}
	c.method = http.MethodPut
	return tell(ctx, s, c)
}

// Workers is part of the contract.
func (s *Store) Workers(ctx context.Context) ([]store.Worker, error) {
	if err := s.admit(ctx, nil); err != nil {
		return nil, err
	}
	c := call{method: http.MethodGet, path: wire.PathWorkers, reads: true, most: mostNames}
	answer, err := ask(ctx, s, c, func(w wire.Workers) error { return listed(w.Workers, len(w.Workers), "workers") })
	if err != nil {
		return nil, err
	}
	return answer.Store(), nil
}

// Fence is part of the contract.
func (s *Store) Fence(ctx context.Context, req store.FenceRequest) (int64, error) {
	if err := s.admit(ctx, req.Check()); err != nil {
		return 0, err
	}
	c, err := post(wire.PathFence, wire.Fence{EndLeases: req.EndLeases, Epoch: wire.ID(req.Epoch)}, mostNothing)
	if err != nil {
		return 0, err
	}
	answer, err := ask(ctx, s, c, func(wire.Fenced) error { return nil })
	return int64(answer.Epoch), err
}

// segment is the name as one part of a path. Points alone would be taken for the way to another folder.
func segment(name string) string {
	switch name {
	case ".":
		return "%2E"
	case "..":
		return "%2E%2E"
	default:
		return url.PathEscape(name)
	}
}
