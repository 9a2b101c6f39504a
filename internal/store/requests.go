package store

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A NewJob is a job to enqueue. Nothing has a default here: what is zero is taken as zero.
type NewJob struct {
	Queue      string
	Kind       string
	Payload    []byte
	Priority   int
	Tags       []string
	Trace      string
	RunAt      time.Time     // due then, or at once if that is past; or
	Delay      time.Duration // due so long from now by the store's clock
	MaxRetries int
	Backoff    Backoff
	Timeout    time.Duration
	UniqueKey  string
	UniqueFor  time.Duration // with UniqueKey: zero while the job is live, else a window from now
}

// Row is the job as it stands after being enqueued at now under the id. It shares no slice with n.
func (n NewJob) Row(id int64, now time.Time) Job {
	due := now.Add(n.Delay.Truncate(Resolution))
	if asked := Truncate(n.RunAt); asked.After(now) {
		due = asked
	}
	return Job{
		ID: id, Queue: n.Queue, Kind: n.Kind, Payload: bytes.Clone(n.Payload), Priority: n.Priority,
		Tags: slices.Clone(n.Tags), Trace: n.Trace,
		State: Ready, RunAt: due,
		MaxRetries: n.MaxRetries, Timeout: n.Timeout.Truncate(Resolution),
		Backoff: Backoff{
			Base: n.Backoff.Base.Truncate(Resolution), Cap: n.Backoff.Cap.Truncate(Resolution), Jitter: n.Backoff.Jitter,
		},
		UniqueKey: n.UniqueKey, UniqueFor: n.UniqueFor.Truncate(Resolution),
		EnqueuedAt: now,
	}
}

// An EnqueueRequest is what one call enqueues, all or none of it.
type EnqueueRequest struct {
	Jobs       []NewJob
	RequestKey string // optional: makes the call safe to repeat for a day
}

// RequestKeyLife is how long a request key is remembered.
const RequestKeyLife = 24 * time.Hour

// Enqueued is what became of one NewJob.
type Enqueued struct {
	ID        int64 // of the new job, or of the one that holds the unique key
	State     State // of that job at that moment; empty if it holds its key beyond its deletion
	Duplicate bool  // nothing was enqueued, for the unique key is held
}

// A ClaimRequest asks for jobs of one queue.
type ClaimRequest struct {
	Queue      string
	Limit      int           // 1 to 1,000
	RetryQuota int           // 0 to Limit: how many of them may be retries while fresh jobs wait
	Worker     string        // written to the jobs, checked by nothing
	TTL        time.Duration // of the leases
}

// MayLeave says that the queue may have had more for a claim that was given the jobs: as many as it asked for, or so heavy ones
// that the next found no room.
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
	Result []byte // a JSON document, or nothing
}

// A NAck ends a lease without success.
type NAck struct {
	Lease
	Form  Form
	Delay time.Duration // with After and Snooze
	Error string        // with Fail, Never and After
}

// A Form is what a NAck wants to happen next.
type Form string

// The forms of NAck. Fail, Never and After count as a failure; Snooze and Release do not.
const (
	Fail    Form = "fail"    // retry after the job's backoff
	Never   Form = "never"   // no retry
	After   Form = "after"   // retry after Delay
	Snooze  Form = "snooze"  // wait Delay, and be claimable again
	Release Form = "release" // be claimable again at once, as if the claim had not been counted
)

// Failure is what the policy makes of a NAck in one of the failing forms.
func (n NAck) Failure() Failure {
	return Failure{Reason: CleanError(n.Error), Never: n.Form == Never, After: n.Form == After, Delay: n.Delay}
}

// A Save keeps what a handler has reached so far. What is nil stays as it is.
type Save struct {
	Lease
	Seq        int64 // 0 or more: the number of this save within the lease, growing
	Checkpoint []byte
	Progress   []byte
}

// An Outcome is what became of one item of a call.
type Outcome struct {
	ID     int64
	Status Status
	State  State     // of the job after the item; empty when it is gone, busy, or the item invalid
	Token  int64     // of the job after the item; zero likewise
	Next   time.Time // of the job after the item, see Job.Next
	Reason string    // for people: why invalid, by whom a key is held
}

// A Status says what became of one item of a call.
type Status string

// The statuses. Only stale is worth a warning.
const (
	StatusOK         Status = "ok"
	StatusStale      Status = "stale"       // the lease was ended by someone else, or by its holder in another way
	StatusNotFound   Status = "not_found"   // there is no such job, or no longer
	StatusInvalid    Status = "invalid"     // the item breaks a limit
	StatusBusy       Status = "busy"        // Extend: the job is locked right now, neither extended nor lost
	StatusFinished   Status = "finished"    // Extend: the holder has finished the job
	StatusCancelled  Status = "cancelled"   // Extend: the job is cancelled
	StatusWrongState Status = "wrong_state" // the job is in a state that the operation does not leave
	StatusDuplicate  Status = "duplicate"   // Requeue: another job holds the unique key
)

// Err is the status as an error, and nil for ok, finished and busy, in which nothing is lost.
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

// OutcomeOf is the outcome with the status for a job as it now stands.
func OutcomeOf(j Job, status Status) Outcome {
	return Outcome{ID: j.ID, Status: status, State: j.State, Token: j.Token, Next: j.Next()}
}

// A RecoverRequest asks for expired leases to be ended.
type RecoverRequest struct {
	Limit int           // 1 to 1,000
	Grace time.Duration // leases are left alone for so long after they expired
}

// Recovered is one lease that was ended, and what became of its job.
type Recovered struct {
	ID     int64
	Queue  string
	Kind   string
	Worker string // who had it
	State  State  // always Failed; dead if Next is zero
	Token  int64  // of the job now; the lost lease had an older one
	Next   time.Time
}

// A Page asks for a part of a listing.
type Page struct {
	Limit  int    // 1 to 1,000
	Cursor string // empty for the first page, else Next of the page before
}

// A JobPage is a part of a listing, the newest job first.
type JobPage struct {
	Jobs []Job
	Next string // the cursor of the next page, empty after the last
}

// Counts is how many jobs there are.
type Counts struct {
	Now    time.Time    // of the store
	Queues []QueueCount // those with a matching job, by name, byte by byte
}

// Total is how many jobs there are in all queues and phases.
func (c Counts) Total() (sum int64) {
	for _, q := range c.Queues {
		for _, n := range q.Jobs {
			sum += n
		}
	}
	return sum
}

// A QueueCount counts the matching jobs of one queue.
type QueueCount struct {
	Queue     string
	Jobs      map[State]int64 // by phase; phases that do not occur are left out
	Due       int64           // how many a claim could take now, were the queue not paused
	OldestDue time.Time       // since when the longest waiting of those is due; zero if there is none
}

// Due says since when jobs wait for a claim.
type Due struct {
	Now    time.Time  // of the store
	Queues []QueueDue // those with a job that is due, by name, byte by byte
}

// A QueueDue is a queue with a job that is due.
type QueueDue struct {
	Queue     string
	OldestDue time.Time // since when the longest waiting of its jobs is due
}

// A Queue is one that has a job, is paused, or has a policy that sets something.
type Queue struct {
	Name   string
	Paused bool
	Policy Policy
}

// A Wakeup says that a claim from the queue may now find something.
type Wakeup struct{ Queue string }

// A Worker is what a process says of itself, for people to see.
type Worker struct {
	Name       string
	Host       string
	PID        int
	Queues     []string
	Slots      int           // how many jobs it can run at once
	Running    int           // how many it runs
	StaleAfter time.Duration // how long after a beat it counts as stale
	BeatAt     time.Time     // set by the store
	Stale      bool          // set by the store
}

// Weight is how many bytes the names of the worker's queues have.
func (w Worker) Weight() int {
	size := 0
	for _, q := range w.Queues {
		size += len(q)
	}
	return size
}

// A WorkerPage is a part of the list of workers, by name, byte by byte.
type WorkerPage struct {
	Workers []Worker
	Next    string // the cursor of the next page, empty after the last
}

// EachWorker calls see for every worker, by name. It reads one page at a time, for all of them may say more than there is memory.
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

// AllWorkers are all at once.
func AllWorkers(ctx context.Context, of Registry) ([]Worker, error) {
	var all []Worker
	if err := EachWorker(ctx, of, func(w Worker) { all = append(all, w) }); err != nil {
		return nil, err
	}
	return all, nil
}

// WorkerLife is how long a worker is listed after its last beat.
const WorkerLife = 24 * time.Hour
