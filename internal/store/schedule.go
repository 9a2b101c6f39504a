package store

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"time"
)

// A Schedule enqueues copies of a job at the times of an expression.
type Schedule struct {
	Name     string  `json:"name,omitempty"`     // one row for each name
	Cron     string  `json:"cron"`               // the expression: five or six fields, "@daily" and the like, or "@every 90s"
	Timezone string  `json:"timezone,omitempty"` // the IANA name of the zone in which the expression is read; empty means UTC
	Job      NewJob  `json:"job"`                // what to enqueue; RunAt must not be set
	CatchUp  CatchUp `json:"catch_up,omitempty"` // what becomes of times that were missed; empty means CatchUpOne
	Overlap  Overlap `json:"overlap,omitempty"`  // what to do while the previous job has not ended; empty means OverlapAllow
	Paused   bool    `json:"paused,omitempty"`   // a paused schedule has no NextAt
	Owner    string  `json:"owner,omitempty"`    // the program that declares it, if a program does
	Version  int64   `json:"version,omitempty"`  // of that declaration: a lower one does not replace it

	NextAt time.Time `json:"next_at,omitzero"` // the time for which it fires next; zero if there is none

	LastAt   time.Time `json:"last_at,omitzero"`          // the time for which it fired last; set by the store
	LastJob  int64     `json:"last_job,omitempty,string"` // the job of that time; set by the store
	Revision int64     `json:"revision,omitempty,string"` // identifies this state of the row; set by the store
}

// A CatchUp says what becomes of the times of a schedule that passed while no server looked.
type CatchUp string

// The ways to catch up.
const (
	CatchUpOne  CatchUp = "one"  // the latest of them enqueues, however late
	CatchUpSkip CatchUp = "skip" // times more than MaxLateness late do not enqueue
)

// MaxLateness is how late a time of a schedule with CatchUpSkip may be.
const MaxLateness = time.Minute

// An Overlap says what a schedule does if its previous job has not ended.
type Overlap string

// The ways to overlap.
const (
	OverlapAllow Overlap = "allow" // enqueue the next job all the same
	OverlapSkip  Overlap = "skip"  // leave this time out
)

// A ScheduleFilter selects schedules. The zero value selects every schedule.
type ScheduleFilter struct {
	Name   string        // the schedule with this name
	Due    bool          // those whose NextAt is due, or will be due within Within
	Within time.Duration // with Due: how far ahead NextAt may lie
}

// Matches reports whether the filter selects the schedule at now.
func (f ScheduleFilter) Matches(s Schedule, now time.Time) bool {
	soon := now.Add(f.Within.Truncate(Resolution))
	return (f.Name == "" || f.Name == s.Name) && (!f.Due || !s.NextAt.IsZero() && !s.NextAt.After(soon))
}

// A SchedulePage is one page of the schedules, in bytewise order of name.
type SchedulePage struct {
	Now       time.Time  `json:"now"`            // the store's now
	Schedules []Schedule `json:"schedules"`      // by name
	Next      string     `json:"next,omitempty"` // cursor of the next page; empty on the last page
}

// A Firing moves a schedule to its next time, and enqueues its job if For is set.
type Firing struct {
	Name     string    `json:"name"`            // of the schedule
	Revision int64     `json:"revision,string"` // of the schedule as the caller read it
	For      time.Time `json:"for,omitzero"`    // the time for which the job is enqueued; zero enqueues none
	Next     time.Time `json:"next,omitzero"`   // the new NextAt
}

// Fired is the result of one Firing.
type Fired struct {
	Name     string    `json:"name"`                      // of the schedule
	Status   Status    `json:"status"`                    // what became of the item
	Revision int64     `json:"revision,omitempty,string"` // of the schedule after the item; zero if there is none
	Job      *Enqueued `json:"job,omitempty"`             // the job that was enqueued, or that holds its unique key; nil if there is none
	Reason   string    `json:"reason,omitempty"`          // for people: why the item is invalid, or enqueued nothing
}

// Weight returns the size of the schedule's payload in bytes.
func (s Schedule) Weight() int { return len(s.Job.Payload) }

// Kept returns the schedule as a store keeps it, with the defaults and the resolution of the contract. It shares no slice
// with s.
func (s Schedule) Kept() Schedule {
	row := s.Job.Row(0, time.Time{})
	s.Job = NewJob{
		Queue: row.Queue, Kind: row.Kind, Payload: bytes.Clone(row.Payload), Priority: row.Priority, Tags: slices.Clone(row.Tags), Trace: row.Trace,
		Delay: s.Job.Delay.Truncate(Resolution), MaxRetries: row.MaxRetries, Backoff: row.Backoff, Timeout: row.Timeout,
		UniqueKey: row.UniqueKey, UniqueFor: row.UniqueFor, LimitKey: row.LimitKey(),
	}
	if len(s.Job.Tags) == 0 {
		s.Job.Tags = nil
	}
	if s.CatchUp == "" {
		s.CatchUp = CatchUpOne
	}
	if s.Overlap == "" {
		s.Overlap = OverlapAllow
	}
	s.NextAt, s.LastAt = Truncate(s.NextAt), Truncate(s.LastAt)
	return s
}

// Replace is SetSchedule for the schedule s, or for the zero Schedule if there is none by that name. It returns what the store
// must keep, and whether that differs from s: then the store must give it a new Revision. The caller must have checked by.
func (s Schedule) Replace(by Schedule) (next Schedule, changed bool, err error) {
	next = by.Kept()
	next.LastAt, next.LastJob, next.Revision = s.LastAt, s.LastJob, s.Revision
	switch {
	case s.Revision != 0 && reflect.DeepEqual(next, s):
		return s, false, nil
	case s.Revision != by.Revision:
		return Schedule{}, false, Explained(ErrConflict, "the schedule was changed by somebody else: its revision is %d, not %d", s.Revision, by.Revision)
	default:
		return next, true, nil
	}
}

// Fire applies a firing to the schedule at now; lastLives says whether LastJob exists and has not ended. If the returned
// status is ok, the store must enqueue the job, unless it is nil, and keep the returned schedule under a new Revision.
func (s *Schedule) Fire(f Firing, now time.Time, lastLives bool) (next Schedule, job *NewJob, result Fired) {
	result = Fired{Name: f.Name, Status: StatusOK}
	if s == nil {
		result.Status = StatusNotFound
		return Schedule{}, nil, result
	}
	next, result.Revision = *s, s.Revision
	f.For, f.Next = Truncate(f.For), Truncate(f.Next)
	switch {
	case s.Revision != f.Revision:
		result.Status = StatusStale
	case f.For.After(now):
		result.Status = StatusWrongState
	case s.NextAt.IsZero() && !f.Next.IsZero():
		result.Status, result.Reason = StatusInvalid, refuse("next", "must be empty for a schedule without a next time").Error()
	case !f.Next.IsZero() && f.Next.Before(s.NextAt):
		result.Status, result.Reason = StatusInvalid, refuse("next", "must not lie before the schedule's next time").Error()
	default:
		next.NextAt = f.Next
		switch {
		case f.For.IsZero():
		case s.Overlap == OverlapSkip && lastLives:
			result.Reason = fmt.Sprintf("its previous job, %d, has not ended", s.LastJob)
		default:
			copied := s.Kept().Job
			copied.Scheduled = &Scheduled{Name: s.Name, For: f.For}
			job = &copied
		}
	}
	return next, job, result
}

// Enqueued completes the schedule and the result of a firing whose job was enqueued, or was a duplicate.
func (s *Schedule) Enqueued(f Firing, answer Enqueued, result *Fired) {
	s.LastAt, s.LastJob = Truncate(f.For), answer.ID
	result.Job = &answer
	if answer.Duplicate {
		result.Reason = fmt.Sprintf("job %d holds its unique key", answer.ID)
	}
}
