package bbolt

import (
	"context"
	"math"
	"time"

	"github.com/seed-ed332417/jq/contract"
)

// FetchAndClaim leases due jobs of one queue to the worker.
func (s *Store) FetchAndClaim(ctx context.Context, req contract.ClaimRequest) ([]contract.Job, error) {
	return write(ctx, s, contract.CheckLease(req.Check(), req.TTL, s.maxLease), func(t *txn) []contract.Job {
		q := t.queue(req.Queue)
		if q.Paused {
			return nil
		}
		if q.Policy.MaxInFlight > 0 {
			req.Limit = q.Policy.Room(req.Limit, t.inFlight(req.Queue))
		}
		var wait time.Duration
		if q.Policy.Rate.N > 0 {
			req.Limit, wait = t.admitted(&q, req)
		}
		req.RetryQuota = min(req.RetryQuota, req.Limit)
		chosen := t.choose(req)
		if q.Policy.Rate.N > 0 && len(chosen) > 0 {
			q.Claims.Add(len(chosen), t.now)
			t.saveQueue(req.Queue, q)
		}
		if len(chosen) == req.Limit && wait > 0 {
			t.later[req.Queue] = wait
		}
		var claimed []contract.Job
		for _, j := range chosen {
			t.claim(j, req)
			claimed = append(claimed, t.whole(j))
		}
		return claimed
	})
}

// admitted returns how many jobs the queue's rate lets the claim take. If those are fewer than it asks for, it also returns after how long to
// look again.
func (t *txn) admitted(q *queue, req contract.ClaimRequest) (room int, wait time.Duration) {
	rate, last := q.Policy.Rate, len(q.Claims)-1
	ahead := last >= 0 && contract.ClaimAhead(q.Claims[last].At, t.now)
	claimed, first := q.Claims.Count(rate, t.now)
	if ahead { // they count as made now, also for later claims
		t.saveQueue(req.Queue, *q)
	}
	return rate.Room(req.Limit, claimed, first, t.now)
}

// inFlight returns how many jobs of the queue are in flight.
func (t *txn) inFlight(queue string) (n int) {
	c := t.in(leases).Cursor()
	for key, _ := c.First(); key != nil; key, _ = c.Next() {
		if t.indexed(key).Queue == queue {
			n++
		}
	}
	return n
}

// choose returns the jobs to claim: retries up to the quota, then fresh jobs, then retries in the remaining places. The retries come
// first in the answer.
func (t *txn) choose(req contract.ClaimRequest) []*job {
	r := t.due(req.Queue, retries, req.Limit)
	f := t.due(req.Queue, fresh, req.Limit)
	f = f[:min(len(f), req.Limit-min(len(r), req.RetryQuota))]
	r = r[:min(len(r), req.Limit-len(f))]
	return append(r, f...)
}

// due returns the first due jobs of a lane, the highest priority first, as many as fit into an answer.
func (t *txn) due(queue string, l lane, limit int) []*job {
	var found []*job
	room := contract.MaxAnswerBytes
	expired := len(t.upTo(expiries, nil, t.now, math.MaxInt)) // they may stand before the others until they are settled
	for p := contract.MaxPriority; p >= contract.MinPriority; p-- {
		for _, key := range t.upTo(waiting, line(queue, l, p), t.now, limit-len(found)+expired) {
			j := t.indexed(key)
			if contract.ExpiredOf(&j.Job, t.now) {
				continue
			}
			if len(found) == limit {
				return found
			}
			if room -= t.weight(j); room < 0 {
				return found
			}
			found = append(found, j)
		}
	}
	return found
}

func (t *txn) claim(j *job, req contract.ClaimRequest) {
	t.moveAttempt(j.Record)
	t.forgetAttempts(j)
	j.Claim(req, t.now)
	t.save(j)
}
