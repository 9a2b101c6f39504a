package kv

import (
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/contract"
)

// Get returns the job and its history.
func (s *Store) Get(ctx context.Context, id int64) (contract.JobDetail, error) {
	history := attemptsOf(id)
	history.KeysOnly = false
	first := ask{keys: [][]byte{key(rows, number(id)), needsOf(id)}, ranges: func(time.Time) []Range { return []Range{history} }}
	return call(ctx, s, nil, first, func(t *txn) contract.JobDetail {
		j := t.job(id)
		if j == nil {
			t.fail(contract.ErrNotFound)
			return contract.JobDetail{}
		}
		var earlier []contract.Attempt
		for _, item := range t.first[0] {
			earlier = append(earlier, decode[contract.Attempt](t, item.Key, item.Value))
		}
		detail := j.Detail(earlier)
		detail.Waits = t.shown(j)
		detail.Job = t.whole([]*job{j})[0]
		return detail
	})
}

// List returns the jobs that match, the newest first.
func (s *Store) List(ctx context.Context, filter contract.Filter, page contract.Page) (contract.JobPage, error) {
	before, refused := filter.Position(page)
	return call(ctx, s, refused, ask{}, func(t *txn) contract.JobPage {
		var found []*job
		var next string
		room := contract.MaxAnswerBytes
		for j := range t.matching(filter, t.falling(filter, before)) {
			if room -= j.weight(); len(found) == page.Limit || room < 0 {
				next = filter.Cursor(found[len(found)-1].ID)
				break
			}
			found = append(found, j)
		}
		return contract.JobPage{Jobs: t.whole(found), Next: next}
	})
}

// Count counts the jobs that match, by reading all of them.
func (s *Store) Count(ctx context.Context, filter contract.Filter) (contract.Counts, error) {
	return call(ctx, s, filter.Check(), ask{}, func(t *txn) contract.Counts {
		counts := map[string]*contract.QueueCount{}
		for j := range t.matching(filter, t.rising(filter)) {
			c := counts[j.Queue]
			if c == nil {
				c = &contract.QueueCount{Queue: j.Queue, Jobs: map[contract.State]int64{}}
				counts[j.Queue] = c
			}
			t.count(c, j)
		}
		result := contract.Counts{Now: t.now}
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			result.Queues = append(result.Queues, *counts[name])
		}
		return result
	})
}

func (t *txn) count(c *contract.QueueCount, j *job) {
	c.Jobs[j.Phase()]++
	if !j.Claimable(t.now) {
		return
	}
	c.Due++
	if due := j.Next(); c.OldestDue.IsZero() || due.Before(c.OldestDue) {
		c.OldestDue = due
	}
}

// rising yields the jobs that the filter can match, the oldest first. Callers must not change any before its end.
func (t *txn) rising(f contract.Filter) iter.Seq[*job] {
	if ids, few := t.selected(f); few {
		return t.byID(ids)
	}
	return func(yield func(*job) bool) {
		for item := range t.each(Range{From: key(rows, number(max(f.After, 0)), []byte{0}), To: following(key(rows))}) {
			if !yield(t.walked(item)) {
				return
			}
		}
	}
}

// falling yields the jobs before an id that the filter can match, the newest first.
func (t *txn) falling(f contract.Filter, bound int64) iter.Seq[*job] {
	if ids, few := t.selected(f); few {
		ids = slices.DeleteFunc(ids, func(id int64) bool { return id >= bound })
		slices.Reverse(ids)
		return t.byID(ids)
	}
	return func(yield func(*job) bool) {
		r := Range{From: key(newest, number(^(bound - 1))), To: following(key(newest)), Limit: chunk, KeysOnly: true}
		for {
			items := t.scan(r)[0]
			ids := make([]int64, len(items))
			for i, item := range items {
				ids[i] = ^lastNumber(item.Key)
			}
			for j := range t.byID(ids) {
				if !yield(j) {
					return
				}
			}
			if len(items) < chunk {
				return
			}
			r.From = key(newest, number(^(ids[chunk-1] - 1)))
		}
	}
}

// byID yields the jobs with the ids, in their order.
func (t *txn) byID(ids []int64) iter.Seq[*job] {
	return func(yield func(*job) bool) {
		for some := range slices.Chunk(ids, chunk) {
			asked := make([]Range, len(some))
			for i, id := range some {
				asked[i].From = key(rows, number(id))
			}
			for _, found := range t.readAll(asked) {
				if !t.look() || len(found) > 0 && !yield(t.walked(found[0])) {
					return
				}
			}
		}
	}
}

// walked returns a job that was read on a walk over many, of which few are remembered.
func (t *txn) walked(item Item) *job {
	j := t.decodeJob(item.Value)
	j.read = item
	return j
}
