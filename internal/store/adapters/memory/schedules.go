package memory

import (
	"context"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// SetSchedule replaces or adds a schedule.
func (s *Store) SetSchedule(ctx context.Context, by store.Schedule) (store.Schedule, error) {
	if _, err := s.enter(ctx, by.Check()); err != nil {
		return store.Schedule{}, err
	}
	defer s.leave()
	return s.setSchedule(by)
}

func (s *Store) setSchedule(by store.Schedule) (store.Schedule, error) {
	next, changed, err := s.schedules[by.Name].Replace(by)
	if err != nil {
		return store.Schedule{}, err
	}
	if changed {
		next = s.keepSchedule(next)
	}
	return next.Kept(), nil
}

// keepSchedule stores the schedule under a new revision.
func (s *Store) keepSchedule(next store.Schedule) store.Schedule {
	before, known := s.schedules[next.Name]
	if s.tx != nil {
		s.tx.onRollback(func() {
			if known {
				s.schedules[next.Name] = before
			} else {
				delete(s.schedules, next.Name)
			}
		})
	}
	s.revision++
	next.Revision = s.revision
	s.schedules[next.Name] = next
	return next
}

// DeleteSchedule removes a schedule.
func (s *Store) DeleteSchedule(ctx context.Context, name string) error {
	if _, err := s.enter(ctx, store.CheckSchedule(name)); err != nil {
		return err
	}
	defer s.leave()
	s.dropSchedule(name)
	return nil
}

func (s *Store) dropSchedule(name string) {
	if before, known := s.schedules[name]; known && s.tx != nil {
		s.tx.onRollback(func() { s.schedules[name] = before })
	}
	delete(s.schedules, name)
}

// Schedules returns the schedules that match, by name.
func (s *Store) Schedules(ctx context.Context, filter store.ScheduleFilter, page store.Page) (store.SchedulePage, error) {
	after, refused := filter.Position(page)
	now, err := s.enter(ctx, refused)
	if err != nil {
		return store.SchedulePage{}, err
	}
	defer s.leave()
	return s.schedulesPage(filter, page, after, now), nil
}

func (s *Store) schedulesPage(filter store.ScheduleFilter, page store.Page, after string, now time.Time) store.SchedulePage {
	found := store.SchedulePage{Now: now}
	room := store.MaxPageTemplates
	for _, name := range s.scheduleNames(filter, after, now) {
		one := s.schedules[name]
		if room -= one.Weight(); len(found.Schedules) == page.Limit || room < 0 {
			found.Next = filter.Cursor(found.Schedules[len(found.Schedules)-1].Name)
			break
		}
		found.Schedules = append(found.Schedules, one.Kept())
	}
	return found
}

func (s *Store) scheduleNames(filter store.ScheduleFilter, after string, now time.Time) []string {
	var names []string
	for name, one := range s.schedules {
		if name > after && filter.Matches(one, now) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Fire moves schedules to their next times and enqueues their jobs.
func (s *Store) Fire(ctx context.Context, firings []store.Firing) ([]store.Fired, error) {
	now, err := s.enter(ctx, store.CheckFirings(firings))
	if err != nil {
		return nil, err
	}
	defer s.leave()
	return s.fireAll(firings, now), nil
}

func (s *Store) fireAll(firings []store.Firing, now time.Time) []store.Fired {
	s.forget(now)
	results := make([]store.Fired, len(firings))
	for i, f := range firings {
		results[i] = s.fire(f, now)
	}
	return results
}

func (s *Store) fire(f store.Firing, now time.Time) store.Fired {
	var current *store.Schedule
	lives := false
	if one, known := s.schedules[f.Name]; known {
		current = &one
		last := s.jobs.get(one.LastJob)
		lives = last != nil && !last.phase.terminal()
	}
	next, job, result := current.Fire(f, now, lives)
	if result.Status != store.StatusOK {
		return result
	}
	if job != nil {
		next.Enqueued(f, s.enqueueOne(*job, nil, now), &result)
	}
	result.Revision = s.keepSchedule(next).Revision
	return result
}
