package model

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

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
