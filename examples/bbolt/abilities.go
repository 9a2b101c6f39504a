package bbolt

import (
	"cmp"
	"context"
	"iter"
	"time"

	"github.com/seed-ed332417/jq/contract"
)

// A queue is what the store knows about a queue besides its jobs. A queue without any such fact has no row.
type queue struct {
	Jobs   int64
	Paused bool
	Policy contract.Policy
	Claims contract.ClaimLog `json:",omitempty"` // if the policy sets Rate
}

func (t *txn) queue(name string) queue {
	q, _ := get[queue](t, queues, []byte(name))
	return q
}

func (t *txn) saveQueue(name string, q queue) {
	if q.Jobs == 0 && !q.Paused && q.Policy == (contract.Policy{}) {
		t.remove(queues, []byte(name))
	} else {
		t.put(queues, []byte(name), q)
	}
}

// countJobs adds to the number of jobs in the queue; a negative number means that jobs have left.
func (t *txn) countJobs(name string, more int64) {
	q := t.queue(name)
	q.Jobs += more
	t.saveQueue(name, q)
}

// Queues returns every queue that has a job, is paused, or has a policy that sets something.
func (s *Store) Queues(ctx context.Context) ([]contract.Queue, error) {
	return read(ctx, s, nil, func(t *txn) []contract.Queue {
		var list []contract.Queue
		c := t.in(queues).Cursor()
		for name, raw := c.First(); name != nil; name, raw = c.Next() {
			if q := decode[queue](t, queues, raw); q.Jobs > 0 || q.Paused || q.Policy.Sets() {
				list = append(list, contract.Queue{Name: string(name), Paused: q.Paused, Policy: q.Policy})
			}
		}
		return list
	})
}

// SetPaused pauses or resumes a queue.
func (s *Store) SetPaused(ctx context.Context, name string, paused bool) error {
	_, err := write(ctx, s, contract.CheckQueue(name), func(t *txn) struct{} {
		q := t.queue(name)
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
	return read(ctx, s, contract.CheckQueue(name), func(t *txn) contract.Policy { return t.queue(name).Policy })
}

// SetPolicy replaces the queue's policy with p. It refuses MaxPerKey, Fair and Ordered.
func (s *Store) SetPolicy(ctx context.Context, name string, p contract.Policy) (contract.Policy, error) {
	return write(ctx, s, cmp.Or(contract.CheckQueue(name), p.Check(), contract.RefuseKeyLimits(p)), func(t *txn) contract.Policy {
		q := t.queue(name)
		next, err := q.Policy.Replace(p)
		if err != nil {
			t.fail(err)
			return contract.Policy{}
		}
		q.Claims.Replace(q.Policy.Rate, next.Rate, t.now)
		q.Policy = next
		t.woken[contract.Wakeup{Queue: name}] = true // there may be room
		t.saveQueue(name, q)
		return next
	})
}

// Beat writes the worker's row.
func (s *Store) Beat(ctx context.Context, w contract.Worker) error {
	_, err := write(ctx, s, w.Check(), func(t *txn) struct{} {
		var old []string // collected before any is removed
		for w := range t.workers(contract.WorkerFilter{}, "") {
			if forgotten(w, t.now) {
				old = append(old, w.Name)
			}
		}
		for _, name := range old {
			t.remove(workers, []byte(name))
		}
		w.StaleAfter = w.StaleAfter.Truncate(contract.Resolution)
		w.BeatAt, w.Stale = t.now, false
		t.put(workers, []byte(w.Name), w)
		return struct{}{}
	})
	return err
}

// Leave removes the worker's row.
func (s *Store) Leave(ctx context.Context, name string) error {
	_, err := write(ctx, s, contract.Worker{Name: name}.Check(), func(t *txn) struct{} {
		t.remove(workers, []byte(name))
		return struct{}{}
	})
	return err
}

// Workers returns the workers that match, by name.
func (s *Store) Workers(ctx context.Context, filter contract.WorkerFilter, page contract.Page) (contract.WorkerPage, error) {
	after, refused := filter.Position(page)
	return read(ctx, s, refused, func(t *txn) contract.WorkerPage {
		var found contract.WorkerPage
		room := contract.MaxPageNames
		for w := range t.workers(filter, after) {
			if forgotten(w, t.now) {
				continue
			}
			if room -= w.Weight(); len(found.Workers) == page.Limit || room < 0 {
				found.Next = filter.Cursor(found.Workers[len(found.Workers)-1].Name)
				break
			}
			w.Stale = !w.BeatAt.Add(w.StaleAfter).After(t.now)
			found.Workers = append(found.Workers, w)
		}
		return found
	})
}

// workers yields the workers that match and come after a name, by name. Callers must not change any during the loop.
func (t *txn) workers(filter contract.WorkerFilter, after string) iter.Seq[contract.Worker] {
	return func(yield func(contract.Worker) bool) {
		c := t.in(workers).Cursor()
		for name, raw := c.Seek([]byte(cmp.Or(filter.Name, after))); name != nil && t.look(); name, raw = c.Next() {
			switch {
			case filter.Name != "" && string(name) != filter.Name:
				return
			case string(name) > after && !yield(decode[contract.Worker](t, workers, raw)):
				return
			}
		}
	}
}

func forgotten(w contract.Worker, now time.Time) bool {
	return !w.BeatAt.Add(contract.WorkerLife).After(now)
}

// Fence starts a new epoch: new tokens and ids are above its floor.
func (s *Store) Fence(ctx context.Context, req contract.FenceRequest) (int64, error) {
	return write(ctx, s, req.Check(), func(t *txn) int64 {
		b := t.in(jobs)
		epoch, err := req.Raised(t.epoch, int64(b.Sequence()))
		if err != nil {
			t.fail(err)
			return 0
		}
		t.put(epochs, []byte(present), epoch)
		t.fail(b.SetSequence(uint64(contract.Floor(epoch))))
		if req.EndLeases {
			var held []*job // collected before any is changed
			for j := range t.rising(contract.Filter{}) {
				if j.State == contract.InFlight {
					held = append(held, j)
				}
			}
			for _, j := range held {
				j.Token = contract.NextToken(j.Token, epoch)
				t.save(j)
			}
		}
		return epoch
	})
}
