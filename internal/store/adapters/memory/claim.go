package memory

import (
	"context"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// FetchAndClaim claims due jobs of one queue and leases them to the worker.
func (s *Store) FetchAndClaim(ctx context.Context, req store.ClaimRequest) ([]store.Job, error) {
	now, err := s.enter(ctx, store.CheckLease(req.Check(), req.TTL, s.maxLease))
	if err != nil {
		return nil, err
	}
	defer s.leave()
	q := s.queues[req.Queue]
	if q == nil || q.paused {
		return nil, nil
	}
	chosen := q.choose(req.Limit, req.RetryQuota, now)
	claimed := make([]store.Job, len(chosen))
	for i, j := range chosen {
		s.claim(j, req, now)
		claimed[i] = j.row()
	}
	return claimed, nil
}

// choose takes due jobs out of their lines: first retries up to the quota, then fresh jobs, then more retries if there are
// places left. The answer lists the retries first.
func (q *queue) choose(limit, quota int, now time.Time) []*job {
	due := now.UnixMicro()
	retryRoom, freshRoom := store.MaxAnswerBytes, store.MaxAnswerBytes
	retries := q.retries.take(quota, &retryRoom, due)
	fresh := q.fresh.take(limit-len(retries), &freshRoom, due)
	retries = append(retries, q.retries.take(limit-len(retries)-len(fresh), &retryRoom, due)...)
	if len(retries) == 0 {
		return fresh
	}
	return append(retries, fresh...)
}

// take takes up to limit due jobs out of the lane, the highest priority first, as long as their documents fit into room.
func (l *lane) take(limit int, room *int, due int64) []*job {
	var taken []*job
	for i := range l {
		for len(taken) < limit {
			j := l[i].first(due)
			if j == nil {
				break
			}
			weight := j.Weight()
			if weight > *room { // smaller jobs must not overtake it, or it could wait for ever
				return taken
			}
			*room -= weight
			j.leave()
			taken = append(taken, j)
		}
	}
	return taken
}

func (s *Store) claim(j *job, req store.ClaimRequest, now time.Time) {
	r := s.record(j)
	r.Claim(req, now)
	s.change(j, r)
}
