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
	limit, wait := q.admitted(limit, now)
	chosen := s.choose(q, limit, min(limit, req.RetryQuota), now)
	q.held = q.held || q.keyed.leavesOut(now.UnixMicro())
	if len(chosen) == limit && wait > 0 {
		s.hub.TellLater(s.clock, wait, q.name)
	}
	if q.policy.Rate.N > 0 && len(chosen) > 0 {
		q.claims.Add(len(chosen), now)
	}
	claimed := slices.Grow(req.Room[:0], len(chosen))[:len(chosen)]
	var docs copier
	expected := smallDocs(chosen)
	for i, j := range chosen {
		r := s.record(j)
		r.Claim(req, now)
		if q.keyed != nil {
			q.keyed.handOver(j)
		}
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

// admitted returns how many of limit jobs the queue's rate lets a claim take. If that is fewer, it also returns after how long to look again.
func (q *queue) admitted(limit int, now time.Time) (room int, wait time.Duration) {
	rate := q.policy.Rate
	if rate.N == 0 {
		return limit, 0
	}
	claimed, first := q.claims.Count(rate, now)
	return rate.Room(limit, claimed, first, now)
}

// choose takes due jobs out of their lines: first retries up to the quota, then fresh jobs, then more retries if there are
// places left. The answer lists the retries first. It is valid until the next call.
func (s *Store) choose(q *queue, limit, quota int, now time.Time) []*job {
	due := now.UnixMicro()
	q.keyed.giveTurns(due)
	retryRoom, freshRoom := store.MaxAnswerBytes, store.MaxAnswerBytes
	retries := q.take(retrying, nil, quota, &retryRoom, due)
	s.chosen = q.take(ready, s.chosen[:0], limit-len(retries), &freshRoom, due)
	retries = q.take(retrying, retries, limit-len(s.chosen), &retryRoom, due)
	s.chosen = slices.Insert(s.chosen, 0, retries...)
	return s.chosen
}

// take takes due jobs out of the lane of the phase, the highest priority first, as long as their documents fit into room and until
// there are limit of them, with those that were taken before. It passes over jobs whose limit key has no room.
func (q *queue) take(p phase, taken []*job, limit int, room *int, due int64) []*job {
	l, keyed := q.lane(p), q.keyed.lane(p)
	for i := range l {
		for len(taken) < limit {
			j := l[i].first(due)
			if keyed != nil {
				j = firstOf(j, q.keyed.first(&keyed[i], due))
			}
			if j == nil {
				break
			}
			weight := j.weight()
			if weight > *room { // smaller jobs must not overtake it, or it could wait for ever
				return taken
			}
			*room -= weight
			if keyed != nil {
				q.keyed.take(j)
			}
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
