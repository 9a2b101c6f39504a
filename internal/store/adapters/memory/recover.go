package memory

import (
	"context"
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

func (s *Store) recover(j *job, now time.Time) store.Recovered {
	s.pick(j)
	s.raise(j)
	j.fail(store.LeaseExpired, store.EndExpired, now)
	s.settle(j)
	return store.Recovered{
		ID: j.ID, Queue: j.Queue, Kind: j.Kind, Worker: j.Worker, State: j.State, Token: j.Token, Next: j.Next(),
	}
}
