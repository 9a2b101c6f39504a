package store

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A NewJob is a job to enqueue. No field has a default: a zero field is taken as zero.
type NewJob struct {
	Queue      string        `json:"queue"`                // where it is to wait
	Kind       string        `json:"kind"`                 // selects the handler
	Payload    []byte        `json:"payload,omitempty"`    // a JSON document
	Priority   int           `json:"priority,omitempty"`   // −9 to 9; a higher priority is claimed first
	Tags       []string      `json:"tags,omitempty"`       // for people and filters
	Trace      string        `json:"trace,omitempty"`      // the trace context of the caller (W3C traceparent)
	RunAt      time.Time     `json:"run_at,omitzero"`      // the due time, or at once if it is past; excludes Delay
	Delay      time.Duration `json:"delay,omitempty"`      // how long from the store's now the job becomes due; excludes RunAt
	MaxRetries int           `json:"max_retries"`          // retries beyond it make the job dead
	Backoff    Backoff       `json:"backoff"`              // how long it waits before each retry
	Timeout    time.Duration `json:"timeout,omitempty"`    // how long one run may take; if zero, the server decides
	UniqueKey  string        `json:"unique_key,omitempty"` // keeps out a second job with the same key
	UniqueFor  time.Duration `json:"unique_for,omitempty"` // with UniqueKey: how long from now the key is held; zero means while the job is live
	Replace    bool          `json:"replace,omitempty"`    // with UniqueKey: change the job that holds the key, if it waits in the same queue and is of the same kind, group and limit key
	ExpiresAt  time.Time     `json:"expires_at,omitzero"`  // later than the due time: from then on no claim takes the job; zero means never
	After      []Wait        `json:"after,omitempty"`      // for which jobs and groups it waits
	Group      string        `json:"group,omitempty"`      // the group that it is in
	LimitKey   string        `json:"limit_key,omitempty"`  // what it counts for under a limit for each key of its queue, such as a customer

	Scheduled *Scheduled `json:"-"` // set by schedules alone: Enqueue refuses it
}

// A Wait names what a new job waits for: a job that exists, an earlier item of the same call, or a group.
type Wait struct {
	ID    int64  `json:"id,omitempty,string"` // of the job; zero if Item or Group names what it waits for
	Item  int    `json:"item,omitempty"`      // index in the call, if ID is zero and Group empty
	Group string `json:"group,omitempty"`     // the name of the group
	Any   bool   `json:"any,omitempty"`       // until it has ended in whatever way; otherwise until it has succeeded
}

// later returns the later time.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Row returns the job as it is after it was enqueued at now with the id. It shares no slice with n.
func (n NewJob) Row(id int64, now time.Time) Job {
	return Job{
		ID: id, Queue: n.Queue, Kind: n.Kind, Payload: bytes.Clone(n.Payload), Priority: n.Priority,
		Tags: slices.Clone(n.Tags), Trace: n.Trace,
		State: Ready, RunAt: later(now.Add(n.Delay.Truncate(Resolution)), Truncate(n.RunAt)), // of which one at most is set
		MaxRetries: n.MaxRetries, Timeout: n.Timeout.Truncate(Resolution),
		Backoff: Backoff{
			Base: n.Backoff.Base.Truncate(Resolution), Cap: n.Backoff.Cap.Truncate(Resolution), Jitter: n.Backoff.Jitter,
		},
		UniqueKey: n.UniqueKey, UniqueFor: n.UniqueFor.Truncate(Resolution),
		Extras:     Extras{Truncate(n.ExpiresAt), n.Scheduled.Clone(), n.Group, n.LimitKey}.pointer(),
		EnqueuedAt: now,
	}
}

// An EnqueueRequest holds the jobs of one Enqueue, which adds all of them or none.
type EnqueueRequest struct {
	Jobs       []NewJob // up to 1,000
	Open       []string // optional: the groups to open, up to 100
	RequestKey string   // optional: makes the call safe to repeat for a day
}

// RequestKeyLife is how long a request key is remembered.
const RequestKeyLife = 24 * time.Hour

// Enqueued is the answer for one NewJob. Keep its ID to look the job up, to wait for it, or to cancel it.
type Enqueued struct {
	ID        int64 `json:"id,string"`           // id of the new job, or of the job that holds the unique key
	State     State `json:"state,omitempty"`     // state of that job at that moment; empty if it was deleted and still holds its key
	Duplicate bool  `json:"duplicate,omitempty"` // true if nothing was enqueued because another job holds the unique key
	Replaced  bool  `json:"replaced,omitempty"`  // with Duplicate: that job was changed, as NewJob.Replace asks
}

// A ClaimRequest asks for jobs of one queue.
type ClaimRequest struct {
	Queue      string        // from which to claim
	Limit      int           // 1 to 1,000
	RetryQuota int           // 0 to Limit: how many of the jobs may be retries while fresh jobs wait
	Worker     string        // written to the jobs; no check uses it
	TTL        time.Duration // length of the leases
	Room       []Job         // optional: memory that the store may use for the answer. Whoever lends it must have finished with the jobs in it.
}

// MayLeave reports whether the queue may have had more jobs for a claim that returned these: they are as many as it asked for,
// or so large that the next job may not have fitted.
func (r ClaimRequest) MayLeave(jobs []Job) bool {
	if len(jobs) >= r.Limit {
		return true
	}
	weight := 0
	for i := range jobs {
		weight += jobs[i].Weight()
	}
	return weight > MaxAnswerBytes-MaxJobBytes
}

// An Ack finishes a job that has succeeded.
type Ack struct {
	Lease
	Result []byte // a JSON document, or empty
}

// A NAck ends a lease without success.
type NAck struct {
	Lease
	Form  Form          // what is to happen next
	Delay time.Duration // for After and Snooze
	Error string        // why: for Fail, Never, After and Snooze
}

// A Form says what a NAck does with the job.
type Form string

// The forms of NAck. Fail, Never and After count as a failure; Snooze and Release do not.
const (
	Fail    Form = "fail"    // retry after the job's backoff
	Never   Form = "never"   // no retry
	After   Form = "after"   // retry after Delay
	Snooze  Form = "snooze"  // claimable again after Delay
	Release Form = "release" // claimable again at once; the claim does not count as an attempt
)

// Failure returns the Failure that a NAck with Fail, Never or After stands for. A Snooze keeps the Reason too.
func (n NAck) Failure() Failure {
	return Failure{Reason: CleanError(n.Error), Never: n.Form == Never, After: n.Form == After, Delay: n.Delay}
}

// A Save stores the checkpoint, the progress or both of a handler. An empty document leaves the stored one as it is.
type Save struct {
	Lease
	Seq        int64  // number of this save within the lease: 0 or more, growing
	Checkpoint []byte // a JSON document for the next attempt
	Progress   []byte // a JSON document for people
}

// An Outcome is the result of one item of a call. Its Err is nil unless the item was refused.
type Outcome struct {
	ID     int64     `json:"id,string"`              // of the job
	Status Status    `json:"status"`                 // what became of the item
	State  State     `json:"state,omitempty"`        // state of the job after the item; empty if the job is gone or busy, or the item is invalid
	Token  int64     `json:"token,omitempty,string"` // token of the job after the item; zero in the same cases
	Next   time.Time `json:"next,omitzero"`          // Job.Next after the item
	Reason string    `json:"reason,omitempty"`       // for people: why the item is invalid, or which job holds the key
}

// A Status says how one item of a call ended. Compare it with the constants, or ask [Outcome.Err].
type Status string

// The statuses. Only stale is worth a warning.
const (
	StatusOK         Status = "ok"
	StatusStale      Status = "stale"       // the lease was ended by someone else, or by its holder in another way
	StatusNotFound   Status = "not_found"   // the job does not exist, or no longer exists
	StatusInvalid    Status = "invalid"     // the item breaks a limit
	StatusBusy       Status = "busy"        // Extend: the job is locked right now; its lease was neither extended nor lost
	StatusFinished   Status = "finished"    // Extend: the holder has finished the job
	StatusCancelled  Status = "cancelled"   // Extend: the job is cancelled
	StatusWrongState Status = "wrong_state" // the operation is not possible in the job's state
	StatusDuplicate  Status = "duplicate"   // Requeue: another job holds the unique key
)

// Err returns the status as an error, or nil for ok, finished and busy, with which nothing is lost.
func (o Outcome) Err() error {
	switch o.Status {
	case StatusStale:
		return ErrStaleLease
	case StatusNotFound:
		return ErrNotFound
	case StatusInvalid:
		return fmt.Errorf("%w: %s", ErrInvalid, strings.TrimPrefix(o.Reason, ErrInvalid.Error()+": "))
	case StatusCancelled, StatusWrongState:
		return ErrState
	case StatusDuplicate:
		return ErrDuplicate
	default:
		return nil
	}
}

// OutcomeOf returns the outcome with the status for a job as it is now.
func OutcomeOf(j Job, status Status) Outcome {
	return Outcome{ID: j.ID, Status: status, State: j.State, Token: j.Token, Next: j.Next()}
}

// A RecoverRequest asks for expired leases to be ended.
type RecoverRequest struct {
	Limit int           // 1 to 1,000
	Grace time.Duration // how long after its expiry a lease is left alone
}

// Recovered is one lease that was ended, and its job afterwards. Log it: its worker has died, or could not reach the store.
type Recovered struct {
	ID     int64     `json:"id,string"`     // of the job
	Queue  string    `json:"queue"`         // of the job
	Kind   string    `json:"kind"`          // of the job
	Worker string    `json:"worker"`        // the worker that held the lease
	State  State     `json:"state"`         // always Failed; dead if Next is zero
	Token  int64     `json:"token,string"`  // the job's new token; the lost lease had a smaller one
	Next   time.Time `json:"next,omitzero"` // when the job is due again
}

// Settled is one job that Settle has changed, as it is afterwards. Look at State to tell a job that ended from one that may begin.
type Settled struct {
	ID    int64  `json:"id,string"`    // of the job
	Queue string `json:"queue"`        // of the job
	Kind  string `json:"kind"`         // of the job
	State State  `json:"state"`        // Cancelled, or Ready if it no longer waits for other jobs
	Token int64  `json:"token,string"` // its token, which is new if it was cancelled

	Expired bool `json:"expired,omitempty"` // whether it was cancelled because it had expired
}

// SettledOf returns the answer of Settle for a job as it is now.
func SettledOf(j *Job) Settled {
	at := j.Extras.expiresAt()
	return Settled{j.ID, j.Queue, j.Kind, j.State, j.Token, j.State == Cancelled && !at.IsZero() && !at.After(j.FinishedAt)}
}

// A Page asks for one page of a listing. Leave Cursor empty first, and set it to Next of each page until that is empty.
type Page struct {
	Limit  int    // 1 to 1,000
	Cursor string // empty for the first page, otherwise Next of the previous page
}

// A JobPage is one page of a listing, the newest job first.
type JobPage struct {
	Jobs []Job  `json:"jobs"`           // the newest first
	Next string `json:"next,omitempty"` // cursor of the next page; empty on the last page
}

// Counts is the answer of Count. Its Total adds up all queues and phases.
type Counts struct {
	Now    time.Time    `json:"now"`    // the store's now
	Queues []QueueCount `json:"queues"` // queues with a matching job, in bytewise order of name
}

// Total returns the number of jobs in all queues and phases.
func (c Counts) Total() (sum int64) {
	for _, q := range c.Queues {
		for _, n := range q.Jobs {
			sum += n
		}
	}
	return sum
}

// A QueueCount counts the matching jobs of one queue. To alert on a queue that is behind, compare OldestDue with [Counts].Now.
type QueueCount struct {
	Queue     string          `json:"queue"`               // its name
	Jobs      map[State]int64 `json:"jobs"`                // by phase; phases without jobs are left out
	Due       int64           `json:"due"`                 // how many a claim could take now if the queue were not paused or limited
	OldestDue time.Time       `json:"oldest_due,omitzero"` // earliest due time of those; zero if there are none
}

// Due lists the queues with due jobs.
type Due struct {
	Now    time.Time  `json:"now"`    // the store's now
	Queues []QueueDue `json:"queues"` // queues with a due job, in bytewise order of name
}

// A QueueDue is a queue with a due job.
type QueueDue struct {
	Queue     string    `json:"queue"`      // its name
	OldestDue time.Time `json:"oldest_due"` // earliest due time of its due jobs
}

// A Queue is a queue that has a job, is paused, or has a policy that sets something. It needs no creation: enqueue a job to it.
type Queue struct {
	Name   string `json:"name"`            // its name
	Paused bool   `json:"paused"`          // claims take nothing from it
	Policy Policy `json:"policy,omitzero"` // its settings
}

// A Wakeup says that a claim from the queue may now return a job or, with Cancelled, that an Extend may now find a job of the
// queue cancelled. With Settle, it says that a Settle may now change something.
type Wakeup struct {
	Queue     string // its name; empty with Settle
	Cancelled bool   // a job in flight was cancelled; there is nothing new to claim
	Settle    bool   // a call has left something to Settle; there is nothing new to claim
}

// A Worker is what a worker process reports about itself, for people to read. Look at Stale to find those that have died.
type Worker struct {
	Name       string        `json:"name,omitempty"`        // who it is: one row for each name
	Host       string        `json:"host,omitempty"`        // where it runs
	PID        int           `json:"pid,omitempty"`         // of its process
	Queues     []string      `json:"queues,omitempty"`      // from which it claims
	Slots      int           `json:"slots"`                 // how many jobs it can run at once
	Running    int           `json:"running"`               // how many jobs it runs now
	StaleAfter time.Duration `json:"stale_after,omitempty"` // how long after its last beat it counts as stale
	BeatAt     time.Time     `json:"beat_at,omitzero"`      // set by the store
	Stale      bool          `json:"stale,omitempty"`       // set by the store
}

// Weight returns the total size of the names of the worker's queues in bytes.
func (w Worker) Weight() int {
	size := 0
	for _, q := range w.Queues {
		size += len(q)
	}
	return size
}

// A WorkerPage is one page of the list of workers, in bytewise order of name.
type WorkerPage struct {
	Workers []Worker `json:"workers"`        // by name
	Next    string   `json:"next,omitempty"` // cursor of the next page; empty on the last page
}

// EachWorker calls see for every worker, in order of name. It reads one page at a time, because all workers together may not
// fit in memory.
func EachWorker(ctx context.Context, of Registry, see func(Worker)) error {
	for page := (Page{Limit: MaxItems}); ; {
		found, err := of.Workers(ctx, WorkerFilter{}, page)
		if err != nil {
			return err
		}
		for _, w := range found.Workers {
			see(w)
		}
		if page.Cursor = found.Next; page.Cursor == "" {
			return nil
		}
	}
}

// AllWorkers returns all workers at once.
func AllWorkers(ctx context.Context, of Registry) ([]Worker, error) {
	var all []Worker
	if err := EachWorker(ctx, of, func(w Worker) { all = append(all, w) }); err != nil {
		return nil, err
	}
	return all, nil
}

// WorkerLife is how long a worker is listed after its last beat.
const WorkerLife = 24 * time.Hour
