package sqlkit

import (
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// ScheduleColumns are the columns of the table schedules, but for name and revision, in the order of [ScheduleValues].
const ScheduleColumns = `cron, timezone, job, payload, catch_up, overlap, paused, owner, version, next_at, last_at, last_job`

// ScheduleValues returns the values of [ScheduleColumns]. The function at converts a time.
func ScheduleValues(s store.Schedule, at func(time.Time) any) ([]any, error) {
	template := s.Job
	template.Payload = nil // JSON would not keep it byte for byte
	text, err := json.Marshal(template)
	return []any{
		s.Cron, s.Timezone, string(text), string(s.Job.Payload), string(s.CatchUp), string(s.Overlap), s.Paused, s.Owner, s.Version,
		at(s.NextAt), at(s.LastAt), s.LastJob,
	}, err
}

// Schedules returns a page of schedules. The query returns the schedules that match and come after a name, sorted by name, with
// the columns name, revision and [ScheduleColumns]. One more column says whether schedules follow that the query did not
// return. If they do and the page has room, Schedules runs the query again for them.
func Schedules(
	each Query, now time.Time, filter store.ScheduleFilter, page store.Page, after, query string, args func(after string) []any,
) (store.SchedulePage, error) {
	found := store.SchedulePage{Now: now}
	list, full, err := paged(each, page.Limit, store.MaxPageTemplates, scanSchedule, query, func(last []store.Schedule) []any {
		if len(last) > 0 {
			after = last[len(last)-1].Name
		}
		return args(after)
	})
	if found.Schedules = list; full {
		found.Next = filter.Cursor(list[len(list)-1].Name)
	}
	return found, err
}

// SchedulesByName returns the rows of a query for the columns name, revision and [ScheduleColumns], and one more.
func SchedulesByName(each Query, query string, args ...any) (map[string]*store.Schedule, error) {
	found := map[string]*store.Schedule{}
	err := each(func(rows *sql.Rows) error {
		var follow bool
		s, err := scanSchedule(rows, &follow)
		found[s.Name] = &s
		return err
	}, query, args...)
	return found, err
}

func scanSchedule(rows *sql.Rows, follow *bool) (store.Schedule, error) {
	var s store.Schedule
	var template, payload string
	err := rows.Scan(&s.Name, &s.Revision, &s.Cron, &s.Timezone, &template, &payload, &s.CatchUp, &s.Overlap, &s.Paused, &s.Owner, &s.Version,
		(*Time)(&s.NextAt), (*Time)(&s.LastAt), &s.LastJob, follow)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal([]byte(template), &s.Job); err != nil {
		return s, fmt.Errorf("the job of the schedule %q can not be read: %w", s.Name, err)
	}
	s.Job.Payload = []byte(payload)
	return s, nil
}

// A ScheduleTable is the table of schedules in a transaction, as [SetSchedule] and [Fire] use it.
type ScheduleTable struct {
	Lock  func(names []string) (map[string]*store.Schedule, error)        // locks and returns the schedules that exist
	Keep  func(s store.Schedule) (revision int64, err error)              // writes the schedule under a new revision
	Lives func(id int64) (bool, error)                                    // reports whether the job exists and has not ended
	Add   func(jobs []store.NewJob) (answers []store.Enqueued, err error) // enqueues jobs
}

// SetSchedule is part of the contract.
func (t ScheduleTable) SetSchedule(by store.Schedule) (store.Schedule, error) {
	for {
		found, err := t.Lock([]string{by.Name})
		if err != nil {
			return store.Schedule{}, err
		}
		var current store.Schedule
		if one := found[by.Name]; one != nil {
			current = *one
		}
		next, changed, err := current.Replace(by)
		if err != nil || !changed {
			return next, err
		}
		if next.Revision, err = t.Keep(next); err != nil || next.Revision != 0 {
			return next, err
		}
	}
}

// Fire is part of the contract.
func (t ScheduleTable) Fire(firings []store.Firing, now time.Time) ([]store.Fired, error) {
	names := make([]string, len(firings))
	for i, f := range firings {
		names[i] = f.Name
	}
	found, err := t.Lock(names)
	results := make([]store.Fired, len(firings))
	for i := 0; err == nil && i < len(firings); i++ {
		results[i], err = t.fire(found, firings[i], now)
	}
	return results, err
}

func (t ScheduleTable) fire(found map[string]*store.Schedule, f store.Firing, now time.Time) (store.Fired, error) {
	current, lives := found[f.Name], false
	if current != nil && current.Overlap == store.OverlapSkip && current.LastJob != 0 {
		var err error
		if lives, err = t.Lives(current.LastJob); err != nil {
			return store.Fired{}, err
		}
	}
	next, job, result := current.Fire(f, now, lives)
	if result.Status != store.StatusOK {
		return result, nil
	}
	if job != nil {
		answers, err := t.Add([]store.NewJob{*job})
		if err != nil {
			return store.Fired{}, err
		}
		next.Enqueued(f, answers[0], &result)
	}
	revision, err := t.Keep(next)
	next.Revision, result.Revision = revision, revision
	*current = next
	return result, err
}

// Scheduled is the column that says which schedule enqueued a job: a JSON object, or NULL if none did.
type Scheduled struct{ Of **store.Extras }

// Scan reads the column.
func (s Scheduled) Scan(src any) error {
	var text []byte
	switch v := src.(type) {
	case nil:
		*s.Of = (*s.Of).WithScheduled(nil)
		return nil
	case string:
		text = []byte(v)
	case []byte:
		text = v
	default:
		return fmt.Errorf("a schedule can not be read from %T", src)
	}
	var by *store.Scheduled
	err := json.Unmarshal(text, &by)
	*s.Of = (*s.Of).WithScheduled(by)
	return err
}

// Value writes the column.
func (s Scheduled) Value() (driver.Value, error) {
	by := store.Job{Extras: *s.Of}.Scheduled()
	if by == nil {
		return nil, nil
	}
	text, err := json.Marshal(by)
	return string(text), err
}
