package model

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Faults of schedules.
var (
	ScheduleUnchecked        = fault("schedule-unchecked", "Schedule", "A schedule that breaks a limit is kept.")
	ScheduleRevisionIgnored  = fault("schedule-revision-ignored", "Schedule", "A schedule is replaced although its revision is another.")
	ScheduleRevisionRestarts = fault("schedule-revision-restarts", "Schedule", "A schedule that was deleted and added again has the revision of before.")
	ScheduleRevisionStays    = fault("schedule-revision-stays", "Schedule", "A replaced schedule keeps its revision.")
	ScheduleRepeatChanges    = fault("schedule-repeat-changes", "Schedule", "A repeat of a SetSchedule gives the schedule another revision.")
	ScheduleRepeatRefused    = fault("schedule-repeat-refused", "Schedule", "A repeat of a SetSchedule is a conflict.")
	ScheduleComesBack        = fault("schedule-comes-back", "Schedule", "A schedule that is gone is added again under its old revision.")
	ScheduleForgetsLast      = fault("schedule-forgets-last", "Schedule", "A replaced schedule loses LastAt and LastJob.")
	ScheduleTooFine          = fault("schedule-too-fine", "Schedule", "NextAt keeps its nanoseconds.")
	ScheduleSharesSlices     = fault("schedule-shares-slices", "Schedule", "A schedule shares the slices of its job with the caller.")
	ScheduleDefaultsUnset    = fault("schedule-defaults-unset", "Schedule", "CatchUp and Overlap are kept empty.")
	ScheduleDeletedWithAll   = fault("schedule-deleted-with-all", "Schedule", "DeleteSchedule removes every schedule.")
	ScheduleDeletesJobs      = fault("schedule-deletes-jobs", "Schedule", "The jobs of a deleted schedule are deleted too.")
	SchedulesUnsorted        = fault("schedules-unsorted", "Schedule", "Schedules are listed the wrong way round.")
	SchedulesNameIgnored     = fault("schedules-name-ignored", "Schedule", "A filter with a name selects every schedule.")
	SchedulesDueEarly        = fault("schedules-due-early", "Schedule", "A schedule is due a microsecond before its NextAt.")
	SchedulesDueLate         = fault("schedules-due-late", "Schedule", "A schedule is not due yet at its NextAt.")
	SchedulesDueUnset        = fault("schedules-due-unset", "Schedule", "A schedule without a NextAt is due.")
	SchedulesWithinIgnored   = fault("schedules-within-ignored", "Schedule", "Within is taken for zero.")
	SchedulesUnlimited       = fault("schedules-unlimited", "Schedule", "A page has more schedules than its limit.")
	SchedulesUnweighed       = fault("schedules-unweighed", "Schedule", "A page of schedules has any number of bytes.")
	SchedulesWeighedShort    = fault("schedules-weighed-short", "Schedule", "A page ends before the schedule that fills it.")
	SchedulesNextAfterLast   = fault("schedules-next-after-last", "Schedule", "A full page has a next one, whether or not anything follows.")
	SchedulesPageOverlaps    = fault("schedules-page-overlaps", "Schedule", "A page begins with the last schedule of the page before.")
	SchedulesCursorUnchecked = fault("schedules-cursor-unchecked", "Schedule", "A cursor of another filter begins at the first page.")
	SchedulesWithoutNow      = fault("schedules-without-now", "Schedule", "A page of schedules does not say the time.")
	FireIgnoresRevision      = fault("fire-ignores-revision", "Schedule", "A schedule fires although its revision is another.")
	FireKeepsRevision        = fault("fire-keeps-revision", "Schedule", "A schedule that fires keeps its revision.")
	FireEarly                = fault("fire-early", "Schedule", "A schedule fires for a time that is not due.")
	FireGoesBack             = fault("fire-goes-back", "Schedule", "A schedule may get a NextAt that is before the present one.")
	FireResumes              = fault("fire-resumes", "Schedule", "A schedule without a NextAt gets one by firing.")
	FireMovesNothing         = fault("fire-moves-nothing", "Schedule", "NextAt stays as it was.")
	FireAlwaysEnqueues       = fault("fire-always-enqueues", "Schedule", "A firing without a time enqueues a job.")
	FireForgetsSchedule      = fault("fire-forgets-schedule", "Schedule", "The job does not say which schedule enqueued it.")
	FireSaysNow              = fault("fire-says-now", "Schedule", "ScheduledFor is the store's now.")
	FireKeepsNoLast          = fault("fire-keeps-no-last", "Schedule", "LastAt and LastJob are not set.")
	FireOverlaps             = fault("fire-overlaps", "Schedule", "A schedule that must not overlap enqueues while its last job lives.")
	FireSkipsAfterEnd        = fault("fire-skips-after-end", "Schedule", "A schedule that must not overlap enqueues nothing after its last job has ended.")
	FireSkipsAfterDeletion   = fault("fire-skips-after-deletion", "Schedule", "A schedule that must not overlap enqueues nothing after its last job was deleted.")
	FireSkipMovesLast        = fault("fire-skip-moves-last", "Schedule", "A time that was left out is kept as LastAt.")
	FireIgnoresUniqueKey     = fault("fire-ignores-unique-key", "Schedule", "A job is enqueued although another holds its unique key.")
	FireDuplicateForgotten   = fault("fire-duplicate-forgotten", "Schedule", "The holder of the unique key does not become LastJob.")
	FireStaleSpoilsCall      = fault("fire-stale-spoils-call", "Schedule", "The items behind a stale one do not take effect.")
	FireGoneIsStale          = fault("fire-gone-is-stale", "Schedule", "A schedule that is gone is answered as stale.")
	FireUnlimited            = fault("fire-unlimited", "Schedule", "A call may have any number of firings.")
)

// SetSchedule is part of the contract.
func (s *Store) SetSchedule(ctx context.Context, by store.Schedule) (store.Schedule, error) {
	return call(ctx, s, s.unless(ScheduleUnchecked, by.Check()), func(time.Time) (store.Schedule, error) {
		current, known := s.schedules[by.Name]
		next := s.keptSchedule(by)
		if next.Revision = current.Revision; !s.broken(ScheduleForgetsLast) {
			next.LastAt, next.LastJob = current.LastAt, current.LastJob
		}
		same := known && reflect.DeepEqual(next, current)
		if same && !s.broken(ScheduleRepeatChanges) && !s.broken(ScheduleRepeatRefused) {
			return s.handedOut(current), nil
		}
		if by.Revision != current.Revision && !s.broken(ScheduleRevisionIgnored) && (known || !s.broken(ScheduleComesBack)) &&
			(!same || !s.broken(ScheduleRepeatChanges)) {
			return store.Schedule{}, fmt.Errorf("%w: its revision is %d", store.ErrConflict, current.Revision)
		}
		return s.handedOut(s.revised(next, s.broken(ScheduleRevisionStays) && known)), nil
	})
}

// keptSchedule is what the store keeps of a schedule.
func (s *Store) keptSchedule(by store.Schedule) store.Schedule {
	next := by.Kept()
	next.LastAt, next.LastJob = time.Time{}, 0
	if s.broken(ScheduleTooFine) {
		next.NextAt = by.NextAt
	}
	if s.broken(ScheduleDefaultsUnset) {
		next.CatchUp, next.Overlap = by.CatchUp, by.Overlap
	}
	if s.broken(ScheduleSharesSlices) {
		next.Job.Payload, next.Job.Tags = by.Job.Payload, by.Job.Tags
	}
	return next
}

// handedOut is the schedule as a caller gets it, sharing no slice with the store.
func (s *Store) handedOut(one store.Schedule) store.Schedule {
	if s.broken(ScheduleSharesSlices) || s.broken(ScheduleDefaultsUnset) || s.broken(ScheduleTooFine) {
		return one
	}
	return one.Kept()
}

// revised keeps the schedule under a new revision, or under its present one.
func (s *Store) revised(next store.Schedule, stays bool) store.Schedule {
	switch {
	case stays:
	case s.broken(ScheduleRevisionRestarts):
		next.Revision++
	default:
		s.revision++
		next.Revision = s.revision
	}
	s.schedules[next.Name] = next
	return next
}

// DeleteSchedule is part of the contract.
func (s *Store) DeleteSchedule(ctx context.Context, name string) error {
	_, err := call(ctx, s, s.unless(ScheduleUnchecked, store.CheckSchedule(name)), func(time.Time) (struct{}, error) {
		delete(s.schedules, name)
		if s.broken(ScheduleDeletedWithAll) {
			clear(s.schedules)
		}
		if s.broken(ScheduleDeletesJobs) {
			s.jobs = slices.DeleteFunc(slices.Clone(s.jobs), func(j job) bool { return j.Scheduled() != nil && j.Extras.Scheduled.Name == name })
		}
		return struct{}{}, nil
	})
	return err
}

// Schedules is part of the contract.
func (s *Store) Schedules(ctx context.Context, filter store.ScheduleFilter, page store.Page) (store.SchedulePage, error) {
	after, refused := filter.Position(page)
	if page.Cursor != "" {
		refused = s.unless(SchedulesCursorUnchecked, refused)
	}
	return call(ctx, s, refused, func(now time.Time) (store.SchedulePage, error) {
		var names []string
		for name, one := range s.schedules {
			if s.selects(filter, one, now) && (name > after || name == after && s.broken(SchedulesPageOverlaps)) {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		if s.broken(SchedulesUnsorted) {
			slices.Reverse(names)
		}
		return s.schedulePage(filter, page, names, now), nil
	})
}

// selects says whether the filter selects the schedule.
func (s *Store) selects(f store.ScheduleFilter, one store.Schedule, now time.Time) bool {
	soon := now.Add(f.Within.Truncate(store.Resolution))
	switch {
	case s.broken(SchedulesDueEarly):
		soon = soon.Add(store.Resolution)
	case s.broken(SchedulesDueLate):
		soon = soon.Add(-store.Resolution)
	case s.broken(SchedulesWithinIgnored):
		soon = now
	}
	named := f.Name == "" || f.Name == one.Name || s.broken(SchedulesNameIgnored)
	return named && (!f.Due || (!one.NextAt.IsZero() || s.broken(SchedulesDueUnset)) && !one.NextAt.After(soon))
}

// schedulePage is a page with the first of the schedules.
func (s *Store) schedulePage(filter store.ScheduleFilter, page store.Page, names []string, now time.Time) store.SchedulePage {
	found := store.SchedulePage{Now: now}
	if s.broken(SchedulesWithoutNow) {
		found.Now = time.Time{}
	}
	size := 0
	for i, name := range names {
		one := s.schedules[name]
		size += len(one.Job.Payload)
		full := i >= page.Limit && !s.broken(SchedulesUnlimited)
		heavy := size > store.MaxPageTemplates || size == store.MaxPageTemplates && s.broken(SchedulesWeighedShort)
		if full || heavy && !s.broken(SchedulesUnweighed) {
			found.Next = filter.Cursor(names[i-1])
			return found
		}
		found.Schedules = append(found.Schedules, s.handedOut(one))
	}
	if n := len(names); n > 0 && n == page.Limit && s.broken(SchedulesNextAfterLast) {
		found.Next = filter.Cursor(names[n-1])
	}
	return found
}

// Fire is part of the contract.
func (s *Store) Fire(ctx context.Context, firings []store.Firing) ([]store.Fired, error) {
	refused := store.CheckFirings(firings)
	if len(firings) > store.MaxFirings {
		refused = s.unless(FireUnlimited, refused)
	}
	return call(ctx, s, refused, func(now time.Time) ([]store.Fired, error) {
		defer func() { s.given = nil }()
		var results []store.Fired
		spoiled := false
		for _, f := range firings {
			f.For, f.Next = store.Truncate(f.For), store.Truncate(f.Next)
			fired := store.Fired{Name: f.Name, Status: store.StatusStale}
			if !spoiled {
				fired = s.fire(f, now)
			}
			spoiled = spoiled || fired.Status == store.StatusStale && s.broken(FireStaleSpoilsCall)
			results = append(results, fired)
		}
		return results, nil
	})
}

// fire makes one schedule fire.
func (s *Store) fire(f store.Firing, now time.Time) store.Fired {
	one, known := s.schedules[f.Name]
	fired := store.Fired{Name: f.Name, Status: store.StatusOK, Revision: one.Revision}
	switch {
	case !known && s.broken(FireGoneIsStale):
		fired.Status = store.StatusStale
		return fired
	case !known:
		fired.Status = store.StatusNotFound
		return fired
	case f.Revision != one.Revision && !s.broken(FireIgnoresRevision):
		fired.Status = store.StatusStale
		return fired
	case f.For.After(now) && !s.broken(FireEarly):
		fired.Status = store.StatusWrongState
		return fired
	case one.NextAt.IsZero() && !f.Next.IsZero() && !s.broken(FireResumes),
		!f.Next.IsZero() && f.Next.Before(one.NextAt) && !s.broken(FireGoesBack):
		fired.Status, fired.Reason = store.StatusInvalid, "next must not lie before the schedule's next time, or be set where it has none"
		return fired
	}
	if !s.broken(FireMovesNothing) {
		one.NextAt = f.Next
	}
	if !f.For.IsZero() || s.broken(FireAlwaysEnqueues) {
		s.enqueueFor(&one, f, now, &fired)
	}
	fired.Revision = s.revised(one, s.broken(FireKeepsRevision)).Revision
	return fired
}

// enqueueFor enqueues the job of a schedule for a time, unless it must not overlap.
func (s *Store) enqueueFor(one *store.Schedule, f store.Firing, now time.Time, fired *store.Fired) {
	last, found := s.find(one.LastJob)
	lives := found && (!last.Terminal() || s.broken(FireSkipsAfterEnd)) || one.LastJob != 0 && !found && s.broken(FireSkipsAfterDeletion)
	if one.Overlap == store.OverlapSkip && lives && !s.broken(FireOverlaps) {
		fired.Reason = fmt.Sprintf("its previous job, %d, has not ended", one.LastJob)
		if s.broken(FireSkipMovesLast) {
			one.LastAt = f.For
		}
		return
	}
	n := one.Job
	if s.broken(FireIgnoresUniqueKey) {
		n.UniqueKey, n.UniqueFor = "", 0
	}
	if s.broken(PriorityOfScheduleLost) && s.ordered(n.Queue) {
		n.Priority = 0
	}
	n.Payload = []byte(strings.Clone(string(n.Payload)))
	answers, err := s.add([]store.NewJob{n}, now)
	if err != nil {
		return
	}
	added := answers[0]
	fired.Job = &added
	if !added.Duplicate && !s.broken(FireForgetsSchedule) {
		at := f.For
		if s.broken(FireSaysNow) {
			at = now
		}
		s.jobs[len(s.jobs)-1].Extras = s.jobs[len(s.jobs)-1].Extras.WithScheduled(&store.Scheduled{Name: one.Name, For: at})
	}
	if added.Duplicate {
		fired.Reason = fmt.Sprintf("job %d holds its unique key", added.ID)
	}
	if !s.broken(FireKeepsNoLast) && (!added.Duplicate || !s.broken(FireDuplicateForgotten)) {
		one.LastAt, one.LastJob = f.For, added.ID
	}
}
