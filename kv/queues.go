package kv

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/seed-ed332417/jq/contract"
)

// A queue is what the store knows about a queue besides its jobs. A queue without any such fact has no value.
type queue struct {
	Paused bool
	Policy contract.Policy
	Moves  *moves `json:",omitempty"` // how far it has come on its way to another mode
}

func (t *txn) saveQueue(name string, q queue) {
	if q == (queue{}) {
		t.remove(named(queues, name))
	} else {
		t.put(named(queues, name), q)
	}
}

func queueOf(name string) ask { return ask{keys: [][]byte{named(queues, name), named(claims, name)}} }

// Queues returns every queue that has a job, is paused, or has a policy that sets something.
func (s *Store) Queues(ctx context.Context) ([]contract.Queue, error) {
	return call(ctx, s, nil, ask{}, func(t *txn) []contract.Queue {
		known := map[string]contract.Queue{}
		for item := range t.each(under(key(queues))) {
			name, q := string(item.Key[1:]), decode[queue](t, item.Key, item.Value)
			if q.Paused || q.Policy.Sets() {
				known[name] = contract.Queue{Name: name, Paused: q.Paused, Policy: q.Policy}
			} else {
				known[name] = contract.Queue{Policy: q.Policy} // to be named if it has a job
			}
		}
		for _, name := range t.queuesIn(ofQueue) {
			q := known[name]
			q.Name = name
			known[name] = q
		}
		var list []contract.Queue
		for _, name := range slices.Sorted(maps.Keys(known)) {
			if known[name].Name != "" {
				list = append(list, known[name])
			}
		}
		return list
	})
}

// SetPaused pauses or resumes a queue.
func (s *Store) SetPaused(ctx context.Context, name string, paused bool) error {
	_, err := call(ctx, s, contract.CheckQueue(name), queueOf(name), func(t *txn) struct{} {
		q, _ := get[queue](t, named(queues, name))
		q.Paused = paused
		t.saveQueue(name, q)
		if !paused {
			t.woken[contract.Wakeup{Queue: name}] = true
		}
		return struct{}{}
	})
	return err
}

// Policy returns the policy of the queue.
func (s *Store) Policy(ctx context.Context, name string) (contract.Policy, error) {
	return call(ctx, s, contract.CheckQueue(name), queueOf(name), func(t *txn) contract.Policy {
		q, _ := get[queue](t, named(queues, name))
		return q.Policy
	})
}

// SetPolicy replaces the queue's policy with p. What follows for the jobs of limit keys may take several commits. If these fail, the next claim goes on with them: the
// policy is in force.
func (s *Store) SetPolicy(ctx context.Context, name string, p contract.Policy) (contract.Policy, error) {
	moves := false
	refused := cmp.Or(contract.CheckQueue(name), p.Check())
	set, err := call(ctx, s, refused, queueOf(name), func(t *txn) contract.Policy {
		q, _ := get[queue](t, named(queues, name))
		next, err := q.Policy.Replace(p)
		if err != nil {
			t.fail(err)
			return contract.Policy{}
		}
		log, _ := get[contract.ClaimLog](t, named(claims, name))
		log.Replace(q.Policy.Rate, next.Rate, t.now)
		if len(log) > 0 {
			t.put(named(claims, name), log)
		} else {
			t.remove(named(claims, name))
		}
		before := q.Policy
		q.Policy = next
		t.saveQueue(name, q)
		t.limitKeys(name, &q, before)
		moves = q.Moves != nil
		t.woken[contract.Wakeup{Queue: name}] = true // there may be room
		if next.ByKey() {
			t.hintRoom(name)
		}
		return next
	})
	if err == nil && moves {
		_ = s.moveAll(ctx, name)
	}
	return set, err
}
