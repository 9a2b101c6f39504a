package model

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// AddActivity is part of the contract.
func (s *Store) AddActivity(ctx context.Context, items []store.Activity) error {
	return change(ctx, s, s.unless(ActivityUnchecked, store.CheckActivity(items)), func(now time.Time) error {
		if s.broken(ActivityUnlocked) {
			kept := slices.Clip(s.activity)
			s.letOthersIn()
			s.activity = kept
		}
		for i, one := range items {
			if !s.broken(ActivityByCaller) || one.At.IsZero() {
				one.At = store.AtMultiple(now, time.Minute)
			}
			if s.broken(ActivityReplaces) {
				s.activity = slices.DeleteFunc(s.activity, func(a store.Activity) bool {
					return a.At.Equal(one.At) && a.Queue == one.Queue && a.Kind == one.Kind
				})
			}
			sameBefore := slices.ContainsFunc(items[:i], func(a store.Activity) bool { return a.Queue == one.Queue && a.Kind == one.Kind })
			if !sameBefore || !s.broken(ActivityOncePerCall) {
				s.activity = append(s.activity, one)
			}
		}
		if s.broken(ActivityForgetsEarly) {
			s.activity = slices.DeleteFunc(s.activity, func(a store.Activity) bool { return now.Sub(a.At) >= 24*time.Hour })
		}
		if s.broken(ActivityDeletesJobs) {
			s.jobs = nil
		}
		return nil
	})
}

// Activity is part of the contract.
func (s *Store) Activity(ctx context.Context, filter store.ActivityFilter) (store.ActivityPage, error) {
	return call(ctx, s, s.unless(ActivityFilterUnchecked, filter.Check()), func(now time.Time) (store.ActivityPage, error) {
		page := store.ActivityPage{Now: now, From: s.activityFrom(filter, now), Step: filter.Step}
		if s.broken(ActivityKeepsEmpty) {
			page.Spans = []store.Activity{{At: page.From}}
		}
		for _, one := range s.activity {
			if one.At.Before(page.From) || !s.activityMatches(filter, one) || one.Empty() {
				continue
			}
			s.addTo(&page, s.rowOf(one, filter, page.From))
		}
		if !s.broken(ActivityUnsorted) {
			slices.SortFunc(page.Spans, func(a, b store.Activity) int {
				return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind))
			})
		}
		return page, nil
	})
}

// activityFrom is the begin of the first span.
func (s *Store) activityFrom(filter store.ActivityFilter, now time.Time) time.Time {
	unit := filter.Step
	switch {
	case s.broken(ActivityUnaligned):
		return now.Add(-filter.Last)
	case unit > 0:
	case filter.Last > store.MaxFineActivity && !s.broken(ActivityWeekByMinute):
		unit = time.Hour
	default:
		unit = time.Minute
	}
	if s.broken(ActivityOneSpanMore) {
		return store.AtMultiple(now.Add(-filter.Last), unit)
	}
	return store.AtMultiple(now.Add(-filter.Last), unit).Add(unit)
}

func (s *Store) activityMatches(filter store.ActivityFilter, one store.Activity) bool {
	return (s.broken(ActivityIgnoresQueues) || store.QueueMatches(filter.Queues, one.Queue)) &&
		(s.broken(ActivityIgnoresKind) || filter.Kind == "" || filter.Kind == one.Kind)
}

// rowOf is the activity under the begin and the names of the row that it counts for.
func (s *Store) rowOf(one store.Activity, filter store.ActivityFilter, from time.Time) store.Activity {
	switch {
	case filter.Step > 0 && s.broken(ActivityFromYearOne):
		one.At = one.At.Truncate(filter.Step)
	case filter.Step > 0:
		one.At = store.AtMultiple(one.At, filter.Step)
	default:
		one.At = from
	}
	if filter.By != store.ByKind {
		one.Kind = ""
	}
	if filter.By == store.ByNothing || filter.By == store.ByKind && s.broken(ActivityKindsOfAllQueues) {
		one.Queue = ""
	}
	return one
}

// addTo adds the activity to its row of the answer.
func (s *Store) addTo(page *store.ActivityPage, one store.Activity) {
	for i, row := range page.Spans {
		if !row.At.Equal(one.At) || row.Queue != one.Queue || row.Kind != one.Kind {
			continue
		}
		page.Spans[i] = row.Plus(one)
		if s.broken(ActivityLosesHistograms) {
			page.Spans[i].Waited, page.Spans[i].Ran = row.Waited, row.Ran
		}
		return
	}
	page.Spans = append(page.Spans, one)
}
