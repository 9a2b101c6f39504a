package wire

import (
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// A Schedule is a schedule as the store has it, and the body of a PUT. In a PUT with a Revision, NextAt counts as well: the store
// keeps both as they are. Without, the server computes NextAt.
type Schedule struct {
	Name     string        `json:"name,omitempty"` // stands in the path of a PUT
	Cron     string        `json:"cron"`
	Timezone string        `json:"timezone,omitempty"`
	Job      NewJob        `json:"job"`
	CatchUp  store.CatchUp `json:"catch_up,omitempty"`
	Overlap  store.Overlap `json:"overlap,omitempty"`
	Paused   bool          `json:"paused,omitempty"`
	Owner    string        `json:"owner,omitempty"`
	Version  int64         `json:"version,omitempty"`
	NextAt   Time          `json:"next_at,omitzero"`
	LastAt   Time          `json:"last_at,omitzero"`
	LastJob  ID            `json:"last_job,omitzero"`
	Revision *ID           `json:"revision,omitempty"` // a PUT that adds a schedule has 0
	Redacted bool          `json:"redacted,omitempty"` // the payload is left out, because the caller's role may not see it
}

// ScheduleOf converts a schedule of a store.
func ScheduleOf(s store.Schedule) Schedule {
	out := Schedule{
		Name: s.Name, Cron: s.Cron, Timezone: s.Timezone, Job: NewJobOf(s.Job), CatchUp: s.CatchUp, Overlap: s.Overlap, Paused: s.Paused,
		Owner: s.Owner, Version: s.Version, NextAt: Time{Time: s.NextAt}, LastAt: Time{Time: s.LastAt}, LastJob: ID(s.LastJob),
	}
	if s.Revision != 0 {
		revision := ID(s.Revision)
		out.Revision = &revision
	}
	return out
}

// Store converts the schedule back. Fields of its job that are left out are those of defaults.
func (s Schedule) Store(defaults store.NewJob) store.Schedule {
	out := store.Schedule{
		Name: s.Name, Cron: s.Cron, Timezone: s.Timezone, Job: s.Job.Store(defaults), CatchUp: s.CatchUp, Overlap: s.Overlap, Paused: s.Paused,
		Owner: s.Owner, Version: s.Version, NextAt: s.NextAt.Time, LastAt: s.LastAt.Time, LastJob: int64(s.LastJob),
	}
	if s.Revision != nil {
		out.Revision = int64(*s.Revision)
	}
	return out
}

// Redact leaves out the payload.
func (s Schedule) Redact() Schedule {
	s.Job.Payload, s.Job.PayloadText, s.Redacted = nil, nil, true
	return s
}

// SchedulePage is one page of the schedules.
type SchedulePage struct {
	Now       Time       `json:"now"`
	Schedules []Schedule `json:"schedules"`
	Next      string     `json:"next,omitempty"`
}

// SchedulePageOf converts a page of a store.
func SchedulePageOf(p store.SchedulePage) SchedulePage {
	return SchedulePage{Now: Time{Time: p.Now}, Schedules: Each(p.Schedules, ScheduleOf), Next: p.Next}
}

// Store converts the page back.
func (p SchedulePage) Store() store.SchedulePage {
	list := Each(p.Schedules, func(s Schedule) store.Schedule { return s.Store(store.NewJob{}) })
	return store.SchedulePage{Now: p.Now.Time, Schedules: list, Next: p.Next}
}

// Fire moves schedules to their next times, and enqueues their jobs.
type Fire struct {
	Firings []Firing `json:"firings"`
}

// A Firing is the item of a Fire.
type Firing struct {
	Name     string `json:"name"`
	Revision ID     `json:"revision"`
	For      Time   `json:"for,omitzero"`
	Next     Time   `json:"next,omitzero"`
}

// FiringOf converts a firing.
func FiringOf(f store.Firing) Firing {
	return Firing{Name: f.Name, Revision: ID(f.Revision), For: Time{Time: f.For}, Next: Time{Time: f.Next}}
}

// Store converts the firing back.
func (f Firing) Store() store.Firing {
	return store.Firing{Name: f.Name, Revision: int64(f.Revision), For: f.For.Time, Next: f.Next.Time}
}

// Fired is the answer to a Fire: one outcome for each item, in order.
type Fired struct {
	Fired []store.Fired `json:"fired"`
}

// Preview asks for the next times of an expression. Without After, they are those after now.
type Preview struct {
	Cron     string `json:"cron"`
	Timezone string `json:"timezone,omitempty"`
	Count    *int   `json:"count,omitempty"`
	After    Time   `json:"after,omitzero"`
}

// Times is the answer to a Preview.
type Times struct {
	Times []Time `json:"times"`
}

// TimesOf converts times.
func TimesOf(times []time.Time) Times {
	return Times{Times: Each(times, func(t time.Time) Time { return Time{Time: t} })}
}
