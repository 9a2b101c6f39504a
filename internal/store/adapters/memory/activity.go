package memory

import (
	"context"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// activity has the sums of a width, by the begin of the row in Unix time.
type activity map[int64]map[activityKey]store.Activity

type activityKey struct {
	overall     bool
	queue, kind string
}

// AddActivity adds to the sums of now, in rows of each width.
func (s *Store) AddActivity(ctx context.Context, items []store.Activity) error {
	now, err := s.enter(ctx, store.CheckActivity(items))
	if err != nil {
		return err
	}
	defer s.leave()
	rows := store.ActivityRows(items)
	for i, width := range store.ActivityWidths {
		if s.activity[i] == nil {
			s.activity[i] = activity{}
		}
		s.activity[i].add(store.AtMultiple(now, width), rows)
		s.activity[i].forget(store.ActivityKept(width, now))
	}
	return nil
}

func (a activity) add(at time.Time, rows []store.ActivityRow) {
	sums := a[at.Unix()]
	if sums == nil && len(rows) > 0 {
		sums = map[activityKey]store.Activity{}
		a[at.Unix()] = sums
	}
	for _, row := range rows {
		key := activityKey{row.Overall, row.Queue, row.Kind}
		sum := row.Plus(sums[key])
		sum.At = at
		sums[key] = sum
	}
}

func (a activity) forget(until time.Time) {
	for at := range a {
		if at <= until.Unix() {
			delete(a, at)
		}
	}
}

// Activity adds up the sums that the filter selects.
func (s *Store) Activity(ctx context.Context, filter store.ActivityFilter) (store.ActivityPage, error) {
	now, err := s.enter(ctx, filter.Check())
	if err != nil {
		return store.ActivityPage{}, err
	}
	defer s.leave()
	sum := filter.Sum(now)
	for _, part := range filter.Parts(now) {
		for i, width := range store.ActivityWidths {
			if width == part.Width {
				s.activity[i].sum(part, sum)
			}
		}
	}
	return sum.Page(), nil
}

func (a activity) sum(part store.ActivityPart, into *store.ActivitySum) {
	for at, rows := range a {
		if at < part.From.Unix() || !part.To.IsZero() && at >= part.To.Unix() {
			continue
		}
		for key, row := range rows {
			if key.overall == part.Overall {
				into.Add(row)
			}
		}
	}
}
