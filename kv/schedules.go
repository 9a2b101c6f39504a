package kv

import (
	"cmp"
	"context"

	"github.com/seed-ed332417/jq/contract"
)

// SetSchedule replaces or adds a schedule.
func (s *Store) SetSchedule(ctx context.Context, by contract.Schedule) (contract.Schedule, error) {
	first := ask{keys: [][]byte{named(schedules, by.Name)}, tickets: 1}
	return call(ctx, s, by.Check(), first, func(t *txn) contract.Schedule {
		before, _ := t.schedule(by.Name)
		next, changed, err := before.Replace(by)
		if err != nil {
			t.fail(err)
			return contract.Schedule{}
		}
		if changed {
			next = t.keepSchedule(next)
		}
		return next
	})
}

func (t *txn) schedule(name string) (contract.Schedule, bool) {
	one, known := get[contract.Schedule](t, named(schedules, name))
	if !known {
		return one, false
	}
	return one.Kept(), true
}

// keepSchedule stores the schedule under a new revision. Tickets are never used again, so nor is a revision.
func (t *txn) keepSchedule(next contract.Schedule) contract.Schedule {
	next.Revision = t.id()
	t.put(named(schedules, next.Name), next)
	return next
}

// DeleteSchedule removes a schedule.
func (s *Store) DeleteSchedule(ctx context.Context, name string) error {
	k := named(schedules, name)
	_, err := call(ctx, s, contract.CheckSchedule(name), ask{keys: [][]byte{k}}, func(t *txn) struct{} {
		if _, known := t.schedule(name); known {
			t.remove(k)
		}
		return struct{}{}
	})
	return err
}

// Schedules returns the schedules that match, by name.
func (s *Store) Schedules(ctx context.Context, filter contract.ScheduleFilter, page contract.Page) (contract.SchedulePage, error) {
	after, refused := filter.Position(page)
	return call(ctx, s, refused, ask{}, func(t *txn) contract.SchedulePage {
		found := contract.SchedulePage{Now: t.now}
		room := contract.MaxPageTemplates
		r := Range{From: named(schedules, cmp.Or(filter.Name, after)), To: following(key(schedules))}
		if filter.Name != "" {
			r.To = append(named(schedules, filter.Name), 0)
		}
		for item := range t.each(r) {
			one := decode[contract.Schedule](t, item.Key, item.Value).Kept()
			if one.Name <= after || !filter.Matches(one, t.now) {
				continue
			}
			if room -= one.Weight(); len(found.Schedules) == page.Limit || room < 0 {
				found.Next = filter.Cursor(found.Schedules[len(found.Schedules)-1].Name)
				break
			}
			found.Schedules = append(found.Schedules, one)
		}
		return found
	})
}

// Fire moves schedules to their next times and enqueues their jobs.
func (s *Store) Fire(ctx context.Context, firings []contract.Firing) ([]contract.Fired, error) {
	first := ask{tickets: 2 * len(firings)} // for a job and a revision each
	for _, f := range firings {
		first.keys = append(first.keys, named(schedules, f.Name))
	}
	return call(ctx, s, contract.CheckFirings(firings), first, func(t *txn) []contract.Fired {
		t.fetchFired(firings)
		results := make([]contract.Fired, len(firings))
		for i, f := range firings {
			results[i] = t.fire(f)
		}
		return results
	})
}

// fetchFired reads in two trips the latest jobs of schedules, and the jobs that hold their unique keys.
func (t *txn) fetchFired(firings []contract.Firing) {
	var held []string
	var keys [][]byte
	for _, f := range firings {
		if one, known := t.schedule(f.Name); known {
			keys = append(keys, key(rows, number(one.LastJob)))
			if one.Job.UniqueKey != "" {
				held = append(held, one.Job.UniqueKey)
				keys = append(keys, named(uniques, one.Job.UniqueKey), key(freed))
			}
		}
	}
	t.fetch(keys...)
	t.fetchHolders(held)
}

func (t *txn) fire(f contract.Firing) contract.Fired {
	var current *contract.Schedule
	lives := false
	if one, known := t.schedule(f.Name); known {
		current = &one
		last := t.job(one.LastJob)
		lives = last != nil && !last.Terminal()
	}
	next, job, result := current.Fire(f, t.now, lives)
	if result.Status != contract.StatusOK {
		return result
	}
	if job != nil {
		next.Enqueued(f, t.enqueue(*job, nil), &result)
	}
	result.Revision = t.keepSchedule(next).Revision
	return result
}
