package kv

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/contract"
)

// FetchAndClaim leases due jobs of one queue to the worker. It takes fewer if the change would be too large for the engine: errors of jobs count for no answer,
// but are written.
func (s *Store) FetchAndClaim(ctx context.Context, req contract.ClaimRequest) ([]contract.Job, error) {
	refused := contract.CheckLease(req.Check(), req.TTL, s.maxLease)
	if refused == nil {
		s.walk(ctx, s.marksOf(req.Queue)...)
	}
	for fewer, rounds := false, 0; ; rounds++ {
		c := &choice{s: s, queue: req.Queue, limit: req.Limit, take: rounds >= mostRounds}
		first := ask{keys: [][]byte{named(queues, req.Queue), named(claims, req.Queue)}, ranges: c.begin}
		jobs, err := inTurn(ctx, s, string(key(claims, []byte(req.Queue))), refused, first, func(t *txn) []contract.Job {
			if fewer {
				t.woken[contract.Wakeup{Queue: req.Queue}] = true // there are more
			}
			return t.claim(req, c)
		})
		switch {
		case err == nil && c.moving:
			err = s.moveAll(ctx, req.Queue)
		case errors.Is(err, errTooLarge) && req.Limit > 1:
			fewer, err = true, nil
			req.Limit /= 2
			req.RetryQuota = min(req.RetryQuota, req.Limit)
		case err != nil || !c.more:
			return jobs, err
		}
		if err != nil {
			return nil, err
		}
	}
}

func (t *txn) claim(req contract.ClaimRequest, c *choice) []contract.Job {
	q, _ := get[queue](t, named(queues, req.Queue)) // guarded: a pause or a policy that was set meanwhile counts
	m := t.meta.Modes[req.Queue]
	c.more, c.moving = false, m.has(byKey) && m.has(moving)
	if q.Paused || c.moving || t.err != nil {
		return nil
	}
	limited := q.Policy.MaxInFlight > 0 || q.Policy.Rate.N > 0
	var log contract.ClaimLog
	if limited {
		c.takeFirst() // claims conflict whatever they take
		log, _ = get[contract.ClaimLog](t, named(claims, req.Queue))
	}
	if q.Policy.MaxInFlight > 0 {
		req.Limit = q.Policy.Room(req.Limit, t.inFlight(req.Queue))
	}
	var wait time.Duration
	if q.Policy.Rate.N > 0 {
		req.Limit, wait = t.admitted(q.Policy.Rate, &log, req)
	}
	var chosen []Item
	switch {
	case !m.has(byKey):
		chosen = t.choose(req, c)
	case req.Limit > 0:
		c.takeFirst()
		chosen, c.more = t.chooseByKey(req, q.Policy, c.lookOf(t), c.take)
	}
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
	return t.lease(chosen, req, c, q.Policy.MaxInFlight > 0)
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
	all := under(key(leases))
	all.From = append(all.From, t.meta.Marks[markOfLeases].At...)
	for lease := range t.each(all) {
		if string(lease.Value[8:]) == queue {
			n++
		}
	}
	return n
}

// choose returns the entries to claim: retries up to the quota, then fresh jobs, then retries in the remaining places. The retries come
// first in the answer.
func (t *txn) choose(req contract.ClaimRequest, c *choice) []Item {
	c.read(t)
	r := t.due(c, retries, req.Limit)
	f := t.due(c, fresh, req.Limit)
	f = f[:min(len(f), req.Limit-min(len(r), req.RetryQuota, req.Limit))]
	r = r[:min(len(r), req.Limit-len(f))]
	if c.own != nil {
		c.own.leave(c.heads)
	}
	return append(r, f...)
}

// due returns the first due jobs of a lane, the highest priority first, as many as fit into an answer.
func (t *txn) due(c *choice, l lane, limit int) (list []Item) {
	room := contract.MaxAnswerBytes
	for _, one := range c.known.of(l) {
		begin := len(list)
		for h := c.next(t, one); h != nil; h = c.next(t, one) {
			item := h.take()
			if room -= weightOf(item); len(list) == limit || room < 0 {
				return list
			}
			list = append(list, item)
		}
		slices.SortFunc(list[begin:], byDue) // unless the store is alone, they come shard by shard
	}
	return list
}

// dueOf decodes when a waiting job is due, from the key of its entry.
func dueOf(key []byte) time.Time { return momentAt(key, len(key)-16) }

// byDue compares entries of waiting jobs by due time and id.
func byDue(a, b Item) int { return bytes.Compare(a.Key[len(a.Key)-16:], b.Key[len(b.Key)-16:]) }

// lease claims the jobs of the entries.
func (t *txn) lease(chosen []Item, req contract.ClaimRequest, c *choice, room bool) []contract.Job {
	jobs := t.indexed(chosen)
	c.tried = map[int64]int{}
	for _, j := range jobs {
		c.tried[j.ID] = j.Attempts
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
