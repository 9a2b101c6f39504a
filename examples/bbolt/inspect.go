package bbolt

import (
	"context"
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/seed-ed332417/jq/contract"
)

// Get returns the job and its history.
func (s *Store) Get(ctx context.Context, id int64) (contract.JobDetail, error) {
	return read(ctx, s, nil, func(t *txn) contract.JobDetail {
		j := t.job(id)
		if j == nil {
			t.fail(contract.ErrNotFound)
			return contract.JobDetail{}
		}
		var earlier []contract.Attempt
		for _, key := range t.attemptKeys(id) {
			attempt, _ := get[contract.Attempt](t, attempts, key)
			earlier = append(earlier, attempt)
		}
		detail := j.Detail(earlier)
		detail.Job = t.whole(j)
		return detail
	})
}

// List returns the jobs that match, the newest first.
func (s *Store) List(ctx context.Context, filter contract.Filter, page contract.Page) (contract.JobPage, error) {
	before, refused := position(filter, page)
	return read(ctx, s, refused, func(t *txn) contract.JobPage {
		var found contract.JobPage
		room := contract.MaxAnswerBytes
		for j := range t.falling(filter, before) {
			if !filter.Matches(j.Job, t.now) {
				continue
			}
			if room -= t.weight(j); len(found.Jobs) == page.Limit || room < 0 {
				found.Next = filter.Cursor(found.Jobs[len(found.Jobs)-1].ID)
				break
			}
			found.Jobs = append(found.Jobs, t.whole(j))
		}
		return found
	})
}

// position checks a listing and returns the id before which the page begins.
func position(filter contract.Filter, page contract.Page) (before int64, err error) {
	if err := filter.Check(); err != nil {
		return 0, err
	}
	if err := page.Check(); err != nil {
		return 0, err
	}
	if page.Cursor == "" {
		return math.MaxInt64, nil
	}
	return filter.Position(page.Cursor)
}

// Count counts the jobs that match, by reading all of them.
func (s *Store) Count(ctx context.Context, filter contract.Filter) (contract.Counts, error) {
	return read(ctx, s, filter.Check(), func(t *txn) contract.Counts {
		counts := map[string]*contract.QueueCount{}
		for j := range t.rising(filter) {
			if !filter.Matches(j.Job, t.now) {
				continue
			}
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

// rising yields the jobs that the filter can match, the oldest first. Callers must not change any during the loop.
func (t *txn) rising(f contract.Filter) iter.Seq[*job] {
	if len(f.IDs) > 0 {
		return t.named(slices.Sorted(slices.Values(f.IDs)))
	}
	return func(yield func(*job) bool) {
		c := t.in(jobs).Cursor()
		for key, raw := c.Seek(number(max(f.After, 0))); key != nil && t.look(); key, raw = c.Next() {
			if !yield(t.decodeJob(raw)) {
				return
			}
		}
	}
}

// falling yields the jobs before an id that the filter can match, the newest first.
func (t *txn) falling(f contract.Filter, bound int64) iter.Seq[*job] {
	if len(f.IDs) > 0 {
		ids := slices.DeleteFunc(slices.Sorted(slices.Values(f.IDs)), func(id int64) bool { return id >= bound })
		slices.Reverse(ids)
		return t.named(ids)
	}
	return func(yield func(*job) bool) {
		c := t.in(jobs).Cursor()
		for key, raw := before(c, number(bound)); key != nil && t.look(); key, raw = c.Prev() {
			if !yield(t.decodeJob(raw)) {
				return
			}
		}
	}
}

// named yields each job with one of the ids once. The ids are sorted.
func (t *txn) named(ids []int64) iter.Seq[*job] {
	return func(yield func(*job) bool) {
		for _, id := range slices.Compact(ids) {
			if j := t.job(id); j != nil && !yield(j) {
				return
			}
		}
	}
}
