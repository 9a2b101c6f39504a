package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// If the server's own store lacks an ability, its methods return errors.ErrUnsupported.

// Queues is part of the contract.
func (s *Store) Queues(ctx context.Context) ([]store.Queue, error) {
	c := fetch(wire.PathQueues, nil, mostNames)
	answer, err := ask(ctx, s, c, func(q wire.Queues) error { return listed(q.Queues, len(q.Queues), "queues") })
	return answer.Queues, err
}

// SetPaused is part of the contract.
func (s *Store) SetPaused(ctx context.Context, queue string, paused bool) error {
	path := wire.PathResume
	if paused {
		path = wire.PathPause
	}
	return tell(ctx, s, call{method: http.MethodPost, path: fmt.Sprintf(path, segment(queue)), refused: store.CheckQueue(queue)})
}

// Policy is part of the contract.
func (s *Store) Policy(ctx context.Context, queue string) (store.Policy, error) {
	return s.policy(ctx, fetch(fmt.Sprintf(wire.PathPolicy, segment(queue)), store.CheckQueue(queue), mostWords), 0)
}

// SetPolicy is part of the contract.
func (s *Store) SetPolicy(ctx context.Context, queue string, p store.Policy) (store.Policy, error) {
	set, err := s.putPolicy(ctx, queue, p, &p.Owner)
	if refused, ok := errors.AsType[*store.InvalidError](err); ok && refused.Field == "owner" && p.Owner == "" {
		return s.putPolicy(ctx, queue, p, nil) // a server of an earlier version, which knows no owner
	}
	return set, err
}

// putPolicy sends the owner as given: if it is left out, the server keeps the present one.
func (s *Store) putPolicy(ctx context.Context, queue string, p store.Policy, owner *string) (store.Policy, error) {
	body := store.JSONOfPolicy(p)
	body.Owner = owner
	c := post(fmt.Sprintf(wire.PathPolicy, segment(queue)), cmp.Or(store.CheckQueue(queue), p.Check()), body, mostWords)
	c.method = http.MethodPut
	return s.policy(ctx, c, 1)
}

// policy makes a call whose answer is a policy. The policy must have at least the version least.
func (s *Store) policy(ctx context.Context, c call, least int64) (store.Policy, error) {
	return ask(ctx, s, c, func(p store.Policy) error {
		if p.Version < least {
			return fmt.Errorf("a policy of version %d", p.Version)
		}
		return p.Check()
	})
}

// Beat is part of the contract.
func (s *Store) Beat(ctx context.Context, w store.Worker) error {
	path, refused := fmt.Sprintf(wire.PathWorker, segment(w.Name)), w.Check()
	w.Name, w.BeatAt, w.Stale = "", time.Time{}, false // the path has the name, and the store sets the other two
	c := post(path, refused, w, mostNothing)
	c.method = http.MethodPut
	return tell(ctx, s, c)
}

// Leave is part of the contract.
func (s *Store) Leave(ctx context.Context, name string) error {
	return tell(ctx, s, call{
		method: http.MethodDelete, path: fmt.Sprintf(wire.PathWorker, segment(name)), refused: store.Worker{Name: name}.Check(),
	})
}

// Workers is part of the contract.
func (s *Store) Workers(ctx context.Context, filter store.WorkerFilter, page store.Page) (store.WorkerPage, error) {
	query := url.Values{"limit": {strconv.Itoa(page.Limit)}}
	if filter.Name != "" {
		query.Set("name", filter.Name)
	}
	if page.Cursor != "" {
		query.Set("cursor", page.Cursor)
	}
	_, invalid := filter.Position(page)
	c := fetch(wire.PathWorkers, invalid, mostWorkers(page.Limit))
	c.query = query.Encode()
	return ask(ctx, s, c, func(w store.WorkerPage) error { return listed(w.Workers, page.Limit, "workers") })
}

// Ping is part of the contract. It asks whether the server's own store answers.
func (s *Store) Ping(ctx context.Context) error {
	_, err := ask(ctx, s, fetch(wire.PathReady, nil, mostWords), func(h wire.Health) error {
		if h.Status == "" {
			return errors.New("no status in it")
		}
		return nil
	})
	return err
}

// OldestDue is part of the contract.
func (s *Store) OldestDue(ctx context.Context) (store.Due, error) {
	return ask(ctx, s, fetch(wire.PathDue, nil, mostNames), func(d store.Due) error {
		if d.Queues == nil || d.Now.IsZero() {
			return errors.New("no due times in it")
		}
		return nil
	})
}

// Fence is part of the contract.
func (s *Store) Fence(ctx context.Context, req store.FenceRequest) (int64, error) {
	c := post(wire.PathFence, req.Check(), wire.Fence{EndLeases: req.EndLeases, Epoch: wire.ID(req.Epoch)}, mostNothing)
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

// Activity is part of the contract. AddActivity has no call over HTTP: a server counts what its clients do.
func (s *Store) Activity(ctx context.Context, filter store.ActivityFilter) (store.ActivityPage, error) {
	query := url.Values{"last": {filter.Last.String()}, "queue": filter.Queues}
	if filter.Step > 0 {
		query.Set("step", filter.Step.String())
	}
	for name, value := range map[string]string{"by": string(filter.By), "kind": filter.Kind} {
		if value != "" {
			query.Set(name, value)
		}
	}
	c := fetch(wire.PathActivity, filter.Check(), mostNames)
	c.query = query.Encode()
	return ask(ctx, s, c, func(p store.ActivityPage) error {
		if p.Now.IsZero() || p.From.IsZero() {
			return errors.New("no times in it")
		}
		return nil
	})
}
