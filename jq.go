package jq

import "github.com/seed-ed332417/jq/internal/store"

// A Store keeps jobs. [NewMemory] returns one, and so does Open of the packages sqlite, postgres and remote. An application hands it to
// [NewClient] and [NewServer], and closes it when both have ended.
//
// Package contract is for authors of stores. What each method promises is the contract: read it by
//
//	go doc github.com/seed-ed332417/jq/internal/store Store
//
// Its methods, with the first sentence of each:
//
//	contract.Writer
//	// FetchAndClaim claims due jobs of one queue, leases each of them to the worker, and returns them as they are
//	// stored.
//	FetchAndClaim(ctx context.Context, req contract.ClaimRequest) ([]Job, error)
//	// Extend is the heartbeat: it makes the lease of each job run until now plus ttl, even if that is earlier
//	// than before.
//	Extend(ctx context.Context, leases []Lease, ttl time.Duration) ([]Outcome, error)
//	// Save stores a checkpoint, a progress document, or both, for each job that is in flight under the token.
//	Save(ctx context.Context, saves []contract.Save) ([]Outcome, error)
//	// RecoverExpiredLeases ends at most Limit expired leases: the oldest expiry first, then the smaller id.
//	RecoverExpiredLeases(ctx context.Context, req contract.RecoverRequest) ([]Recovered, error)
//	// Settle cancels at most limit jobs that have expired: the earliest ExpiresAt first, then the smaller id.
//	Settle(ctx context.Context, limit int) ([]Settled, error)
//	// Get returns the job and its history, the oldest attempt first, or ErrNotFound if the job does not exist.
//	Get(ctx context.Context, id int64) (JobDetail, error)
//	// List returns the jobs that match, the newest first: in descending order of id.
//	List(ctx context.Context, filter Filter, page Page) (JobPage, error)
//	// Count counts the jobs that match, by queue and phase.
//	Count(ctx context.Context, filter Filter) (Counts, error)
//	// Cancel ends jobs that are not terminal, including jobs in flight: their leases are stale from then on.
//	Cancel(ctx context.Context, filter Filter, limit int) ([]Outcome, error)
//	// Requeue makes terminal jobs ready again: they are due now, and their retries are 0.
//	Requeue(ctx context.Context, filter Filter, limit int) ([]Outcome, error)
//	// Reschedule gives jobs that are ready or retrying another due time: the later of now and at, or now if at is
//	// the zero time.
//	Reschedule(ctx context.Context, filter Filter, at time.Time, limit int) ([]Outcome, error)
//	// Delete removes terminal jobs and their history.
//	Delete(ctx context.Context, filter Filter, limit int) ([]Outcome, error)
//	// Close releases everything that the store holds.
//	Close() error
type Store = store.Store

// A Tx is a caller's transaction, as *sql.Tx and *sqlx.Tx are. Wrap a transaction of pgx by jqpgx.Tx.
//
// Its methods, with the first sentence of each:
//
//	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
//	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
//	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
type Tx = store.Tx

// Jobs and what surrounds them.
type (
	// A Job is the current row of a job in the store. Its JSON is that of the HTTP API, like the JSON of the other types
	// that have tags.
	//
	// Its fields:
	//
	//	ID       int64    // assigned by the store in the order of enqueueing, never used again
	//	Queue    string   // the queue it belongs to
	//	Kind     string   // selects the handler
	//	Payload  []byte   // the JSON document that was enqueued
	//	Priority int      // −9 to 9; a higher priority is claimed first
	//	Tags     []string // labels for people and filters, as they were enqueued
	//	Trace    string   // trace context of the call that enqueued it (W3C traceparent)
	//
	//	State   State     // see Phase for the two faces of Failed
	//	RunAt   time.Time // when it became or becomes due as a ready job
	//	RetryAt time.Time // when it is due again; set only while it is retrying
	//
	//	Attempts   int           // number of claims, without the released ones
	//	Retries    int           // number of failures and expired leases since it was enqueued or requeued
	//	MaxRetries int           // the job is dead if Retries exceeds it
	//	Backoff    Backoff       // how long it waits before each retry
	//	Timeout    time.Duration // how long one run may take; if zero, the server decides
	//
	//	Token          int64     // token of the lease in force, or of the last transition
	//	LeaseExpiresAt time.Time // when its lease expires; set only while it is in flight
	//	ClaimedAt      time.Time // when it was claimed last; zero if it never was
	//	Worker         string    // the worker that claimed it last; for people: no check uses it
	//
	//	Checkpoint    []byte // what the handler saved for the next attempt
	//	CheckpointSeq int64  // the Seq with which it was saved within the lease
	//	Progress      []byte // what the handler saved for people to read
	//	ProgressSeq   int64  // the Seq with which it was saved within the lease
	//	Result        []byte // what the handler returned; set if the job succeeded
	//	Error         string // why the latest failed attempt failed; cleared by Ack and Requeue
	//
	//	UniqueKey string        // held while the job is live, or for UniqueFor
	//	UniqueFor time.Duration // how long from its enqueueing the job holds UniqueKey; zero means while it is live
	//
	//	Extras *Extras // what few jobs have: see ExpiresAt, Scheduled, Group and LimitKey; in JSON, its fields
	//
	//	EnqueuedAt time.Time // by the store's clock, like every time here
	//	FinishedAt time.Time // when it ended; set only in the terminal states
	//
	// Its methods:
	//
	//	// Phase returns the job's state, with Retrying or Dead in place of Failed.
	//	func (Job) Phase() State
	//	// Terminal reports whether the job has ended: it is succeeded, dead or cancelled.
	//	func (Job) Terminal() bool
	//	// Lease returns the job's id and its current token.
	//	func (Job) Lease() Lease
	//	// Next returns when the job becomes claimable or its lease expires: its due time, or the end of its lease.
	//	func (Job) Next() time.Time
	//	// Claimable reports whether a claim at now could take the job if its queue is not paused.
	//	func (Job) Claimable(now time.Time) bool
	//	// ExpiresAt returns the time from which on no claim takes the job, or the zero time if it has none.
	//	func (Job) ExpiresAt() time.Time
	//	// Scheduled returns the schedule that enqueued the job, or nil if none did.
	//	func (Job) Scheduled() *Scheduled
	//	// Group returns the name of the group that the job is in, or "" if it is in none.
	//	func (Job) Group() string
	//	// LimitKey returns what the job counts for under a limit for each key, such as a customer, or "" if it has
	//	// none.
	//	func (Job) LimitKey() string
	//	// Weight returns the total size of the job's documents in bytes.
	//	func (Job) Weight() int
	//	// Failed returns the job after a failure at now.
	//	func (Job) Failed(f contract.Failure, now time.Time) Job
	//	// Begin decides whether a new job is ready, blocked, or cancelled because a job that it needs is, or a group
	//	// that it needs is spoiled.
	//	func (*Job) Begin(waits []contract.KeptWait, on contract.Awaits, now time.Time)
	Job = store.Job

	// JobDetail is a job with its attempts and with what it waits for.
	//
	// Its fields:
	//
	//	Job
	//	History []Attempt // the oldest attempt first; the latest 100 are kept
	//	Waits   []Waiting // in the order in which they were enqueued
	JobDetail = store.JobDetail

	// A Waiting is a job or a group that a job waits for, or has waited for.
	//
	// Its fields:
	//
	//	ID    int64  // of the job; zero if Group names what it waits for
	//	Group string // the name of the group
	//	Any   bool   // met by whatever end
	//	Met   bool   // the wait is over
	//	State State  // phase of the job or of the group now; empty if the job no longer exists
	//
	// Its methods:
	//
	//	// HoldsUp reports whether the wait will never be met unless somebody requeues a job: what must succeed is
	//	// dead, cancelled or gone.
	//	func (Waiting) HoldsUp() bool
	Waiting = store.Waiting

	// A Wait names what a new job waits for: a job that exists, an earlier item of the same call, or a group.
	//
	// Its fields:
	//
	//	ID    int64  // of the job; zero if Item or Group names what it waits for
	//	Item  int    // index in the call, if ID is zero and Group empty
	//	Group string // the name of the group
	//	Any   bool   // until it has ended in whatever way; otherwise until it has succeeded
	//
	// Its methods:
	//
	//	// String is a part of fingerprints, so it must not change.
	//	func (Wait) String() string
	Wait = store.Wait

	// A Group is a number of jobs for which others can wait as a whole. It exists while it is open, a job is in it, or a job waits for it or
	// has waited for it.
	//
	// Its fields:
	//
	//	Name     string    // chosen by whoever enqueues its jobs
	//	OpenedAt time.Time // when it was opened, if it is still open
	//	GroupStatus
	Group = store.Group

	// A GroupStatus is how a group is at one moment. A group is over when it is neither open nor live.
	//
	// Its fields:
	//
	//	Open    bool // jobs are still to come
	//	Live    bool // a job in it has not ended
	//	Dead    bool // a job in it is dead
	//	Spoiled bool // a job in it was cancelled, or deleted when it was dead
	//
	// Its methods:
	//
	//	// Phase returns the phase in which a job would be that stands for the group: in flight until the group is
	//	// done, and cancelled as soon as it is spoiled.
	//	func (GroupStatus) Phase() State
	GroupStatus = store.GroupStatus

	// A GroupFilter selects groups.
	//
	// Its fields:
	//
	//	Name    string        // selects the group with this name; empty selects every group
	//	OpenFor time.Duration // selects the groups that were opened at least this long ago and are still open
	//
	// Its methods:
	//
	//	// Check returns an *InvalidError if the filter breaks a limit.
	//	func (GroupFilter) Check() error
	//	// Matches reports whether the filter selects the group at now.
	//	func (GroupFilter) Matches(g Group, now time.Time) bool
	//	// Cursor returns the cursor of the page that begins after the group with the name.
	//	func (GroupFilter) Cursor(name string) string
	//	// Position checks the filter and the page, and returns the name after which the page begins: empty for the
	//	// first page.
	//	func (GroupFilter) Position(page Page) (string, error)
	GroupFilter = store.GroupFilter

	// A State says what may happen to a job.
	//
	// Its values:
	//
	//	Blocked   = "blocked"   // waits for other jobs
	//	Ready     = "ready"     // claimable once RunAt is due
	//	InFlight  = "in_flight" // leased to a worker
	//	Succeeded = "succeeded" // terminal
	//	Failed    = "failed"    // retrying or dead, depending on RetryAt
	//	Cancelled = "cancelled" // terminal
	//	Retrying  = "retrying"  // failed with a RetryAt: claimable once RetryAt is due
	//	Dead      = "dead"      // failed without a RetryAt: terminal
	State = store.State

	// A Lease is the right to finish a job, granted by a claim. It is stale as soon as the job has another token.
	//
	// Its fields:
	//
	//	ID    int64 // of the job
	//	Token int64 // given by the claim
	Lease = store.Lease

	// An Attempt records one claim of a job. Read its Ending and Error to learn why the job was run again.
	//
	// Its fields:
	//
	//	Token     int64     // token of its lease
	//	Worker    string    // who claimed the job
	//	StartedAt time.Time // when it was claimed
	//	EndedAt   time.Time // zero while it runs
	//	Ending    Ending    // how it ended
	//	Error     string    // why it failed, or was put off
	Attempt = store.Attempt

	// An Ending is how an attempt ended. Compare it with the constants.
	//
	// Its values:
	//
	//	NotEnded     = ""          // the job is in flight
	//	EndSucceeded = "succeeded" // Ack
	//	EndFailed    = "failed"    // NAck, and an Ack whose result is refused
	//	EndSnoozed   = "snoozed"   // NAck with Snooze
	//	EndReleased  = "released"  // NAck with Release
	//	EndExpired   = "expired"   // RecoverExpiredLeases
	//	EndCancelled = "cancelled" // Cancel
	Ending = store.Ending

	// A Backoff says how long a job waits before each retry. It is kept with the job, because the process that recovers a job
	// may not know its kind.
	//
	// Its fields:
	//
	//	Base   time.Duration // wait before the first retry; it doubles for each further retry
	//	Cap    time.Duration // the longest wait
	//	Jitter int           // the wait is up to this many percent shorter, by a hash of the job's id and its retries
	//
	// Its methods:
	//
	//	// Delay returns how long the job waits before the retry with the given number; the first retry is number 1.
	//	func (Backoff) Delay(id int64, retries int) time.Duration
	Backoff = store.Backoff

	// A Queue is a queue that has a job, is paused, or has a policy that sets something. It needs no creation: enqueue a job to it.
	//
	// Its fields:
	//
	//	Name   string // its name
	//	Paused bool   // claims take nothing from it
	//	Policy Policy // its settings
	Queue = store.Queue

	// A Policy holds the settings of one queue. A zero field is not set: its default applies. Compare two policies with ==.
	//
	// Its fields:
	//
	//	RetainSucceeded time.Duration // how long succeeded jobs are kept; by default DefaultRetainSucceeded
	//	RetainCancelled time.Duration // how long cancelled jobs are kept; by default DefaultRetainCancelled
	//	RetainDead      time.Duration // how long dead jobs are kept; by default DefaultRetainDead
	//
	//	MaxInFlight int // how many jobs may be in flight at once; by default any number
	//	MaxPerKey   int // how many jobs with the same limit key may be in flight at once; by default any number
	//
	//	Fair    bool // limit keys take turns; by default jobs are claimed in the order of their due times
	//	Ordered bool // jobs with the same limit key are claimed one at a time, in the order of their ids
	//
	//	Rate Rate // how many jobs may be claimed in a span of time; by default any number
	//
	//	Owner    string // the program that has declared the policy, if one has
	//	Declared int64  // the version of that declaration
	//
	//	Version int64 // 0 if the policy was never set; grows by one with each change
	//
	// Its methods:
	//
	//	// Sets reports whether the policy sets something.
	//	func (Policy) Sets() bool
	//	// Retention returns how long jobs in a terminal state are kept, by the policy or by default.
	//	func (Policy) Retention(state State) time.Duration
	//	// Check returns an *InvalidError if the policy breaks a limit.
	//	func (Policy) Check() error
	//	// Limited reports whether the policy changes which jobs claims take.
	//	func (Policy) Limited() bool
	//	// ByKey reports whether claims must find jobs by their limit keys.
	//	func (Policy) ByKey() bool
	//	// KeyLimit returns how many jobs with the same limit key may be in flight at once, or 0 for any number.
	//	func (Policy) KeyLimit() int
	//	// Room returns how many of limit jobs a claim may take, if so many jobs of the queue are in flight.
	//	func (Policy) Room(limit, inFlight int) int
	//	// Replace is SetPolicy for a queue whose policy is p: it returns the queue's new policy, or ErrConflict.
	//	func (Policy) Replace(by Policy) (Policy, error)
	Policy = store.Policy

	// A Rate limits how many jobs of a queue are claimed in a span of time. The zero Rate limits nothing.
	//
	// Its fields:
	//
	//	N   int           // how many jobs may be claimed
	//	Per time.Duration // in how long
	//
	// Its methods:
	//
	//	// Room returns how many of limit jobs a claim may take at now, if so many were claimed in the latest Per, the
	//	// first of them at first.
	//	func (Rate) Room(limit, claimed int, first, now time.Time) (jobs int, wait time.Duration)
	Rate = store.Rate

	// A Worker is what a worker process reports about itself, for people to read. Look at Stale to find those that have died.
	//
	// Its fields:
	//
	//	Name       string        // who it is: one row for each name
	//	Host       string        // where it runs
	//	PID        int           // of its process
	//	Queues     []string      // from which it claims
	//	Slots      int           // how many jobs it can run at once
	//	Running    int           // how many jobs it runs now
	//	StaleAfter time.Duration // how long after its last beat it counts as stale
	//	BeatAt     time.Time     // set by the store
	//	Stale      bool          // set by the store
	//
	// Its methods:
	//
	//	// Check returns an *InvalidError if the worker breaks a limit.
	//	func (Worker) Check() error
	//	// Weight returns the total size of the names of the worker's queues in bytes.
	//	func (Worker) Weight() int
	Worker = store.Worker
)

// Requests and answers.
type (
	// A NewJob is a job to enqueue. No field has a default: a zero field is taken as zero.
	//
	// Its fields:
	//
	//	Queue      string        // where it is to wait
	//	Kind       string        // selects the handler
	//	Payload    []byte        // a JSON document
	//	Priority   int           // −9 to 9; a higher priority is claimed first
	//	Tags       []string      // for people and filters
	//	Trace      string        // the trace context of the caller (W3C traceparent)
	//	RunAt      time.Time     // the due time, or at once if it is past; excludes Delay
	//	Delay      time.Duration // how long from the store's now the job becomes due; excludes RunAt
	//	MaxRetries int           // retries beyond it make the job dead
	//	Backoff    Backoff       // how long it waits before each retry
	//	Timeout    time.Duration // how long one run may take; if zero, the server decides
	//	UniqueKey  string        // keeps out a second job with the same key
	//	UniqueFor  time.Duration // with UniqueKey: how long from now the key is held; zero means while the job is live
	//	Replace    bool          // with UniqueKey: change the job that holds the key, if it waits in the same queue and is of the same kind, group and limit key
	//	ExpiresAt  time.Time     // later than the due time: from then on no claim takes the job; zero means never
	//	After      []Wait        // for which jobs and groups it waits
	//	Group      string        // the group that it is in
	//	LimitKey   string        // what it counts for under a limit for each key of its queue, such as a customer
	//
	//	Scheduled *Scheduled // set by schedules alone: Enqueue refuses it
	//
	// Its methods:
	//
	//	// Row returns the job as it is after it was enqueued at now with the id.
	//	func (NewJob) Row(id int64, now time.Time) Job
	//	// KeptWaits returns the waits of a new job.
	//	func (NewJob) KeptWaits(item func(i int) int64) []contract.KeptWait
	NewJob = store.NewJob

	// An EnqueueRequest holds the jobs of one Enqueue, which adds all of them or none.
	//
	// Its fields:
	//
	//	Jobs       []NewJob // up to 1,000
	//	Open       []string // optional: the groups to open, up to 100
	//	RequestKey string   // optional: makes the call safe to repeat for a day
	//
	// Its methods:
	//
	//	// Fingerprint returns a hash of the request.
	//	func (EnqueueRequest) Fingerprint() [sha256.Size]byte
	//	// Check returns an *InvalidError if the request breaks a limit.
	//	func (EnqueueRequest) Check() error
	//	// KeyUsed returns the error for a request whose key was used for other jobs.
	//	func (EnqueueRequest) KeyUsed() error
	EnqueueRequest = store.EnqueueRequest

	// Enqueued is the answer for one NewJob. Keep its ID to look the job up, to wait for it, or to cancel it.
	//
	// Its fields:
	//
	//	ID        int64 // id of the new job, or of the job that holds the unique key
	//	State     State // state of that job at that moment; empty if it was deleted and still holds its key
	//	Duplicate bool  // true if nothing was enqueued because another job holds the unique key
	//	Replaced  bool  // with Duplicate: that job was changed, as NewJob.Replace asks
	Enqueued = store.Enqueued

	// An Outcome is the result of one item of a call. Its Err is nil unless the item was refused.
	//
	// Its fields:
	//
	//	ID     int64     // of the job
	//	Status Status    // what became of the item
	//	State  State     // state of the job after the item; empty if the job is gone or busy, or the item is invalid
	//	Token  int64     // token of the job after the item; zero in the same cases
	//	Next   time.Time // Job.Next after the item
	//	Reason string    // for people: why the item is invalid, or which job holds the key
	//
	// Its methods:
	//
	//	// Err returns the status as an error, or nil for ok, finished and busy, with which nothing is lost.
	//	func (Outcome) Err() error
	Outcome = store.Outcome

	// A Status says how one item of a call ended. Compare it with the constants, or ask [Outcome.Err].
	//
	// Its values:
	//
	//	StatusOK         = "ok"
	//	StatusStale      = "stale"       // the lease was ended by someone else, or by its holder in another way
	//	StatusNotFound   = "not_found"   // the job does not exist, or no longer exists
	//	StatusInvalid    = "invalid"     // the item breaks a limit
	//	StatusWrongState = "wrong_state" // the operation is not possible in the job's state
	//	StatusDuplicate  = "duplicate"   // Requeue: another job holds the unique key
	Status = store.Status

	// Recovered is one lease that was ended, and its job afterwards. Log it: its worker has died, or could not reach the store.
	//
	// Its fields:
	//
	//	ID     int64     // of the job
	//	Queue  string    // of the job
	//	Kind   string    // of the job
	//	Worker string    // the worker that held the lease
	//	State  State     // always Failed; dead if Next is zero
	//	Token  int64     // the job's new token; the lost lease had a smaller one
	//	Next   time.Time // when the job is due again
	Recovered = store.Recovered

	// Settled is one job that Settle has changed, as it is afterwards. Look at State to tell a job that ended from one that may begin.
	//
	// Its fields:
	//
	//	ID    int64  // of the job
	//	Queue string // of the job
	//	Kind  string // of the job
	//	State State  // Cancelled, or Ready if it no longer waits for other jobs
	//	Token int64  // its token, which is new if it was cancelled
	//
	//	Expired bool // whether it was cancelled because it had expired
	Settled = store.Settled

	// A Filter selects the jobs that match every field that is set.
	//
	// Its fields:
	//
	//	IDs         []int64       // the id is one of these
	//	After       int64         // the id is greater
	//	Queue       string        // in this queue
	//	Queues      []string      // the queue matches one of these: a name, or a prefix followed by *
	//	Kind        string        // of this kind
	//	Tag         string        // is one of the job's tags
	//	Worker      string        // the worker that claimed it last
	//	UniqueKey   string        // with this unique key
	//	Group       string        // in this group
	//	LimitKey    string        // with this limit key
	//	States      []State       // the state or the phase is one of these
	//	FinishedFor time.Duration // finished at least this long ago
	//
	//	WaitsFor      int64  // waits, or has waited, for the job with this id
	//	WaitsForGroup string // waits, or has waited, for the group with this name
	//	Unneeded      bool   // no job that has not ended waits, or has waited, for it or its group
	//
	// Its methods:
	//
	//	// Empty reports whether no field is set; After does not count.
	//	func (Filter) Empty() bool
	//	// WithoutWaits returns the filter without what it says about waits, for a store that looks at these itself.
	//	func (Filter) WithoutWaits() Filter
	//	// Matches reports whether the filter selects the job at now, in a store in which no job waits for others.
	//	func (Filter) Matches(j Job, now time.Time) bool
	//	// Cursor returns the cursor of the page that begins after the job with the id.
	//	func (Filter) Cursor(id int64) string
	//	// Position checks the filter and the page, and returns the id before which the page begins: math.MaxInt64 for
	//	// the first page.
	//	func (Filter) Position(page Page) (int64, error)
	//	// Check returns an *InvalidError if the filter breaks a limit.
	//	func (Filter) Check() error
	//	// CheckBulk returns an *InvalidError if a call of Cancel, Requeue or Delete breaks a limit.
	//	func (Filter) CheckBulk(limit int) error
	//	// CheckReschedule returns an *InvalidError if a call of Reschedule breaks a limit.
	//	func (Filter) CheckReschedule(at time.Time, limit int) error
	Filter = store.Filter

	// A Page asks for one page of a listing. Leave Cursor empty first, and set it to Next of each page until that is empty.
	//
	// Its fields:
	//
	//	Limit  int    // 1 to 1,000
	//	Cursor string // empty for the first page, otherwise Next of the previous page
	//
	// Its methods:
	//
	//	// Check returns an *InvalidError if the page breaks a limit.
	//	func (Page) Check() error
	Page = store.Page

	// A JobPage is one page of a listing, the newest job first.
	//
	// Its fields:
	//
	//	Jobs []Job  // the newest first
	//	Next string // cursor of the next page; empty on the last page
	JobPage = store.JobPage

	// Counts is the answer of Count. Its Total adds up all queues and phases.
	//
	// Its fields:
	//
	//	Now    time.Time    // the store's now
	//	Queues []QueueCount // queues with a matching job, in bytewise order of name
	//
	// Its methods:
	//
	//	// Total returns the number of jobs in all queues and phases.
	//	func (Counts) Total() (sum int64)
	Counts = store.Counts

	// A QueueCount counts the matching jobs of one queue. To alert on a queue that is behind, compare OldestDue with [Counts].Now.
	//
	// Its fields:
	//
	//	Queue     string          // its name
	//	Jobs      map[State]int64 // by phase; phases without jobs are left out
	//	Due       int64           // how many a claim could take now if the queue were not paused or limited
	//	OldestDue time.Time       // earliest due time of those; zero if there are none
	QueueCount = store.QueueCount

	// An InvalidError says which field of a request breaks which rule.
	//
	// Its fields:
	//
	//	Item  int    // index of the item, or −1 for the call as a whole
	//	Field string // name of the field in the contract: payload, queue, limit
	//	Rule  string // what the field must be
	//
	// Its methods:
	//
	//	// Error returns one line: the item, the field and the rule.
	//	func (*InvalidError) Error() string
	//	// Is makes every InvalidError match ErrInvalid.
	//	func (*InvalidError) Is(target error) bool
	InvalidError = store.InvalidError

	// An OverlongError says that a List or a Count took longer than the store allows. It matches ErrUnavailable.
	//
	// Its fields:
	//
	//	Limit  time.Duration // that was exceeded
	//	Waited bool          // the call spent the time waiting for other readers
	//
	// Its methods:
	//
	//	// Error returns one line: the limit, and what to do.
	//	func (*OverlongError) Error() string
	//	// Advice says what took too long, and what to do about it.
	//	func (*OverlongError) Advice() string
	//	// Is makes every OverlongError match ErrUnavailable.
	//	func (*OverlongError) Is(target error) bool
	OverlongError = store.OverlongError
)

// The states of a job. Retrying and Dead are the two faces of Failed.
const (
	Blocked   = store.Blocked   // waits for other jobs, and is not claimed before they have ended
	Ready     = store.Ready     // is claimed once RunAt is due
	InFlight  = store.InFlight  // a worker holds it by a lease
	Succeeded = store.Succeeded // ended: its handler returned nil
	Failed    = store.Failed    // Retrying or Dead: only State has it, look at Phase
	Retrying  = store.Retrying  // failed, and is claimed again once RetryAt is due
	Dead      = store.Dead      // ended: it failed, and is not retried; Requeue makes it ready again
	Cancelled = store.Cancelled // ended: somebody cancelled it
)

// The endings of an [Attempt].
const (
	NotEnded     = store.NotEnded     // the job is in flight
	EndSucceeded = store.EndSucceeded // the handler returned nil
	EndFailed    = store.EndFailed    // the handler returned an error, or its result breaks a limit
	EndSnoozed   = store.EndSnoozed   // the handler returned Snooze
	EndReleased  = store.EndReleased  // the server gave the job back: the attempt does not count
	EndExpired   = store.EndExpired   // the lease ran out
	EndCancelled = store.EndCancelled // the job was cancelled
)

// The statuses of an [Outcome]. Package contract has those of heartbeats as well.
const (
	StatusOK         = store.StatusOK         // the call has done what it says
	StatusStale      = store.StatusStale      // the lease was ended by someone else, or by its holder in another way
	StatusNotFound   = store.StatusNotFound   // there is no such job, or no longer
	StatusInvalid    = store.StatusInvalid    // the item breaks a limit
	StatusWrongState = store.StatusWrongState // the job is in a state that the operation does not leave
	StatusDuplicate  = store.StatusDuplicate  // Requeue: another job holds the unique key
)

// KeepForEver is a retention of a [Policy], and the others are those of a queue whose policy does not set them.
const (
	KeepForEver            = store.KeepForEver            // until somebody deletes them
	DefaultRetainSucceeded = store.DefaultRetainSucceeded // a day
	DefaultRetainCancelled = store.DefaultRetainCancelled // a week
	DefaultRetainDead      = store.DefaultRetainDead      // for ever
)

// The errors, by errors.Is.
var (
	ErrInvalid         = store.ErrInvalid         // a request breaks a limit: the error is an InvalidError
	ErrNotFound        = store.ErrNotFound        // there is no such job, or no longer
	ErrState           = store.ErrState           // not possible in the job's state
	ErrDuplicate       = store.ErrDuplicate       // another job holds the unique key
	ErrConflict        = store.ErrConflict        // the policy was changed since it was read
	ErrStaleLease      = store.ErrStaleLease      // the job is not this run's any more
	ErrAlreadyFinished = store.ErrAlreadyFinished // this run has finished the job before
	ErrUnavailable     = store.ErrUnavailable     // the store could not be reached, and nothing was applied
	ErrDenied          = store.ErrDenied          // the caller may not do this, and nothing was applied
	ErrInDoubt         = store.ErrInDoubt         // the answer was lost: applied as a whole, or not at all
	ErrClosed          = store.ErrClosed          // the store was closed
)
