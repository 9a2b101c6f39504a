package model

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// RecoverExpiredLeases is part of the contract.
func (s *Store) RecoverExpiredLeases(ctx context.Context, req store.RecoverRequest) ([]store.Recovered, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	if err := req.Check(); err != nil {
		return nil, err
	}
	expired := s.expired(now.Add(-req.Grace.Truncate(store.Resolution)), now)
	if s.broken(RecoverUnlocked) {
		s.letOthersIn()
	}
	if len(expired) > req.Limit && !s.broken(RecoverOverLimit) {
		expired = expired[:req.Limit]
	}
	recovered := make([]store.Recovered, len(expired))
	for i, j := range expired {
		after := s.recover(j, now)
		recovered[i] = store.Recovered{
			ID: after.ID, Queue: after.Queue, Kind: after.Kind, Worker: after.Worker,
			State: after.State, Token: after.Token, Next: after.Next(),
		}
	}
	return recovered, nil
}

// expired are the jobs whose leases expired at the time or before, the oldest expiry first.
func (s *Store) expired(by, now time.Time) []job {
	switch {
	case s.broken(ExpiryLate):
		by = by.Add(-store.Resolution)
	case s.broken(ExpiryEarly):
		by = by.Add(store.Resolution)
	case s.broken(GraceIgnored):
		by = now
	}
	var expired []job
	for _, j := range s.jobs {
		if s.paused[j.Queue] && s.broken(PauseStopsRecovery) {
			continue
		}
		if j.State == store.InFlight && (!j.LeaseExpiresAt.After(by) || s.broken(LiveLeaseRecovered)) {
			expired = append(expired, j)
		}
	}
	slices.SortFunc(expired, func(a, b job) int {
		if s.broken(RecoverByID) {
			return cmp.Compare(a.ID, b.ID)
		}
		return cmp.Or(a.LeaseExpiresAt.Compare(b.LeaseExpiresAt), cmp.Compare(a.ID, b.ID))
	})
	return expired
}

func (s *Store) recover(before job, now time.Time) job {
	j := before
	j.Job = j.Failed(store.LeaseExpired, now)
	j.Token = s.raised(j, RecoverForgetsEpoch)
	j.endedBy = ""
	j.history = s.ended(j, store.EndExpired, j.Error, now)
	return s.write(store.OpRecover, before, j)
}
