package kv

import (
	"cmp"
	"context"
	"iter"
	"time"

	"github.com/seed-ed332417/jq/contract"
)

// A beat is the value of a worker.
type beat struct {
	Worker contract.Worker
	Until  time.Time // when it is forgotten
}

// Beat writes the worker's row.
func (s *Store) Beat(ctx context.Context, w contract.Worker) error {
	k := named(workers, w.Name)
	_, err := call(ctx, s, w.Check(), ask{keys: [][]byte{k}}, func(t *txn) struct{} {
		if before, known := get[beat](t, k); known {
			t.remove(endOf(before.Until, workers, w.Name))
		}
		w.StaleAfter = w.StaleAfter.Truncate(contract.Resolution)
		w.BeatAt, w.Stale = t.now, false
		until := t.now.Add(contract.WorkerLife)
		t.put(k, beat{w, until})
		t.putRaw(endOf(until, workers, w.Name), nil)
		return struct{}{}
	})
	return err
}

// Leave removes the worker's row.
func (s *Store) Leave(ctx context.Context, name string) error {
	k := named(workers, name)
	_, err := call(ctx, s, contract.Worker{Name: name}.Check(), ask{keys: [][]byte{k}}, func(t *txn) struct{} {
		if before, known := get[beat](t, k); known {
			t.remove(endOf(before.Until, workers, name))
			t.remove(k)
		}
		return struct{}{}
	})
	return err
}

// Workers returns the workers that match, by name.
func (s *Store) Workers(ctx context.Context, filter contract.WorkerFilter, page contract.Page) (contract.WorkerPage, error) {
	after, refused := filter.Position(page)
	return call(ctx, s, refused, ask{}, func(t *txn) contract.WorkerPage {
		var found contract.WorkerPage
		room := contract.MaxPageNames
		for w := range t.workers(filter, after) {
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

// workers yields the workers that match, are not forgotten, and come after a name, by name.
func (t *txn) workers(filter contract.WorkerFilter, after string) iter.Seq[contract.Worker] {
	return func(yield func(contract.Worker) bool) {
		r := Range{From: named(workers, cmp.Or(filter.Name, after)), To: following(key(workers))}
		if filter.Name != "" {
			r.To = append(named(workers, filter.Name), 0)
		}
		for item := range t.each(r) {
			b := decode[beat](t, item.Key, item.Value)
			if string(item.Key[1:]) > after && b.Until.After(t.now) && !yield(b.Worker) {
				return
			}
		}
	}
}
