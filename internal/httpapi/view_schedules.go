package httpapi

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/seed-ed332417/jq/internal/schedule"
	"github.com/seed-ed332417/jq/internal/store"
)

// Schedules lists only schedules whose jobs the bearer may enqueue. It hides the last job of a schedule if the bearer may not see
// that job: it may have held the unique key.
func (v *view) Schedules(ctx context.Context, filter store.ScheduleFilter, page store.Page) (store.SchedulePage, error) {
	var found store.SchedulePage
	if _, err := filter.Position(page); err != nil {
		return found, err
	}
	var err error
	found.Schedules, found.Next, err = ownPage(page, store.MaxPageTemplates,
		func(page store.Page) ([]store.Schedule, string, error) {
			part, err := v.keeper().Schedules(ctx, filter, page)
			found.Now = part.Now
			return slices.DeleteFunc(part.Schedules, v.foreignSchedule), part.Next, err
		},
		func(s store.Schedule) string { return filter.Cursor(s.Name) })
	if err == nil {
		err = v.hideLastJobs(ctx, found.Schedules)
	}
	return found, err
}

func (v *view) keeper() store.ScheduleKeeper { return v.of.(store.ScheduleKeeper) }

func (v *view) foreignSchedule(s store.Schedule) bool { return v.bearer.needsSchedule(s) != nil }

func (v *view) hideLastJobs(ctx context.Context, list []store.Schedule) error {
	if len(v.bearer.Queues) == 0 {
		return nil
	}
	var ids []int64
	for _, s := range list {
		if s.LastJob != 0 {
			ids = append(ids, s.LastJob)
		}
	}
	seen, err := v.seen(ctx, ids)
	for i := range list {
		if !seen[list[i].LastJob] {
			list[i].LastJob = 0
		}
	}
	return err
}

// SetSchedule refuses a schedule whose job the bearer may not enqueue, before or after the change. The store compares the revision
// with the one that was looked at here, so nobody can change the schedule in between.
func (v *view) SetSchedule(ctx context.Context, s store.Schedule) (store.Schedule, error) {
	if err := cmp.Or(s.Check(), v.bearer.needsSchedule(s)); err != nil {
		return store.Schedule{}, err
	}
	current, err := v.ownSchedule(ctx, s.Name)
	if err != nil {
		return store.Schedule{}, err
	}
	kept, _, err := current.Replace(s)
	if current.Revision == s.Revision {
		kept, err = v.keeper().SetSchedule(ctx, s)
	}
	if err != nil {
		return store.Schedule{}, err
	}
	list := []store.Schedule{kept}
	if err := v.hideLastJobs(ctx, list); err != nil {
		list[0].LastJob = 0 // the schedule is set, so a failed lookup must not fail the call
	}
	return list[0], nil
}

// ownSchedule returns the schedule with the name, or the zero Schedule if there is none. It refuses one that is not the bearer's.
func (v *view) ownSchedule(ctx context.Context, name string) (store.Schedule, error) {
	s, _, err := schedule.Get(ctx, v.keeper(), name)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return store.Schedule{}, nil
	case err == nil && v.foreignSchedule(s):
		return s, notYours("name", "a schedule with another queue or key than yours has this name: choose another one")
	}
	return s, err
}

// DeleteSchedule refuses the name of a schedule whose job the bearer may not enqueue.
func (v *view) DeleteSchedule(ctx context.Context, name string) error {
	if _, err := v.ownSchedule(ctx, name); err != nil {
		return err
	}
	return v.keeper().DeleteSchedule(ctx, name)
}

// Fire fires only schedules whose jobs the bearer may enqueue. The others are not found. For a bearer who is no operator it
// computes the times itself, and fires only what is due.
func (v *view) Fire(ctx context.Context, firings []store.Firing) ([]store.Fired, error) {
	if err := store.CheckFirings(firings); err != nil {
		return nil, err
	}
	fired := make([]store.Fired, len(firings))
	var own []store.Firing
	var at []int
	for i, f := range firings {
		may, refused, err := v.firing(ctx, f)
		switch {
		case err != nil:
			return nil, err
		case refused != nil:
			fired[i] = *refused
		default:
			own, at = append(own, may), append(at, i)
		}
	}
	if len(own) == 0 {
		return fired, nil
	}
	done, err := v.keeper().Fire(ctx, own)
	if err != nil {
		return nil, err
	}
	for i, f := range v.hideJobs(ctx, done) {
		fired[at[i]] = f
	}
	return fired, nil
}

// firing returns the firing that the bearer may make in place of the one asked for, or the outcome if there is none. It needs the
// revision that was looked at, so nobody can change the schedule in between.
func (v *view) firing(ctx context.Context, f store.Firing) (store.Firing, *store.Fired, error) {
	s, now, err := schedule.Get(ctx, v.keeper(), f.Name)
	switch {
	case errors.Is(err, store.ErrNotFound) || err == nil && v.foreignSchedule(s):
		return f, &store.Fired{Name: f.Name, Status: store.StatusNotFound}, nil
	case err != nil:
		return f, nil, err
	case s.Revision != f.Revision:
		return f, &store.Fired{Name: f.Name, Status: store.StatusStale, Revision: s.Revision}, nil
	case v.bearer.is(Operator):
		return f, nil, nil
	}
	computed, due, err := schedule.Due(s, now)
	switch {
	case err != nil:
		return f, &store.Fired{Name: f.Name, Status: store.StatusInvalid, Revision: s.Revision, Reason: err.Error()}, nil
	case !due:
		return f, &store.Fired{Name: f.Name, Status: store.StatusWrongState, Revision: s.Revision}, nil
	default:
		return computed, nil, nil
	}
}

// hideJobs hides which job kept a schedule from enqueueing one of its own, unless the bearer may see it.
func (v *view) hideJobs(ctx context.Context, fired []store.Fired) []store.Fired {
	if len(v.bearer.Queues) == 0 {
		return fired
	}
	for i, f := range fired {
		switch {
		case f.Status != store.StatusOK || f.Reason == "":
		case f.Job == nil:
			fired[i].Reason = "its previous job has not ended"
		default:
			fired[i].Job, fired[i].Reason = &v.hideHolders(ctx, []store.Enqueued{*f.Job})[0], "another job holds its unique key"
		}
	}
	return fired
}
