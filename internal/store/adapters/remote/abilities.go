package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// If the server's own store lacks an ability, its methods return errors.ErrUnsupported.

// Queues is part of the contract.
func (s *Store) Queues(ctx context.Context) ([]store.Queue, error) {
	if err := s.admit(ctx, nil); err != nil {
		return nil, err
	}
	c := call{method: http.MethodGet, path: wire.PathQueues, reads: true, most: mostNames}
	answer, err := ask(ctx, s, c, func(q wire.Queues) error { return listed(q.Queues, len(q.Queues), "queues") })
	return answer.Queues, err
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

// Policy is part of the contract.
func (s *Store) Policy(ctx context.Context, queue string) (store.Policy, error) {
	if err := s.admit(ctx, store.CheckQueue(queue)); err != nil {
		return store.Policy{}, err
	}
	path := fmt.Sprintf(wire.PathPolicy, segment(queue))
	return s.policy(ctx, call{method: http.MethodGet, path: path, reads: true, most: mostWords}, 0)
}

// SetPolicy is part of the contract.
func (s *Store) SetPolicy(ctx context.Context, queue string, p store.Policy) (store.Policy, error) {
	if err := s.admit(ctx, cmp.Or(store.CheckQueue(queue), p.Check())); err != nil {
		return store.Policy{}, err
	}
	c, err := post(fmt.Sprintf(wire.PathPolicy, segment(queue)), wire.PolicyOf(p), mostWords)
	if err != nil {
		return store.Policy{}, err
	}
	c.method = http.MethodPut
	return s.policy(ctx, c, 1)
}

// policy makes a call whose answer is a policy. The policy must have at least the version least.
func (s *Store) policy(ctx context.Context, c call, least int64) (store.Policy, error) {
	answer, err := ask(ctx, s, c, func(p wire.Policy) error {
		if p.Version < least {
			return fmt.Errorf("a policy of version %d", p.Version)
		}
		return p.Store().Check()
	})
	if err != nil {
		return store.Policy{}, err
	}
	return answer.Store(), nil
}

// Beat is part of the contract.
func (s *Store) Beat(ctx context.Context, w store.Worker) error {
	if err := s.admit(ctx, w.Check()); err != nil {
		return err
	}
	body := wire.WorkerOf(w)
	path := fmt.Sprintf(wire.PathWorker, segment(w.Name))
	body.Name, body.BeatAt, body.Stale = "", wire.Time{}, false // the path has the name, and the store sets the other two
	c, err := post(path, body, mostNothing)
	if err != nil {
		return err
	}
	c.method = http.MethodPut
	return tell(ctx, s, c)
}

// Leave is part of the contract.
func (s *Store) Leave(ctx context.Context, name string) error {
	if err := s.admit(ctx, store.Worker{Name: name}.Check()); err != nil {
		return err
	}
	return tell(ctx, s, call{method: http.MethodDelete, path: fmt.Sprintf(wire.PathWorker, segment(name)), most: mostNothing})
}

// Workers is part of the contract.
func (s *Store) Workers(ctx context.Context, filter store.WorkerFilter, page store.Page) (store.WorkerPage, error) {
	_, invalid := filter.Position(page)
	if err := s.admit(ctx, invalid); err != nil {
		return store.WorkerPage{}, err
	}
	query := url.Values{"limit": {strconv.Itoa(page.Limit)}}
	if filter.Name != "" {
		query.Set("name", filter.Name)
	}
	if page.Cursor != "" {
		query.Set("cursor", page.Cursor)
	}
	c := call{method: http.MethodGet, path: wire.PathWorkers, query: query.Encode(), reads: true, most: mostWorkers(page.Limit)}
	answer, err := ask(ctx, s, c, func(w wire.Workers) error { return listed(w.Workers, page.Limit, "workers") })
	if err != nil {
		return store.WorkerPage{}, err
	}
	return answer.Store(), nil
}

// Ping is part of the contract. It asks whether the server's own store answers.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.admit(ctx, nil); err != nil {
		return err
	}
	c := call{method: http.MethodGet, path: wire.PathReady, reads: true, most: mostWords}
	_, err := ask(ctx, s, c, func(h wire.Health) error {
		if h.Status == "" {
			return errors.New("no status in it")
		}
		return nil
	})
	return err
}

// OldestDue is part of the contract.
func (s *Store) OldestDue(ctx context.Context) (store.Due, error) {
	if err := s.admit(ctx, nil); err != nil {
		return store.Due{}, err
	}
	c := call{method: http.MethodGet, path: wire.PathDue, reads: true, most: mostNames}
	answer, err := ask(ctx, s, c, func(d store.Due) error {
		if d.Queues == nil || d.Now.IsZero() {
			return errors.New("no due times in it")
		}
		return nil
	})
	return answer, err
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
	answer, err := ask(ctx, s, c, func(f wire.Fenced) error {
		if least := max(req.Epoch, 1); int64(f.Epoch) < least {
			return fmt.Errorf("epoch %d where it must be at least %d", f.Epoch, least)
		}
		return nil
	})
	return int64(answer.Epoch), err
}

// segment escapes a name as one segment of a path. It also escapes a name of only dots, which would otherwise mean another
// folder.
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
