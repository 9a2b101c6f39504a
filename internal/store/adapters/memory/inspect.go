package memory

import (
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Get returns the job and its history.
func (s *Store) Get(ctx context.Context, id int64) (store.JobDetail, error) {
	_, err := s.enter(ctx, nil)
	if err != nil {
		return store.JobDetail{}, err
	}
	defer s.leave()
	j := s.jobs.get(id)
	if j == nil {
		return store.JobDetail{}, store.ErrNotFound
	}
	return store.JobDetail{Job: j.row(), History: j.history(), Waits: store.WaitsOf(s.waits[id], s.awaits())}, nil
}

// List returns the jobs that match, the newest first.
func (s *Store) List(ctx context.Context, filter store.Filter, page store.Page) (store.JobPage, error) {
	before, refused := filter.Position(page)
	now, err := s.enter(ctx, refused)
	if err != nil {
		return store.JobPage{}, err
	}
	defer s.leave()
	var found store.JobPage
	room := store.MaxAnswerBytes
	for j := range s.falling(filter, before) {
		if !s.matches(filter, j, now) {
			continue
		}
		if room -= j.weight(); len(found.Jobs) == page.Limit || room < 0 {
			found.Next = filter.Cursor(found.Jobs[len(found.Jobs)-1].ID)
			break
		}
		found.Jobs = append(found.Jobs, j.row())
	}
	return found, nil
}

// Count counts the jobs that match.
func (s *Store) Count(ctx context.Context, filter store.Filter) (store.Counts, error) {
	now, err := s.enter(ctx, filter.Check())
	if err != nil {
		return store.Counts{}, err
	}
	defer s.leave()
	counts := map[string]*store.QueueCount{}
	for j := range s.rising(filter) {
		if !s.matches(filter, j, now) {
			continue
		}
		c := counts[j.queue.name]
		if c == nil {
			c = &store.QueueCount{Queue: j.queue.name, Jobs: map[store.State]int64{}}
			counts[j.queue.name] = c
		}
		count(c, j, now)
	}
	result := store.Counts{Now: now}
	for _, c := range sorted(counts) {
		result.Queues = append(result.Queues, *c)
	}
	return result, nil
}

func count(c *store.QueueCount, j *job, now time.Time) {
	c.Jobs[store.Phases[j.phase]]++
	due := j.next().time()
	if !j.phase.waits() || due.After(now) || j.expired(now) {
		return
	}
	if c.Due++; c.OldestDue.IsZero() || due.Before(c.OldestDue) {
		c.OldestDue = due
	}
}

// matches reports whether the filter selects the job. It makes use of the room of record.
func (s *Store) matches(f store.Filter, j *job, now time.Time) bool {
	if !s.matchesWaits(f, j.ID) {
		return false
	}
	j.read(&s.work.Job)
	return f.WithoutWaits().Matches(s.work.Job, now)
}

// ids returns the ids of the jobs that the filter names, sorted, or false if it names none.
func (s *Store) ids(f store.Filter) ([]int64, bool) {
	switch {
	case len(f.IDs) > 0:
		return slices.Sorted(slices.Values(f.IDs)), true
	case f.WaitsFor != 0:
		return slices.Clone(s.waiters[f.WaitsFor]), true
	case f.WaitsForGroup != "":
		return slices.Clone(s.waitersOf(f.WaitsForGroup)), true
	default:
		return nil, false
	}
}

// rising lists the jobs that the filter may match, the oldest first.
func (s *Store) rising(f store.Filter) iter.Seq[*job] {
	if ids, named := s.ids(f); named {
		return s.named(ids)
	}
	return s.jobs.rising(f.After)
}

// falling lists the jobs with an id below before that the filter may match, the newest first.
func (s *Store) falling(f store.Filter, before int64) iter.Seq[*job] {
	ids, named := s.ids(f)
	if !named {
		return s.jobs.falling(before)
	}
	ids = slices.DeleteFunc(ids, func(id int64) bool { return id >= before })
	slices.Reverse(ids)
	return s.named(ids)
}

// named lists the jobs with these ids, each once. The ids must be sorted.
func (s *Store) named(ids []int64) iter.Seq[*job] {
	return func(yield func(*job) bool) {
		for _, id := range slices.Compact(ids) {
			if j := s.jobs.get(id); j != nil && !yield(j) {
				return
			}
		}
	}
}

// sorted returns the values in the byte order of their names.
func sorted[V any](named map[string]V) []V {
	values := make([]V, 0, len(named))
	for _, name := range names(named) {
		values = append(values, named[name])
	}
	return values
}

// names returns the names in byte order.
func names[V any](named map[string]V) []string { return slices.Sorted(maps.Keys(named)) }
