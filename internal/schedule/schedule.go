package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Due returns how the schedule fires at now, or false if no time of it is due. It leaves out what the policy for missed times
// leaves out.
func Due(s store.Schedule, now time.Time) (store.Firing, bool, error) {
	if s.NextAt.IsZero() || s.NextAt.After(now) {
		return store.Firing{}, false, nil
	}
	times, err := Parse(s.Cron, s.Timezone, now)
	if err != nil {
		return store.Firing{}, false, fmt.Errorf("jq: schedule %q: %w", s.Name, err)
	}
	latest := times.Latest(s.NextAt, now)
	f := store.Firing{Name: s.Name, Revision: s.Revision, For: latest, Next: times.Next(latest)}
	if s.CatchUp == store.CatchUpSkip && now.Sub(latest) > store.MaxLateness {
		f.For = time.Time{}
	}
	return f, true, nil
}

// Get returns the schedule with the name and the store's now, or ErrNotFound.
func Get(ctx context.Context, keeper store.ScheduleKeeper, name string) (store.Schedule, time.Time, error) {
	if err := store.CheckSchedule(name); err != nil {
		return store.Schedule{}, time.Time{}, err
	}
	page, err := keeper.Schedules(ctx, store.ScheduleFilter{Name: name}, store.Page{Limit: 1})
	if err == nil && len(page.Schedules) == 0 {
		err = store.Explained(store.ErrNotFound, "there is no schedule %q", name)
	}
	if err != nil {
		return store.Schedule{}, page.Now, err
	}
	return page.Schedules[0], page.Now, nil
}

// Put adds or replaces the schedule, and computes its NextAt. It ignores NextAt, LastAt, LastJob and Revision of the argument.
//
// What the present schedule is due for fires first. If expression and zone stay the same, NextAt stays as well. So a program
// can put its schedules each time it starts.
//
// A schedule with an Owner is a declaration of a program. A declaration replaces only a schedule with a lower Version, leaves
// Paused as it is, and returns ErrConflict for the schedule of another owner. A schedule without an Owner is put by a person:
// it replaces every schedule, and keeps owner and version, so that it stays until the program declares a higher version.
func Put(ctx context.Context, keeper store.ScheduleKeeper, s store.Schedule) (store.Schedule, error) {
	s.NextAt = time.Time{}
	if err := s.Check(); err != nil {
		return store.Schedule{}, err
	}
	return change(ctx, keeper, s.Name, func(current store.Schedule, now time.Time) (store.Schedule, bool, error) {
		next := s
		known := current.Revision != 0
		switch {
		case known && s.Owner != "" && current.Owner != "" && current.Owner != s.Owner:
			return current, false, store.Explained(store.ErrConflict, "the schedule %q belongs to %q: delete it first, or choose another name", s.Name, current.Owner)
		case known && s.Owner != "" && current.Owner == s.Owner && current.Version >= s.Version:
			return current, false, nil
		case known && s.Owner != "":
			next.Paused = current.Paused
		case known:
			next.Owner, next.Version = current.Owner, current.Version
		}
		times, err := Parse(next.Cron, next.Timezone, now)
		if err != nil {
			return current, false, err
		}
		switch {
		case next.Paused:
		case known && !current.Paused && current.Cron == next.Cron && current.Timezone == next.Timezone:
			next.NextAt = current.NextAt
		default:
			next.NextAt = times.Next(now)
		}
		return next, true, nil
	})
}

// SetPaused pauses or resumes a schedule. The times of a pause are not missed times.
func SetPaused(ctx context.Context, keeper store.ScheduleKeeper, name string, paused bool) (store.Schedule, error) {
	return existing(ctx, keeper, name, func(s store.Schedule, now time.Time) (store.Schedule, bool, error) {
		if s.Paused == paused {
			return s, false, nil
		}
		s.Paused = paused
		return renewed(s, now)
	})
}

// Reset computes NextAt anew. It is for a schedule that fired while a clock was ahead, and would wait until that time.
func Reset(ctx context.Context, keeper store.ScheduleKeeper, name string) (store.Schedule, error) {
	return existing(ctx, keeper, name, renewed)
}

func renewed(s store.Schedule, now time.Time) (store.Schedule, bool, error) {
	s.NextAt = time.Time{}
	if s.Paused {
		return s, true, nil // whether or not this program can read the expression
	}
	times, err := Parse(s.Cron, s.Timezone, now)
	if err == nil {
		s.NextAt = times.Next(now)
	}
	return s, true, err
}

// Run enqueues the job of a schedule at once, in addition to its times, even if it is paused. It returns ErrState if the schedule
// must not overlap and its previous job has not ended.
func Run(ctx context.Context, keeper store.ScheduleKeeper, name string) (store.Enqueued, error) {
	for range tries {
		s, now, err := Get(ctx, keeper, name)
		if err != nil {
			return store.Enqueued{}, err
		}
		fired, err := keeper.Fire(ctx, []store.Firing{{Name: name, Revision: s.Revision, For: now, Next: s.NextAt}})
		switch {
		case err != nil:
			return store.Enqueued{}, err
		case fired[0].Status == store.StatusOK && fired[0].Job == nil:
			return store.Enqueued{}, store.Explained(store.ErrState, "the schedule %q must not overlap: %s", name, fired[0].Reason)
		case fired[0].Status == store.StatusOK:
			return *fired[0].Job, nil
		}
	}
	return store.Enqueued{}, busy(name)
}

// All returns every schedule, in order of name.
func All(ctx context.Context, keeper store.ScheduleKeeper) ([]store.Schedule, error) {
	var all []store.Schedule
	for page := (store.Page{Limit: store.MaxItems}); ; {
		found, err := keeper.Schedules(ctx, store.ScheduleFilter{}, page)
		if err != nil {
			return nil, err
		}
		all = append(all, found.Schedules...)
		if page.Cursor = found.Next; page.Cursor == "" {
			return all, nil
		}
	}
}

// tries is how often a change is tried if others change the schedule at the same time. Every try that fails is a change of
// another's that succeeded.
const tries = 10

func busy(name string) error {
	return store.Explained(store.ErrConflict, "others keep changing the schedule %q: try again", name)
}

func existing(
	ctx context.Context, keeper store.ScheduleKeeper, name string,
	decide func(current store.Schedule, now time.Time) (next store.Schedule, changed bool, err error),
) (store.Schedule, error) {
	return change(ctx, keeper, name, func(current store.Schedule, now time.Time) (store.Schedule, bool, error) {
		if current.Revision == 0 {
			return current, false, store.Explained(store.ErrNotFound, "there is no schedule %q", name)
		}
		return decide(current, now)
	})
}

// change reads the schedule, fires what is due, and sets what decide makes of it. The current schedule has no Revision if there is
// none by that name.
func change(
	ctx context.Context, keeper store.ScheduleKeeper, name string,
	decide func(current store.Schedule, now time.Time) (next store.Schedule, changed bool, err error),
) (store.Schedule, error) {
	for range tries {
		current, now, err := Get(ctx, keeper, name)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return store.Schedule{}, err
		}
		next, changed, err := decide(current, now)
		if err != nil || !changed {
			return current, err
		}
		// A schedule whose expression no longer parses cannot fire: it is replaced without.
		if f, due, err := Due(current, now); err == nil && due {
			if _, err := keeper.Fire(ctx, []store.Firing{f}); err != nil {
				return store.Schedule{}, err
			}
			continue // fired, here or elsewhere
		}
		next.Revision = current.Revision
		kept, err := keeper.SetSchedule(ctx, next)
		if err == nil || !errors.Is(err, store.ErrConflict) {
			return kept, err
		}
	}
	return store.Schedule{}, busy(name)
}
