package store

import (
	"sync/atomic"
	"time"
)

// A Job is the current row of a job in the store. Its JSON is that of the HTTP API, like the JSON of the other types
// that have tags.
type Job struct {
	ID       int64    `json:"id,string"`          // assigned by the store in the order of enqueueing, never used again
	Queue    string   `json:"queue"`              // the queue it belongs to
	Kind     string   `json:"kind"`               // selects the handler
	Payload  []byte   `json:"payload,omitempty"`  // the JSON document that was enqueued
	Priority int      `json:"priority,omitempty"` // −9 to 9; a higher priority is claimed first
	Tags     []string `json:"tags,omitempty"`     // labels for people and filters, as they were enqueued
	Trace    string   `json:"trace,omitempty"`    // trace context of the call that enqueued it (W3C traceparent)

	State   State     `json:"state"`             // see Phase for the two faces of Failed
	RunAt   time.Time `json:"run_at,omitzero"`   // when it became or becomes due as a ready job
	RetryAt time.Time `json:"retry_at,omitzero"` // when it is due again; set only while it is retrying

	Attempts   int           `json:"attempts"`          // number of claims, without the released ones
	Retries    int           `json:"retries"`           // number of failures and expired leases since it was enqueued or requeued
	MaxRetries int           `json:"max_retries"`       // the job is dead if Retries exceeds it
	Backoff    Backoff       `json:"backoff,omitzero"`  // how long it waits before each retry
	Timeout    time.Duration `json:"timeout,omitempty"` // how long one run may take; if zero, the server decides

	Token          int64     `json:"token,omitempty,string"`    // token of the lease in force, or of the last transition
	LeaseExpiresAt time.Time `json:"lease_expires_at,omitzero"` // when its lease expires; set only while it is in flight
	ClaimedAt      time.Time `json:"claimed_at,omitzero"`       // when it was claimed last; zero if it never was
	Worker         string    `json:"worker,omitempty"`          // the worker that claimed it last; for people: no check uses it

	Checkpoint    []byte `json:"checkpoint,omitempty"`     // what the handler saved for the next attempt
	CheckpointSeq int64  `json:"checkpoint_seq,omitempty"` // the Seq with which it was saved within the lease
	Progress      []byte `json:"progress,omitempty"`       // what the handler saved for people to read
	ProgressSeq   int64  `json:"progress_seq,omitempty"`   // the Seq with which it was saved within the lease
	Result        []byte `json:"result,omitempty"`         // what the handler returned; set if the job succeeded
	Error         string `json:"error,omitempty"`          // why the latest failed attempt failed; cleared by Ack and Requeue

	UniqueKey string        `json:"unique_key,omitempty"` // held while the job is live, or for UniqueFor
	UniqueFor time.Duration `json:"unique_for,omitempty"` // how long from its enqueueing the job holds UniqueKey; zero means while it is live

	Extras *Extras `json:"-"` // what few jobs have: see ExpiresAt, Scheduled, Group and LimitKey; in JSON, its fields

	EnqueuedAt time.Time `json:"enqueued_at,omitzero"` // by the store's clock, like every time here
	FinishedAt time.Time `json:"finished_at,omitzero"` // when it ended; set only in the terminal states
}

// A State says what may happen to a job.
type State string

// The states in which jobs are kept.
const (
	Blocked   State = "blocked"   // waits for other jobs
	Ready     State = "ready"     // claimable once RunAt is due
	InFlight  State = "in_flight" // leased to a worker
	Succeeded State = "succeeded" // terminal
	Failed    State = "failed"    // retrying or dead, depending on RetryAt
	Cancelled State = "cancelled" // terminal
)

// The two phases of Failed. Filters and counts use them, and Job.Phase returns them.
const (
	Retrying State = "retrying" // failed with a RetryAt: claimable once RetryAt is due
	Dead     State = "dead"     // failed without a RetryAt: terminal
)

// Phases lists every phase of a job: the states, with Retrying and Dead in place of Failed.
var Phases = []State{Blocked, Ready, InFlight, Retrying, Succeeded, Dead, Cancelled}

// Phase returns the job's state, with Retrying or Dead in place of Failed.
func (j Job) Phase() State { return PhaseOf(&j) }

// PhaseOf returns Phase without a copy of the job. A copy takes ten times as long as the answer.
func PhaseOf(j *Job) State {
	switch {
	case j.State != Failed:
		return j.State
	case j.RetryAt.IsZero():
		return Dead
	default:
		return Retrying
	}
}

// Terminal reports whether the job has ended: it is succeeded, dead or cancelled.
func (j Job) Terminal() bool { return TerminalOf(&j) }

// TerminalOf returns Terminal without a copy of the job.
func TerminalOf(j *Job) bool {
	phase := PhaseOf(j)
	return phase == Succeeded || phase == Dead || phase == Cancelled
}

// Lease returns the job's id and its current token.
func (j Job) Lease() Lease { return Lease{ID: j.ID, Token: j.Token} }

// Next returns when the job becomes claimable or its lease expires: its due time, or the end of its lease. It is zero
// for a terminal job.
func (j Job) Next() time.Time { return NextOf(&j) }

// NextOf returns Next without a copy of the job.
func NextOf(j *Job) time.Time {
	switch PhaseOf(j) {
	case Ready:
		return j.RunAt
	case InFlight:
		return j.LeaseExpiresAt
	case Retrying:
		return j.RetryAt
	default:
		return time.Time{}
	}
}

// Claimable reports whether a claim at now could take the job if its queue is not paused.
func (j Job) Claimable(now time.Time) bool {
	phase := j.Phase()
	return (phase == Ready || phase == Retrying) && !j.Next().After(now) && !ExpiredOf(&j, now)
}

// ExpiresAt returns the time from which on no claim takes the job, or the zero time if it has none.
func (j Job) ExpiresAt() time.Time { return j.Extras.expiresAt() }

// ExpiredOf reports whether a job has expired at now: it waits, and its ExpiresAt has come.
func ExpiredOf(j *Job, now time.Time) bool {
	at := j.Extras.expiresAt()
	return !at.IsZero() && !at.After(now) && !TerminalOf(j) && j.State != InFlight
}

// Scheduled returns the schedule that enqueued the job, or nil if none did.
func (j Job) Scheduled() *Scheduled { return j.Extras.scheduled() }

// Group returns the name of the group that the job is in, or "" if it is in none.
func (j Job) Group() string { return j.Extras.group() }

// LimitKey returns what the job counts for under a limit for each key, such as a customer, or "" if it has none.
func (j Job) LimitKey() string { return j.Extras.limitKey() }

// Weight returns the total size of the job's documents in bytes.
func (j Job) Weight() int {
	return len(j.Payload) + len(j.Checkpoint) + len(j.Progress) + len(j.Result)
}

// Extras are what few jobs have. They are apart, so that the other jobs stay small. No method changes them, so jobs may share
// them. The zero pointer stands for a job that has none of it.
type Extras struct {
	ExpiresAt time.Time  // see Job.ExpiresAt
	Scheduled *Scheduled // see Job.Scheduled
	Group     string     // see Job.Group
	LimitKey  string     // see Job.LimitKey
}

func (e *Extras) value() Extras {
	if e == nil {
		return Extras{}
	}
	return *e
}

func (e *Extras) expiresAt() time.Time  { return e.value().ExpiresAt }
func (e *Extras) scheduled() *Scheduled { return e.value().Scheduled }
func (e *Extras) group() string         { return e.value().Group }
func (e *Extras) limitKey() string      { return e.value().LimitKey }

// WithExpiresAt returns extras with another ExpiresAt, or with none if it is zero.
func (e *Extras) WithExpiresAt(at time.Time) *Extras {
	v := e.value()
	v.ExpiresAt = at
	return v.pointer()
}

// WithScheduled returns extras with another schedule, or with none if it is nil.
func (e *Extras) WithScheduled(s *Scheduled) *Extras {
	v := e.value()
	v.Scheduled = s
	return v.pointer()
}

// WithGroup returns extras with another group, or with none if it is empty.
func (e *Extras) WithGroup(name string) *Extras {
	v := e.value()
	v.Group = name
	return v.pointer()
}

// WithLimitKey returns extras with another limit key, or with none if it is empty.
func (e *Extras) WithLimitKey(key string) *Extras {
	v := e.value()
	v.LimitKey = key
	return v.pointer()
}

// pointer returns a pointer to the extras, or nil if there are none. Jobs of a group or with a limit key mostly come together and have nothing
// else, so they share theirs.
func (e Extras) pointer() *Extras {
	if e == (Extras{}) {
		return nil
	}
	shared := e == Extras{Group: e.Group, LimitKey: e.LimitKey}
	if latest := latestShared.Load(); shared && latest != nil && *latest == e {
		return latest
	}
	kept := e
	if shared {
		latestShared.Store(&kept)
	}
	return &kept
}

var latestShared atomic.Pointer[Extras]

// Clone returns a copy.
func (e *Extras) Clone() *Extras {
	if e == nil {
		return nil
	}
	return &Extras{e.ExpiresAt, e.Scheduled.Clone(), e.Group, e.LimitKey}
}

// Scheduled says which schedule enqueued a job, and for which of its times.
type Scheduled struct {
	Name string    `json:"schedule"`      // of the schedule
	For  time.Time `json:"scheduled_for"` // the time of the schedule
}

// Clone returns a copy, or nil for nil.
func (s *Scheduled) Clone() *Scheduled {
	if s == nil {
		return nil
	}
	copied := *s
	return &copied
}

// A Lease is the right to finish a job, granted by a claim. It is stale as soon as the job has another token.
type Lease struct {
	ID    int64 `json:"id,string"`    // of the job
	Token int64 `json:"token,string"` // given by the claim
}

// An Attempt records one claim of a job. Read its Ending and Error to learn why the job was run again.
type Attempt struct {
	Token     int64     `json:"token,omitempty,string"` // token of its lease
	Worker    string    `json:"worker"`                 // who claimed the job
	StartedAt time.Time `json:"started_at"`             // when it was claimed
	EndedAt   time.Time `json:"ended_at,omitzero"`      // zero while it runs
	Ending    Ending    `json:"ending,omitempty"`       // how it ended
	Error     string    `json:"error,omitempty"`        // why it failed, or was put off
}

// An Ending is how an attempt ended. Compare it with the constants.
type Ending string

// The endings, each with the call that writes it.
const (
	NotEnded     Ending = ""          // the job is in flight
	EndSucceeded Ending = "succeeded" // Ack
	EndFailed    Ending = "failed"    // NAck, and an Ack whose result is refused
	EndSnoozed   Ending = "snoozed"   // NAck with Snooze
	EndReleased  Ending = "released"  // NAck with Release
	EndExpired   Ending = "expired"   // RecoverExpiredLeases
	EndCancelled Ending = "cancelled" // Cancel
)

// MaxAttemptsKept is how many attempts of a job are kept: the latest ones.
const MaxAttemptsKept = 100

// JobDetail is a job with its attempts and with what it waits for.
type JobDetail struct {
	Job
	History []Attempt `json:"history"`         // the oldest attempt first; the latest 100 are kept
	Waits   []Waiting `json:"waits,omitempty"` // in the order in which they were enqueued
}

// A Waiting is a job or a group that a job waits for, or has waited for.
type Waiting struct {
	ID    int64  `json:"id,omitempty,string"` // of the job; zero if Group names what it waits for
	Group string `json:"group,omitempty"`     // the name of the group
	Any   bool   `json:"any,omitempty"`       // met by whatever end
	Met   bool   `json:"met,omitempty"`       // the wait is over
	State State  `json:"state,omitempty"`     // phase of the job or of the group now; empty if the job no longer exists
}

// HoldsUp reports whether the wait will never be met unless somebody requeues a job: what must succeed is dead, cancelled or gone.
func (w Waiting) HoldsUp() bool {
	return !w.Met && !w.Any && (w.State == "" || w.State == Dead || w.State == Cancelled)
}
