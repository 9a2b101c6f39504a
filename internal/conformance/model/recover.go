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
	return call(ctx, s, req.Check(), func(now time.Time) ([]store.Recovered, error) {
		s.bringBack(req.Limit, now)
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
	})
}

// leaseFits says why the lease is refused, if it is.
func (s *Store) leaseFits(refused error, ttl time.Duration) error {
	if s.broken(LeaseUnbounded) {
		return refused
	}
	return store.CheckLease(refused, ttl, store.DefaultMaxLease)
}

// bringBack lets leases run from now that were given by a clock which was ahead.
func (s *Store) bringBack(limit int, now time.Time) {
	if !s.jumped || s.broken(AheadLeaseStuck) {
		return
	}
	var ahead []int
	for i, j := range s.jobs {
		given := j.LeaseExpiresAt.Add(-j.lent)
		if s.broken(AheadLeaseByItsEnd) {
			given = j.LeaseExpiresAt
		}
		least := now.Add(store.MaxSetBack)
		if s.broken(AheadLeaseEarly) {
			least = least.Add(-store.Resolution)
		}
		if j.State == store.InFlight && given.After(least) {
			ahead = append(ahead, i)
		}
	}
	slices.SortFunc(ahead, func(a, b int) int {
		if s.broken(AheadLeaseNearestFirst) {
			a, b = b, a
		}
		return cmp.Or(s.jobs[b].LeaseExpiresAt.Compare(s.jobs[a].LeaseExpiresAt), cmp.Compare(b, a))
	})
	s.jumped = len(ahead) >= limit
	if len(ahead) > limit && !s.broken(AheadLeaseOverLimit) {
		ahead = ahead[:limit]
	}
	for _, i := range ahead {
		j := &s.jobs[i]
		j.LeaseExpiresAt = now.Add(j.lent)
		if s.broken(AheadLeaseExpires) {
			j.LeaseExpiresAt = now
		}
		if s.broken(AheadLeaseFenced) {
			j.Token = s.raised(*j, "")
		}
	}
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
	expired := s.those(func(j job) bool {
		spared := s.paused[j.Queue] && s.broken(PauseStopsRecovery)
		return j.State == store.InFlight && !spared && (!j.LeaseExpiresAt.After(by) || s.broken(LiveLeaseRecovered))
	})
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

// Settle is part of the contract.
func (s *Store) Settle(ctx context.Context, limit int) ([]store.Settled, error) {
	return call(ctx, s, s.unless(LimitsIgnored, store.CheckSettle(limit)), func(now time.Time) ([]store.Settled, error) {
		overdue := s.those(func(j job) bool { return s.overdue(j, now) })
		slices.SortFunc(overdue, func(a, b job) int {
			if s.broken(SettleByID) {
				return cmp.Compare(a.ID, b.ID)
			}
			return cmp.Or(a.ExpiresAt().Compare(b.ExpiresAt()), cmp.Compare(a.ID, b.ID))
		})
		if s.broken(SettleUnlocked) {
			s.letOthersIn()
		}
		if len(overdue) > limit && !s.broken(SettleOverLimit) {
			overdue = overdue[:limit]
		}
		var settled []store.Settled
		for _, j := range overdue {
			s.cancel(j, now)
			after, _ := s.find(j.ID)
			settled = append(settled, store.SettledOf(&after.Job))
		}
		if s.broken(SettleHearsNothing) {
			s.ends = nil
		}
		for _, j := range s.hear(limit-len(settled), now) {
			settled = append(settled, store.SettledOf(&j.Job))
		}
		s.settled = s.count
		return settled, nil
	})
}

// overdue is store.ExpiredOf, but for faults.
func (s *Store) overdue(j job, now time.Time) bool {
	switch {
	case s.broken(SettleNothing), s.broken(PauseStopsSettle) && s.paused[j.Queue]:
		return false
	case s.broken(SettleEndsRunning) && j.State == store.InFlight:
		j.State = store.Ready
	case s.broken(SettleEarly):
		now = now.Add(store.Resolution)
	case s.broken(SettleLate):
		now = now.Add(-store.Resolution)
	}
	return store.ExpiredOf(&j.Job, now)
}
