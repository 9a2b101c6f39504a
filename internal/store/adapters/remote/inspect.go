package remote

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/waited"
	"github.com/seed-ed332417/jq/internal/wire"
)

// Get is part of the contract.
func (s *Store) Get(ctx context.Context, id int64) (store.JobDetail, error) { return s.get(ctx, id, 0) }

// patience is how long one request waits for the end of a job.
const patience = 30 * time.Second

// AwaitEnd returns the job once it has ended, or as it is after 30 seconds. If too many clients wait already, or the server knows no
// waiting, it returns the job as it is.
func (s *Store) AwaitEnd(ctx context.Context, id int64) (store.JobDetail, error) {
	job, err := s.get(ctx, id, patience)
	if _, away := errors.AsType[*sentAway](err); away {
		return s.get(ctx, id, 0)
	}
	return job, err
}

// get returns the job after it has ended or the wait is over.
func (s *Store) get(ctx context.Context, id int64, wait time.Duration) (store.JobDetail, error) {
	c := fetch(wire.PathJob+strconv.FormatInt(id, 10), nil, mostDetail)
	if c.wait = wait; wait > 0 {
		c.query = "wait=" + wait.String()
	}
	answer, err := ask(ctx, s, c, func(d wire.JobDetail) error {
		if int64(d.ID) != id || d.State == "" || d.History == nil {
			return errors.New("not the job that was asked for")
		}
		return nil
	})
	if err != nil {
		return store.JobDetail{}, err
	}
	s.note(answer.Redacted)
	return answer.Store(), nil
}

// Redacted reports whether the server has left documents out of jobs or schedules, because the token's role may not see them.
// Check it after copying them.
func (s *Store) Redacted() bool { return s.redacted.Load() }

func (s *Store) note(redacted bool) {
	if redacted {
		s.redacted.Store(true)
	}
}

// List is part of the contract.
func (s *Store) List(ctx context.Context, filter store.Filter, page store.Page) (store.JobPage, error) {
	body := wire.List{Filter: wire.FilterOf(filter), Limit: &page.Limit, Cursor: page.Cursor}
	_, invalid := filter.Position(page)
	c := post(wire.PathList, invalid, body, mostJobs(page.Limit))
	c.reads = true
	answer, err := ask(ctx, s, c, func(j wire.Jobs) error { return listed(j.Jobs, page.Limit, "jobs") })
	if err != nil {
		return store.JobPage{}, err
	}
	for _, j := range answer.Jobs {
		s.note(j.Redacted)
	}
	return store.JobPage{Jobs: answer.Store(), Next: answer.Next}, nil
}

// WaitedFor returns a page of the jobs that a job in flight has waited for, by a call that its holder may make.
func (s *Store) WaitedFor(ctx context.Context, req waited.Request) (waited.Page, error) {
	body := wire.Waited{Lease: wire.LeaseOf(req.Lease), Groups: req.Groups, Limit: &req.Limit, Cursor: req.Cursor}
	c := post(wire.PathWaited, req.Check(), body, mostJobs(req.Limit))
	c.reads = true
	answer, err := ask(ctx, s, c, func(j wire.Jobs) error { return listed(j.Jobs, req.Limit, "jobs") })
	return waited.Page{Waits: answer.Waits, JobPage: store.JobPage{Jobs: answer.Store(), Next: answer.Next}}, err
}

// Count is part of the contract.
func (s *Store) Count(ctx context.Context, filter store.Filter) (store.Counts, error) {
	c := post(wire.PathCount, filter.Check(), wire.Count{Filter: wire.FilterOf(filter)}, mostNames)
	c.reads = true
	return ask(ctx, s, c, func(counts store.Counts) error {
		if counts.Queues == nil || counts.Now.IsZero() {
			return errors.New("no counts in it")
		}
		return nil
	})
}
