package memory

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// RecoverExpiredLeases ends leases that have expired, the oldest first.
func (s *Store) RecoverExpiredLeases(ctx context.Context, req store.RecoverRequest) ([]store.Recovered, error) {
	now, err := s.enter(ctx, req.Check())
	if err != nil {
		return nil, err
	}
	defer s.leave()
	s.bringBack(req.Limit, now)
	expired := now.Add(-req.Grace.Truncate(store.Resolution)).UnixMicro()
	var recovered []store.Recovered
	for len(recovered) < req.Limit {
		j := s.leases.first(expired)
		if j == nil {
			break
		}
		recovered = append(recovered, s.recover(j, now))
	}
	return recovered, nil
}

// bringBack makes leases that were granted while the clock was ahead run from now.
func (s *Store) bringBack(limit int, now time.Time) {
	mark, must := s.present.MustLook()
	if !must {
		return
	}
	var ahead []*job
	for j := range s.jobs.rising(0) {
		if j.phase != inFlight {
			continue
		}
		if _, is := store.LeaseAhead(j.until.time(), s.lengths.known[j.leaseFor], s.maxLease, now); is {
			ahead = append(ahead, j)
		}
	}
	slices.SortFunc(ahead, func(a, b *job) int {
		return cmp.Or(cmp.Compare(b.until, a.until), cmp.Compare(b.ID, a.ID))
	})
	if len(ahead) < limit {
		s.present.Looked(mark)
	}
	for _, j := range ahead[:min(limit, len(ahead))] {
		r := s.record(j)
		r.Lend(r.LeaseFor, now)
		s.change(j, r)
	}
}

func (s *Store) recover(j *job, now time.Time) store.Recovered {
	r := s.record(j)
	recovered := r.Recover(now)
	s.change(j, r)
	return recovered
}
