package store

import (
	"time"
)

// A Job is one row of the store, as it stands.
type Job struct {
	ID       int64    // given by the store, grows with the order of enqueueing, never used again
	Queue    string   // where it waits
	Kind     string   // what handler it wants
	Payload  []byte   // a JSON document, as it was enqueued
	Priority int      // −9 to 9, higher first
	Tags     []string // for people and filters, as they were enqueued
	Trace    string   // the trace context of who enqueued it (W3C traceparent)

	State   State
	RunAt   time.Time // when it became, or becomes, due
	RetryAt time.Time // when it is due again; set while it is retrying

	Attempts   int           // claims, less the released ones
	Retries    int           // failures and expired leases since it was enqueued or requeued
	MaxRetries int           // Retries beyond it make the job dead
	Backoff    Backoff       // how long it waits before each retry
	Timeout    time.Duration // how long a run may take; zero leaves that to the server

	Token          int64     // of the lease in force, or of the last transition
	LeaseExpiresAt time.Time // set while it is in flight
	Worker         string    // who claimed it last: for people, part of no check

	Checkpoint    []byte // what a handler saved for the next attempt
	CheckpointSeq int64  // its number within the lease
	Progress      []byte // what a handler saved for people
	ProgressSeq   int64  // its number within the lease
	Result        []byte // what the handler returned; set when it has succeeded
	Error         string // why the latest failed attempt failed; cleared by Ack and Requeue

	UniqueKey string        // held while the job is live, or for UniqueFor
	UniqueFor time.Duration // zero: while the job is live; else so long from its enqueueing

	EnqueuedAt time.Time
	FinishedAt time.Time // set in the terminal states
}

// A State says what may happen to a job.
type State string

// The states in which jobs are kept.
const (
	Ready     State = "ready"     // claimable from RunAt
	InFlight  State = "in_flight" // leased to a worker
	Succeeded State = "succeeded" // terminal
	Failed    State = "failed"    // retrying or dead, by RetryAt
	Cancelled State = "cancelled" // terminal
)

// The two faces of Failed: filters and counts know them, and Phase answers them.
const (
	Retrying State = "retrying" // failed with RetryAt: claimable from then
	Dead     State = "dead"     // failed without RetryAt: terminal
)

// Phases are all that a job can be, with both faces of Failed in its place.
var Phases = []State{Ready, InFlight, Retrying, Succeeded, Dead, Cancelled}

// Phase is the job's state, with Retrying or Dead in place of Failed.
func (j Job) Phase() State {
	switch {
	case j.State != Failed:
		return j.State
	case j.RetryAt.IsZero():
		return Dead
	default:
		return Retrying
	}
}

// Terminal says that nothing happens to the job any more by itself.
func (j Job) Terminal() bool {
	switch j.Phase() {
	case Succeeded, Dead, Cancelled:
		return true
	default:
		return false
	}
}

// Lease names the right to finish the job that its latest claim gave.
func (j Job) Lease() Lease { return Lease{ID: j.ID, Token: j.Token} }

// Next is when time alone changes what can happen to the job: the end of its lease, or when it is due. It is zero for a
// terminal job.
func (j Job) Next() time.Time {
	switch j.Phase() {
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

// Claimable says that a claim at now could take the job, if its queue is not paused.
func (j Job) Claimable(now time.Time) bool {
	phase := j.Phase()
	return (phase == Ready || phase == Retrying) && !j.Next().After(now)
}

// Weight is how many bytes the job's documents have together.
func (j Job) Weight() int {
	return len(j.Payload) + len(j.Checkpoint) + len(j.Progress) + len(j.Result)
}

// A Lease is the right to finish a job, given by a claim. It is stale as soon as the job has another token.
type Lease struct {
	ID    int64
	Token int64
}

// An Attempt is the history of one claim.
type Attempt struct {
	Token     int64 // of its lease
	Worker    string
	StartedAt time.Time
	EndedAt   time.Time // zero while it runs
	Ending    Ending
	Error     string // why it failed
}

// An Ending is how an attempt ended.
type Ending string

// The endings, each with the call that writes it.
const (
	Running      Ending = ""          // not ended: the job is in flight
	EndSucceeded Ending = "succeeded" // Ack
	EndFailed    Ending = "failed"    // NAck, and an Ack whose result is refused
	EndSnoozed   Ending = "snoozed"   // NAck with Snooze
	EndReleased  Ending = "released"  // NAck with Release
	EndExpired   Ending = "expired"   // RecoverExpiredLeases
	EndCancelled Ending = "cancelled" // Cancel
)

// MaxAttemptsKept is how many attempts of a job are remembered: the latest.
const MaxAttemptsKept = 100

// JobDetail is a job with its attempts, the oldest first.
type JobDetail struct {
	Job
	History []Attempt
}
