package memory

import (
	"context"
	"slices"
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
	limit := q.policy.Room(req.Limit, q.leased)
	q.held = q.held || limit < req.Limit
	chosen := s.choose(q, limit, min(limit, req.RetryQuota), now)
	claimed := slices.Grow(req.Room[:0], len(chosen))[:len(chosen)]
	var docs copier
	expected := smallDocs(chosen)
	for i, j := range chosen {
		r := s.record(j)
		r.Claim(req, now)
		s.change(j, r)
		claimed[i] = r.Job
		claimed[i].Payload = docs.clone(j.payload, expected)
		j.own(&claimed[i])
		if len(j.payload) <= smallDoc {
			expected -= len(j.payload)
		}
	}
	clear(chosen) // which is reused, and must not hold what is deleted
	return claimed, nil
}

// choose takes due jobs out of their lines: first retries up to the quota, then fresh jobs, then more retries if there are
// places left. The answer lists the retries first. It is valid until the next call.
func (s *Store) choose(q *queue, limit, quota int, now time.Time) []*job {
	due := now.UnixMicro()
	retryRoom, freshRoom := store.MaxAnswerBytes, store.MaxAnswerBytes
	retries := q.retries.take(nil, quota, &retryRoom, due)
	s.chosen = q.fresh.take(s.chosen[:0], limit-len(retries), &freshRoom, due)
	retries = q.retries.take(retries, limit-len(s.chosen), &retryRoom, due)
	s.chosen = slices.Insert(s.chosen, 0, retries...)
	return s.chosen
}

// take takes due jobs out of the lane, the highest priority first, as long as their documents fit into room and until there are
// limit of them, with those that were taken before.
func (l *lane) take(taken []*job, limit int, room *int, due int64) []*job {
	for i := range l {
		for len(taken) < limit {
			j := l[i].first(due)
			if j == nil {
				break
			}
			weight := j.weight()
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

// smallDocs returns how many bytes the small payloads of the jobs have.
func smallDocs(jobs []*job) (sum int) {
	for _, j := range jobs {
		if len(j.payload) <= smallDoc {
			sum += len(j.payload)
		}
	}
	return sum
}
