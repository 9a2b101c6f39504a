package jq

import (
	"context"
	"time"

	"github.com/seed-ed332417/jq/internal/schedule"
	"github.com/seed-ed332417/jq/internal/store"
)

// Schedules, which enqueue copies of a job at the times of an expression. Every server fires them.
type (
	// A Schedule enqueues copies of a job at the times of an expression.
	//
	// Its fields:
	//
	//	Name     string  // one row for each name
	//	Cron     string  // the expression: five or six fields, "@daily" and the like, or "@every 90s"
	//	Timezone string  // the IANA name of the zone in which the expression is read; empty means UTC
	//	Job      NewJob  // what to enqueue; RunAt must not be set
	//	CatchUp  CatchUp // what becomes of times that were missed; empty means CatchUpOne
	//	Overlap  Overlap // what to do while the previous job has not ended; empty means OverlapAllow
	//	Paused   bool    // a paused schedule has no NextAt
	//	Owner    string  // the program that declares it, if a program does
	//	Version  int64   // of that declaration: a lower one does not replace it
	//
	//	NextAt time.Time // the time for which it fires next; zero if there is none
	//
	//	LastAt   time.Time // the time for which it fired last; set by the store
	//	LastJob  int64     // the job of that time; set by the store
	//	Revision int64     // identifies this state of the row; set by the store
	//
	// Its methods:
	//
	//	// Check returns an *InvalidError if the schedule breaks a limit.
	//	func (Schedule) Check() error
	//	// Weight returns the size of the schedule's payload in bytes.
	//	func (Schedule) Weight() int
	//	// Kept returns the schedule as a store keeps it, with the defaults and the resolution of the contract.
	//	func (Schedule) Kept() Schedule
	//	// Replace is SetSchedule for the schedule s, or for the zero Schedule if there is none by that name.
	//	func (Schedule) Replace(by Schedule) (next Schedule, changed bool, err error)
	//	// Fire applies a firing to the schedule at now; lastLives says whether LastJob exists and has not ended.
	//	func (*Schedule) Fire(f contract.Firing, now time.Time, lastLives bool) (next Schedule, job *NewJob, result contract.Fired)
	//	// Enqueued completes the schedule and the result of a firing whose job was enqueued, or was a duplicate.
	//	func (*Schedule) Enqueued(f contract.Firing, answer Enqueued, result *contract.Fired)
	Schedule = store.Schedule

	// A CatchUp says what becomes of the times of a schedule that passed while no server looked.
	//
	// Its values:
	//
	//	CatchUpOne  = "one"  // the latest of them enqueues, however late
	//	CatchUpSkip = "skip" // times more than MaxLateness late do not enqueue
	CatchUp = store.CatchUp

	// An Overlap says what a schedule does if its previous job has not ended.
	//
	// Its values:
	//
	//	OverlapAllow = "allow" // enqueue the next job all the same
	//	OverlapSkip  = "skip"  // leave this time out
	Overlap = store.Overlap

	// Scheduled says which schedule enqueued a job, and for which of its times.
	//
	// Its fields:
	//
	//	Name string    // of the schedule
	//	For  time.Time // the time of the schedule
	//
	// Its methods:
	//
	//	// Clone returns a copy, or nil for nil.
	//	func (*Scheduled) Clone() *Scheduled
	Scheduled = store.Scheduled

	// Extras are what few jobs have. They are apart, so that the other jobs stay small. No method changes them, so jobs may share
	// them. The zero pointer stands for a job that has none of it.
	//
	// Its fields:
	//
	//	ExpiresAt time.Time  // see Job.ExpiresAt
	//	Scheduled *Scheduled // see Job.Scheduled
	//	Group     string     // see Job.Group
	//	LimitKey  string     // see Job.LimitKey
	//
	// Its methods:
	//
	//	// WithExpiresAt returns extras with another ExpiresAt, or with none if it is zero.
	//	func (*Extras) WithExpiresAt(at time.Time) *Extras
	//	// WithScheduled returns extras with another schedule, or with none if it is nil.
	//	func (*Extras) WithScheduled(s *Scheduled) *Extras
	//	// WithGroup returns extras with another group, or with none if it is empty.
	//	func (*Extras) WithGroup(name string) *Extras
	//	// WithLimitKey returns extras with another limit key, or with none if it is empty.
	//	func (*Extras) WithLimitKey(key string) *Extras
	//	// Clone returns a copy.
	//	func (*Extras) Clone() *Extras
	Extras = store.Extras
)

// The ways of a [Schedule] to catch up, and to overlap.
const (
	CatchUpOne   = store.CatchUpOne   // the latest of the missed times enqueues, however late
	CatchUpSkip  = store.CatchUpSkip  // times more than a minute late do not enqueue
	OverlapAllow = store.OverlapAllow // enqueue the next job although the previous one has not ended
	OverlapSkip  = store.OverlapSkip  // leave this time out
)

// NewJob returns the job that [Client.Enqueue] would enqueue with these arguments, for a [Schedule]. Options may be nil.
func (c *Client) NewJob(payload Payload, options *EnqueueOptions) (NewJob, error) {
	var o EnqueueOptions
	if options != nil {
		o = *options
	}
	if o.RequestKey != "" {
		return NewJob{}, &InvalidError{Item: -1, Field: "request_key", Rule: "belongs to a call of Enqueue: leave it out"}
	}
	return newJob(0, payload, o, c.defaults)
}

// PutSchedule adds or replaces the schedule of that name, and returns it with its next time. What the present schedule is due
// for fires first. A put that changes nothing changes nothing, so a program can put its schedules each time it starts.
//
// A schedule with an Owner is a declaration of a program. It replaces only a schedule with a lower Version, so raise the version
// with each change. It leaves Paused as it is, and returns ErrConflict for the schedule of another owner. A schedule without an
// Owner replaces every schedule and keeps owner and version: such a change stays until the program declares a higher version.
//
// PutSchedule ignores NextAt, LastAt, LastJob and Revision.
func (c *Client) PutSchedule(ctx context.Context, s Schedule) (Schedule, error) {
	keeper, err := c.schedules()
	if err != nil {
		return Schedule{}, err
	}
	return schedule.Put(ctx, keeper, s)
}

// PutScheduleTx is PutSchedule in a caller's transaction: if tx is rolled back, the schedule is as it was before.
func (c *Client) PutScheduleTx(ctx context.Context, tx Tx, s Schedule) (Schedule, error) {
	w, err := c.inTx(tx)
	if err != nil {
		return Schedule{}, err
	}
	keeper, ok := w.(store.ScheduleKeeper)
	if !ok {
		return Schedule{}, missing("keep schedules in a caller's transaction")
	}
	return schedule.Put(ctx, keeper, s)
}

// Schedule returns the schedule with the name, or ErrNotFound.
func (c *Client) Schedule(ctx context.Context, name string) (Schedule, error) {
	keeper, err := c.schedules()
	if err != nil {
		return Schedule{}, err
	}
	s, _, err := schedule.Get(ctx, keeper, name)
	return s, err
}

// Schedules returns every schedule, in order of name.
func (c *Client) Schedules(ctx context.Context) ([]Schedule, error) {
	keeper, err := c.schedules()
	if err != nil {
		return nil, err
	}
	return schedule.All(ctx, keeper)
}

// DeleteSchedule removes the schedule, if there is one by that name. Its jobs stay.
func (c *Client) DeleteSchedule(ctx context.Context, name string) error {
	keeper, err := c.schedules()
	if err != nil {
		return err
	}
	return keeper.DeleteSchedule(ctx, name)
}

// PauseSchedule makes the schedule enqueue nothing until [Client.ResumeSchedule]. The times in between are not missed times.
func (c *Client) PauseSchedule(ctx context.Context, name string) (Schedule, error) {
	return c.pauseSchedule(ctx, name, true)
}

// ResumeSchedule ends a pause.
func (c *Client) ResumeSchedule(ctx context.Context, name string) (Schedule, error) {
	return c.pauseSchedule(ctx, name, false)
}

func (c *Client) pauseSchedule(ctx context.Context, name string, paused bool) (Schedule, error) {
	keeper, err := c.schedules()
	if err != nil {
		return Schedule{}, err
	}
	return schedule.SetPaused(ctx, keeper, name, paused)
}

// RunSchedule enqueues the job of the schedule at once, in addition to its times, even if it is paused. If the schedule must not
// overlap and its previous job has not ended, no job is enqueued, and the error is ErrState.
func (c *Client) RunSchedule(ctx context.Context, name string) (Enqueued, error) {
	keeper, err := c.schedules()
	if err != nil {
		return Enqueued{}, err
	}
	return schedule.Run(ctx, keeper, name)
}

// ResetSchedule computes the next time of the schedule anew. It is for a schedule that fired while a clock was ahead, and would
// wait until that time.
func (c *Client) ResetSchedule(ctx context.Context, name string) (Schedule, error) {
	keeper, err := c.schedules()
	if err != nil {
		return Schedule{}, err
	}
	return schedule.Reset(ctx, keeper, name)
}

func (c *Client) schedules() (store.ScheduleKeeper, error) {
	keeper, ok := c.store.(store.ScheduleKeeper)
	if !ok {
		return nil, missing("keep schedules")
	}
	return keeper, nil
}

// PreviewSchedule returns the next n times of an expression in a time zone after a time.
func PreviewSchedule(cron, timezone string, after time.Time, n int) ([]time.Time, error) {
	times, err := schedule.Parse(cron, timezone, after)
	if err != nil {
		return nil, err
	}
	return times.Upcoming(after, n), nil
}
