package kv

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/seed-ed332417/jq/contract"
)

// FetchAndClaim leases due jobs of one queue to the worker.
func (s *Store) FetchAndClaim(ctx context.Context, req contract.ClaimRequest) ([]contract.Job, error) {
	refused := contract.CheckLease(req.Check(), req.TTL, s.maxLease)
	first := ask{
		keys:   [][]byte{named(queues, req.Queue), named(claims, req.Queue)},
		ranges: func(now time.Time) []Range { return lines(req, now) },
	}
	return inTurn(ctx, s, string(key(claims, []byte(req.Queue))), refused, first, func(t *txn) []contract.Job { return t.claim(req) })
}

// lines returns what a claim may take, by lane and priority: 19 of retries, then 19 of fresh jobs.
func lines(req contract.ClaimRequest, now time.Time) []Range {
	var list []Range
	for _, l := range []lane{retries, fresh} {
		for p := contract.MaxPriority; p >= contract.MinPriority; p-- {
			list = append(list, upTo(line(req.Queue, l, p), now, req.Limit))
		}
	}
	return list
}

func (t *txn) claim(req contract.ClaimRequest) []contract.Job {
	q, _ := get[queue](t, named(queues, req.Queue)) // guarded: a pause or a policy that was set meanwhile counts
	if q.Paused || t.err != nil {
		return nil
	}
	limited := q.Policy.MaxInFlight > 0 || q.Policy.Rate.N > 0
	var log contract.ClaimLog
	if limited {
		log, _ = get[contract.ClaimLog](t, named(claims, req.Queue))
	}
	if q.Policy.MaxInFlight > 0 {
		req.Limit = q.Policy.Room(req.Limit, t.inFlight(req.Queue))
	}
	var wait time.Duration
	if q.Policy.Rate.N > 0 {
		req.Limit, wait = t.admitted(q.Policy.Rate, &log, req)
	}
	chosen := t.choose(req)
	if limited && len(chosen) > 0 {
		// Two claims that count what is in flight, or was claimed, must not both succeed: each writes the same key.
		log.Add(len(chosen), t.now)
		if q.Policy.Rate.N == 0 {
			log = nil
		}
		t.put(named(claims, req.Queue), log)
	}
	if len(chosen) == req.Limit && wait > 0 {
		t.later[req.Queue] = wait
	}
	return t.lease(chosen, req, q.Policy.MaxInFlight > 0)
}

// admitted returns how many jobs the queue's rate lets the claim take. If those are fewer than it asks for, it also returns after how long to
// look again.
func (t *txn) admitted(rate contract.Rate, log *contract.ClaimLog, req contract.ClaimRequest) (room int, wait time.Duration) {
	last := len(*log) - 1
	ahead := last >= 0 && contract.ClaimAhead((*log)[last].At, t.now)
	claimed, first := log.Count(rate, t.now)
	if ahead { // they count as made now, also for later claims
		t.put(named(claims, req.Queue), *log)
	}
	return rate.Room(req.Limit, claimed, first, t.now)
}

// inFlight returns how many jobs of the queue are in flight.
func (t *txn) inFlight(queue string) (n int) {
	for lease := range t.each(under(key(leases))) {
		if string(lease.Value[8:]) == queue {
			n++
		}
	}
	return n
}

// choose returns the entries to claim: retries up to the quota, then fresh jobs, then retries in the remaining places. The retries come
// first in the answer.
func (t *txn) choose(req contract.ClaimRequest) []Item {
	asked := lines(req, t.now)
	half := len(asked) / 2
	r := t.due(asked[:half], t.first[:half], req.Limit)
	f := t.due(asked[half:], t.first[half:], req.Limit)
	f = f[:min(len(f), req.Limit-min(len(r), req.RetryQuota, req.Limit))]
	r = r[:min(len(r), req.Limit-len(f))]
	return append(r, f...)
}

// due returns the first due jobs of a lane, the highest priority first, as many as fit into an answer. The first items of each line were read.
func (t *txn) due(asked []Range, found [][]Item, limit int) (list []Item) {
	room := contract.MaxAnswerBytes
	for i, r := range asked {
		for item, w := range t.claimable(r, found[i]) {
			if room -= w.weight; len(list) == limit || room < 0 {
				return list
			}
			list = append(list, item)
		}
	}
	return list
}

// claimable yields the entries of a line whose jobs can be claimed. The first items were read: more are read if jobs that have expired, and are not
// settled yet, stand before the others.
func (t *txn) claimable(r Range, items []Item) iter.Seq2[Item, waits] {
	return func(yield func(Item, waits) bool) {
		for ; ; items = t.scan(r)[0] {
			for _, item := range items {
				w, ok := decodeWaits(item.Value)
				if !ok {
					t.fail(fmt.Errorf("%w: job %d waits without saying how long it is", errDamaged, lastNumber(item.Key)))
				}
				if !w.expires.IsZero() && !w.expires.After(t.now) || dueOf(item.Key).After(t.now) {
					continue
				}
				if !t.look() || !yield(item, w) {
					return
				}
			}
			if len(items) == 0 || len(items) < r.Limit {
				return
			}
			r.From = append(bytes.Clone(items[len(items)-1].Key), 0)
		}
	}
}

// dueOf decodes when a waiting job is due, from the key of its entry.
func dueOf(key []byte) time.Time { return momentAt(key, len(key)-16) }

// lease claims the jobs of the entries.
func (t *txn) lease(chosen []Item, req contract.ClaimRequest, room bool) []contract.Job {
	jobs := t.indexed(chosen)
	for _, j := range jobs {
		t.moveAttempt(j, j.Record)
	}
	t.forgetAttempts(jobs)
	for _, j := range jobs {
		j.room = room
		j.Claim(req, t.now)
	}
	answer := t.whole(jobs) // before documents leave the records
	for _, j := range jobs {
		t.save(j)
	}
	return answer
}
