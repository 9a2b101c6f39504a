package bbolt

import (
	"context"
	"time"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
)

// A queue is what is known of a queue beside its jobs. One of which there is nothing to tell is not kept.
type queue struct {
	Jobs   int64
	Paused bool
}

func (t *txn) queue(name string) queue {
	q, _ := get[queue](t, queues, []byte(name))
	return q
}

func (t *txn) saveQueue(name string, q queue) {
	if q == (queue{}) {
		t.remove(queues, []byte(name))
	} else {
		t.put(queues, []byte(name), q)
	}
}

// countJobs notes that so many jobs have come to the queue, or gone.
func (t *txn) countJobs(name string, more int64) {
	q := t.queue(name)
	q.Jobs += more
	t.saveQueue(name, q)
}

// Queues returns every queue that has a job or is paused.
func (s *Store) Queues(ctx context.Context) ([]jq.Queue, error) {
	return read(ctx, s, nil, func(t *txn) []jq.Queue {
		var list []jq.Queue
		c := t.in(queues).Cursor()
		for name, raw := c.First(); name != nil; name, raw = c.Next() {
			list = append(list, jq.Queue{Name: string(name), Paused: decode[queue](t, queues, raw).Paused})
		}
		return list
	})
}

// SetPaused pauses a queue or lets it go on.
func (s *Store) SetPaused(ctx context.Context, name string, paused bool) error {
	_, err := write(ctx, s, contract.CheckQueue(name), func(t *txn) struct{} {
		q := t.queue(name)
		q.Paused = paused
		t.saveQueue(name, q)
		t.woken[name] = !paused
		return struct{}{}
	})
	return err
}

// Beat writes the worker's row.
func (s *Store) Beat(ctx context.Context, w jq.Worker) error {
	_, err := write(ctx, s, w.Check(), func(t *txn) struct{} {
		for _, old := range t.workers() {
			if forgotten(old, t.now) {
				t.remove(workers, []byte(old.Name))
			}
		}
		w.StaleAfter = w.StaleAfter.Truncate(contract.Resolution)
		w.BeatAt, w.Stale = t.now, false
		t.put(workers, []byte(w.Name), w)
		return struct{}{}
	})
	return err
}

// Workers returns the workers by name.
func (s *Store) Workers(ctx context.Context) ([]jq.Worker, error) {
	return read(ctx, s, nil, func(t *txn) []jq.Worker {
		var list []jq.Worker
		for _, w := range t.workers() {
			if !forgotten(w, t.now) {
				w.Stale = !w.BeatAt.Add(w.StaleAfter).After(t.now)
				list = append(list, w)
			}
		}
		return list
	})
}

// workers are all that are kept, by name.
func (t *txn) workers() []jq.Worker {
	var list []jq.Worker
	c := t.in(workers).Cursor()
	for name, raw := c.First(); name != nil; name, raw = c.Next() {
		list = append(list, decode[jq.Worker](t, workers, raw))
	}
	return list
}

func forgotten(w jq.Worker, now time.Time) bool { return !w.BeatAt.Add(contract.WorkerLife).After(now) }

// Fence raises the token of every job, and the id of the next one.
func (s *Store) Fence(ctx context.Context) error {
	_, err := write(ctx, s, nil, func(t *txn) struct{} {
		b := t.in(jobs)
		t.changed = true
		t.fail(b.SetSequence(b.Sequence() + contract.FenceStep))
		var ids []int64
		for j := range t.rising(jq.Filter{}) {
			ids = append(ids, j.ID)
		}
		for _, id := range ids {
			j := t.job(id)
			j.Token += contract.FenceStep
			j.Ended = none // was said of a lease that fits no more
			t.save(j)
		}
		return struct{}{}
	})
	return err
}
