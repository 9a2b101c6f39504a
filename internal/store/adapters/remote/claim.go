package remote

import (
	"context"
	"fmt"
	"net/http"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// FetchAndClaim is part of the contract. If the caller is gone before the answer comes, the claim goes on in the background for
// a moment, so that its jobs can be released. If the answer comes later than that, the server sees that the client is gone.
func (s *Store) FetchAndClaim(ctx context.Context, req store.ClaimRequest) ([]store.Job, error) {
	c := post(wire.PathClaim, req.Check(), wire.Claim{
		Queues: []string{req.Queue}, Worker: req.Worker, Limit: &req.Limit, Lease: wire.Duration(req.TTL), RetryQuota: &req.RetryQuota,
	}, mostJobs(req.Limit))
	if err := s.admit(ctx, c.refused); err != nil {
		return nil, err
	}
	jobs, err := s.claim(ctx, c, claimedBy(req))
	return jobs, s.because(ctx, err)
}

// claimedBy checks that every job is claimed as the request asks.
func claimedBy(req store.ClaimRequest) func(wire.Jobs) error {
	return func(answer wire.Jobs) error {
		for _, j := range answer.Jobs {
			if j.ID <= 0 || j.Token <= 0 || j.Queue != req.Queue || j.Worker != req.Worker || j.State != store.InFlight {
				return fmt.Errorf("job %d is not claimed as was asked", j.ID)
			}
		}
		return listed(answer.Jobs, req.Limit, "jobs")
	}
}

type claimed struct {
	jobs []store.Job
	err  error
}

func (s *Store) claim(ctx context.Context, c call, valid func(wire.Jobs) error) ([]store.Job, error) {
	lasting, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	sent := s.parcel(c)
	delivered, gone := make(chan claimed), make(chan struct{})
	begun := s.aside(func() {
		defer cancel(nil)
		forget := context.AfterFunc(s.after, func() { cancel(errClosing) })
		defer forget()
		var answer wire.Jobs
		err := s.once(lasting, c, sent, func(resp *http.Response) error { return decode(resp, c.most, &answer, valid) })
		if err != nil {
			answer = wire.Jobs{}
		}
		select {
		case delivered <- claimed{answer.Store(), err}:
		case <-gone:
			s.giveBack(answer.Store())
			s.undelivered.Add(-1)
		}
	})
	if !begun {
		cancel(nil)
		return nil, store.ErrClosed
	}
	select {
	case got := <-delivered:
		return got.jobs, got.err
	case <-ctx.Done():
	case <-s.closed:
	}
	s.undelivered.Add(1)
	close(gone)
	whole := sent.withdraw()
	if !whole {
		cancel(errGone)
	} else {
		s.clock.AfterFunc(afterlife, func() { cancel(errGone) })
	}
	return nil, lost(errGone, whole, false)
}

// giveBack releases jobs whose caller is gone. If that fails, the jobs come back when their leases expire.
func (s *Store) giveBack(jobs []store.Job) {
	if len(jobs) == 0 {
		return
	}
	nacks := make([]store.NAck, len(jobs))
	for i, j := range jobs {
		nacks[i] = store.NAck{Lease: j.Lease(), Form: store.Release}
	}
	ctx, cancel := context.WithCancelCause(s.after)
	defer cancel(nil)
	late := s.clock.AfterFunc(afterlife, func() { cancel(errSilent) })
	defer late.Stop()
	c, ids := nackCall(nacks)
	for n := 0; c.refused == nil && n < 2; n++ { // it is safe to repeat a Release whose answer was lost
		var answer wire.Results
		failed := s.patiently(ctx, func() error {
			return s.once(ctx, c, s.parcel(c), func(resp *http.Response) error { return decode(resp, c.most, &answer, outcomesFor(ids)) })
		})
		if failed == nil {
			return
		}
		if n > 0 {
			s.log.Warn("jq: jobs that were claimed for nobody return when their leases end", "jobs", len(jobs), "error", failed)
		}
	}
}
