package contract

import "github.com/seed-ed332417/jq/internal/store"

// The contract: what a store must do, what it may do in a caller's transaction, and such a transaction.
type (
	// A Store keeps jobs. The following rules apply to every method, including the methods of the optional abilities.
	//
	// Any goroutine may call any method at any time, even while other goroutines make calls for the same job. A call takes effect
	// as a whole, at one moment between its start and its return, or not at all. When a call returns without an error, its effect
	// is committed and is as durable as the adapter promises.
	//
	// If a call takes several items, its outcomes are positional: one per item, as if the items were applied in order. One bad item
	// must not affect the other items. An invalid item gets the outcome invalid, whether its lease is valid or not. A call without
	// items does nothing. If nothing matches, the call returns an empty answer and no error.
	//
	// A store must not keep a slice that it was given, and must not return a slice that it keeps. No method waits for work to
	// appear. A call may wait for other calls and for open transactions, but only until its context ends.
	//
	// Every error must match, by errors.Is, one of the following errors or one that the method itself names. ErrInvalid: the
	// request breaks a limit and nothing was applied. ErrClosed: the store was closed, and nothing was applied. ErrUnavailable: the
	// store could not serve the call, and nothing was applied. ErrDenied: the caller may not do this, and nothing was applied.
	// Repeating the call does not help until somebody has granted the right. ErrInDoubt: the call was applied as a whole, may still
	// be applied as a whole shortly, or was not applied at all. For a full disk, a lost connection or an unreachable database, the
	// error is ErrUnavailable if it is known that nothing was committed, and ErrInDoubt if the answer to the commit was lost.
	//
	// If the context has ended before the call, the store must not apply the call: the error is ErrUnavailable and matches the
	// context's own error. If the context ends during the call, the call stops waiting and does not affect other calls: the error
	// is ErrUnavailable or ErrInDoubt, and matches the context's own error.
	//
	// Its methods, with the first sentence of each:
	//
	//	Writer
	//	// FetchAndClaim claims due jobs of one queue, leases each of them to the worker, and returns them as they are
	//	// stored.
	//	FetchAndClaim(ctx context.Context, req ClaimRequest) ([]Job, error)
	//	// Extend is the heartbeat: it makes the lease of each job run until now plus ttl, even if that is earlier
	//	// than before.
	//	Extend(ctx context.Context, leases []Lease, ttl time.Duration) ([]Outcome, error)
	//	// Save stores a checkpoint, a progress document, or both, for each job that is in flight under the token.
	//	Save(ctx context.Context, saves []Save) ([]Outcome, error)
	//	// RecoverExpiredLeases ends at most Limit expired leases: the oldest expiry first, then the smaller id.
	//	RecoverExpiredLeases(ctx context.Context, req RecoverRequest) ([]Recovered, error)
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
	Store = store.Store

	// A Writer is the part of a store that can also write in a caller's own transaction.
	//
	// Its methods, with the first sentence of each:
	//
	//	// Enqueue adds all of the jobs or none of them, and returns one answer per job, in order.
	//	Enqueue(ctx context.Context, req EnqueueRequest) ([]Enqueued, error)
	//	// Ack finishes jobs whose work is done: each job becomes succeeded, its lease ends, and its result is kept.
	//	Ack(ctx context.Context, acks []Ack) ([]Outcome, error)
	//	// NAck ends leases without success.
	//	NAck(ctx context.Context, nacks []NAck) ([]Outcome, error)
	Writer = store.Writer

	// A Tx is a caller's transaction, such as a *sql.Tx or a *sqlx.Tx.
	//
	// Its methods, with the first sentence of each:
	//
	//	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	//	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	//	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	Tx = store.Tx
)

// The abilities beyond the core. The suite has no cases for the last five, which are for people.
type (
	// A Transactor writes in a caller's own transaction, so that jobs and the caller's rows are committed or rolled back together.
	//
	// Its methods, with the first sentence of each:
	//
	//	// InTx returns a Writer that writes in tx: others see its effect when tx is committed, and never if tx is
	//	// rolled back.
	//	InTx(tx Tx) Writer
	Transactor = store.Transactor

	// A Notifier tells callers when to look for jobs and when to extend their leases, so that they need not do it often.
	//
	// Its methods, with the first sentence of each:
	//
	//	// Subscribe returns a channel of wake-ups for the named queues, or for all queues if none is named.
	//	Subscribe(ctx context.Context, queues []string) (<-chan Wakeup, error)
	Notifier = store.Notifier

	// A QueueKeeper lists the queues and can pause them.
	//
	// Its methods, with the first sentence of each:
	//
	//	// Queues returns every queue that has a job, is paused, or has a policy that sets something, in bytewise
	//	// order of name.
	//	Queues(ctx context.Context) ([]Queue, error)
	//	// SetPaused pauses a queue or resumes it.
	//	SetPaused(ctx context.Context, queue string, paused bool) error
	QueueKeeper = store.QueueKeeper

	// A PolicyKeeper keeps a policy for each queue, so that all programs that use the store follow the same settings. It changes no
	// jobs: servers read from the policies how long to keep finished jobs, and delete those that are older. Claims keep to its limits.
	//
	// Its methods, with the first sentence of each:
	//
	//	QueueKeeper
	//	// Policy returns the policy of the queue.
	//	Policy(ctx context.Context, queue string) (Policy, error)
	//	// SetPolicy replaces the queue's policy as a whole with p, and returns it with the next version.
	//	SetPolicy(ctx context.Context, queue string, p Policy) (Policy, error)
	PolicyKeeper = store.PolicyKeeper

	// A ScheduleKeeper keeps schedules, and enqueues their jobs. It does not read expressions: servers compute the times.
	//
	// Its methods, with the first sentence of each:
	//
	//	// SetSchedule replaces the schedule of that name as a whole with s, or adds it, and returns it as it is kept.
	//	SetSchedule(ctx context.Context, s Schedule) (Schedule, error)
	//	// DeleteSchedule removes the schedule.
	//	DeleteSchedule(ctx context.Context, name string) error
	//	// Schedules returns the schedules that match the filter, in bytewise order of name.
	//	Schedules(ctx context.Context, filter ScheduleFilter, page Page) (SchedulePage, error)
	//	// Fire moves schedules to their next times and enqueues their jobs.
	//	Fire(ctx context.Context, firings []Firing) ([]Fired, error)
	ScheduleKeeper = store.ScheduleKeeper

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
	//	func (*Schedule) Fire(f Firing, now time.Time, lastLives bool) (next Schedule, job *NewJob, result Fired)
	//	// Enqueued completes the schedule and the result of a firing whose job was enqueued, or was a duplicate.
	//	func (*Schedule) Enqueued(f Firing, answer Enqueued, result *Fired)
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

	// A ScheduleFilter selects schedules. The zero value selects every schedule.
	//
	// Its fields:
	//
	//	Name   string        // the schedule with this name
	//	Due    bool          // those whose NextAt is due, or will be due within Within
	//	Within time.Duration // with Due: how far ahead NextAt may lie
	//
	// Its methods:
	//
	//	// Cursor returns the cursor of the page that begins after the schedule with the name.
	//	func (ScheduleFilter) Cursor(name string) string
	//	// Position checks the filter and the page, and returns the name after which the page begins: empty for the
	//	// first page.
	//	func (ScheduleFilter) Position(page Page) (string, error)
	//	// Check returns an *InvalidError if the filter breaks a limit.
	//	func (ScheduleFilter) Check() error
	//	// Matches reports whether the filter selects the schedule at now.
	//	func (ScheduleFilter) Matches(s Schedule, now time.Time) bool
	ScheduleFilter = store.ScheduleFilter

	// A SchedulePage is one page of the schedules, in bytewise order of name.
	//
	// Its fields:
	//
	//	Now       time.Time  // the store's now
	//	Schedules []Schedule // by name
	//	Next      string     // cursor of the next page; empty on the last page
	SchedulePage = store.SchedulePage

	// A GroupKeeper keeps groups of jobs, for which others can wait as a whole.
	//
	// Its methods, with the first sentence of each:
	//
	//	// SealGroup seals a group that an Enqueue has opened: it has all its jobs, and waits for it can be met.
	//	SealGroup(ctx context.Context, name string) error
	//	// Groups returns the groups that match the filter, in bytewise order of name.
	//	Groups(ctx context.Context, filter GroupFilter, page Page) (GroupPage, error)
	GroupKeeper = store.GroupKeeper

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

	// A GroupPage is a page of groups in bytewise order of name.
	//
	// Its fields:
	//
	//	Groups []Group // those of the page
	//	Next   string  // the cursor of the next page; empty on the last page
	GroupPage = store.GroupPage

	// A Firing moves a schedule to its next time, and enqueues its job if For is set.
	//
	// Its fields:
	//
	//	Name     string    // of the schedule
	//	Revision int64     // of the schedule as the caller read it
	//	For      time.Time // the time for which the job is enqueued; zero enqueues none
	//	Next     time.Time // the new NextAt
	Firing = store.Firing

	// Fired is the result of one Firing.
	//
	// Its fields:
	//
	//	Name     string    // of the schedule
	//	Status   Status    // what became of the item
	//	Revision int64     // of the schedule after the item; zero if there is none
	//	Job      *Enqueued // the job that was enqueued, or that holds its unique key; nil if there is none
	//	Reason   string    // for people: why the item is invalid, or enqueued nothing
	Fired = store.Fired

	// A Registry lists workers. It is for people: nothing in it affects jobs.
	//
	// Its methods, with the first sentence of each:
	//
	//	// Beat writes the worker's row under its name, with the store's now as the time of the beat.
	//	Beat(ctx context.Context, w Worker) error
	//	// Leave removes the row of a worker that shuts down, so that nobody takes it for a worker that died.
	//	Leave(ctx context.Context, name string) error
	//	// Workers returns the workers in bytewise order of name.
	//	Workers(ctx context.Context, filter WorkerFilter, page Page) (WorkerPage, error)
	Registry = store.Registry

	// A Fencer makes a store safe to use after it was restored from a backup, or after a failover that lost data.
	//
	// Its methods, with the first sentence of each:
	//
	//	// Fence raises the store's epoch by one, or to the requested epoch if that is higher, and returns the new
	//	// epoch.
	//	Fence(ctx context.Context, req FenceRequest) (epoch int64, err error)
	Fencer = store.Fencer

	// A Monitor answers the questions that probes and metrics ask every few seconds. The cost of an answer grows with the number of
	// queues, not with the number of their jobs.
	//
	// Its methods, with the first sentence of each:
	//
	//	// Ping checks that the store answers, and that it contains what this program keeps in it.
	//	Ping(ctx context.Context) error
	//	// OldestDue returns the queues from which a claim could take a job now if no queue were paused or limited, in
	//	// bytewise order of name.
	//	OldestDue(ctx context.Context) (Due, error)
	Monitor = store.Monitor

	// An Examiner examines the database or the file that keeps the jobs. It is for people, and a store need not implement it.
	//
	// Its methods, with the first sentence of each:
	//
	//	// Examine returns the problems that it finds, and nothing if all is well.
	//	Examine(ctx context.Context) ([]Finding, error)
	Examiner = store.Examiner

	// A Warner reports what people must look at although the store works. It is for probes that ask every few seconds.
	//
	// Its methods, with the first sentence of each:
	//
	//	// Warnings returns the findings of Examine that one small read can detect.
	//	Warnings(ctx context.Context) ([]Finding, error)
	Warner = store.Warner

	// A Repairer corrects times that were written while a clock was ahead. It is for people, and a store need not implement it.
	//
	// Its methods, with the first sentence of each:
	//
	//	// Repair corrects each waiting job for which the time at which it was added, given back or failed was written
	//	// as later than now plus 5 s.
	//	Repair(ctx context.Context) (moved int, err error)
	Repairer = store.Repairer

	// An Accountant knows what its work costs the database or the file. It is for people who measure, and a store need not
	// implement it.
	//
	// Its methods, with the first sentence of each:
	//
	//	// Spent returns the costs so far, always the same costs in the same order.
	//	Spent(ctx context.Context) ([]Cost, error)
	Accountant = store.Accountant

	// A SnapshotHolder can hold a snapshot open beside its own work, as a backup or a long report does. It is for people who
	// measure, and a store need not implement it.
	//
	// Its methods, with the first sentence of each:
	//
	//	// HoldSnapshot returns once the snapshot is taken.
	//	HoldSnapshot(ctx context.Context) (release func() error, err error)
	SnapshotHolder = store.SnapshotHolder
)

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
	//	func (Job) Failed(f Failure, now time.Time) Job
	//	// Begin decides whether a new job is ready, blocked, or cancelled because a job that it needs is, or a group
	//	// that it needs is spoiled.
	//	func (*Job) Begin(waits []KeptWait, on Awaits, now time.Time)
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

	// A KeptWait is a wait as a store keeps it beside the job that waits. Its methods decide what an end of the other job means for it.
	//
	// Its fields:
	//
	//	On    int64  // id of the job that it waits for, or zero if it waits for a group
	//	Group string // name of the group
	//	Any   bool   // see Wait.Any
	//	Met   bool   // see Waiting.Met; of a group, only since the job that waits became ready
	//	From  int64  // least token with which an end of that job counts; of a group, not zero if it was spoiled when the job was requeued
	KeptWait = store.KeptWait

	// Awaits are what a store knows of the jobs and groups that others wait for, at one moment.
	//
	// Its fields:
	//
	//	Job   func(id int64) *Job           // a job as it is now, or nil; what it returns need only last until its next call
	//	Group func(name string) GroupStatus // a group as it is now
	Awaits = store.Awaits

	// An End is how a job ended, with the token that it had then.
	//
	// Its fields:
	//
	//	ID    int64 // of the job
	//	Token int64 // that it had then
	//	As    State // Succeeded, Dead or Cancelled, or Gone if it was deleted when it was dead
	//
	// Its methods:
	//
	//	// Reason is the error of a job that was cancelled because of the end.
	//	func (End) Reason() string
	End = store.End

	// Links say how a job is linked to others. They are never taken back.
	Links = store.Links

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

	// A Failure says why an attempt failed, and whether and when to retry.
	//
	// Its fields:
	//
	//	Reason string        // kept as the job's error
	//	Never  bool          // no retry, even if retries are left
	//	After  bool          // retry after Delay instead of the backoff
	//	Delay  time.Duration // the wait, if After is set
	Failure = store.Failure

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

	// A ClaimLog tells when jobs of a queue with a rate were claimed, the earliest first.
	//
	// Its methods:
	//
	//	// Count forgets the claims that do not count any more at now, and returns how many jobs those that count have
	//	// taken, and when the first of them was made, or now if there is none.
	//	func (*ClaimLog) Count(r Rate, now time.Time) (jobs int, first time.Time)
	//	// Replace takes into account that one rate replaces another one at now.
	//	func (*ClaimLog) Replace(before, by Rate, now time.Time)
	//	// Add notes that jobs are claimed at now.
	//	func (*ClaimLog) Add(jobs int, now time.Time)
	ClaimLog = store.ClaimLog

	// A Claimed is a number of jobs that were claimed at a time.
	//
	// Its fields:
	//
	//	At   time.Time // when
	//	Jobs int       // how many
	Claimed = store.Claimed

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

	// A Wakeup says that a claim from the queue may now return a job or, with Cancelled, that an Extend may now find a job of the
	// queue cancelled. With Settle, it says that a Settle may now change something.
	//
	// Its fields:
	//
	//	Queue     string // its name; empty with Settle
	//	Cancelled bool   // a job in flight was cancelled; there is nothing new to claim
	//	Settle    bool   // a call has left something to Settle; there is nothing new to claim
	Wakeup = store.Wakeup

	// A Finding is something that people should know about a store.
	//
	// Its fields:
	//
	//	Name   string // kind of the finding: a stable name, for scripts
	//	Detail string // what was found
	//	Advice string // what to do about it
	//
	//	Count    int      // how many queues, workers or other things it is about; 0 if not known
	//	Examples []string // names of some of them
	Finding = store.Finding

	// A Cost is a counter that only grows: what a store has spent since it was opened, or its database since it was created.
	//
	// Its fields:
	//
	//	Name  string // what is counted
	//	Unit  string // empty for a plain number
	//	Total int64  // so far
	Cost = store.Cost

	// A Schema says how far the database or the file that keeps the jobs is migrated.
	//
	// Its fields:
	//
	//	Version int // version of the store; 0 if it has no schema yet
	//	Newest  int // newest version that this program knows
	//	Least   int // least compatible version: only programs that know this version can work with the store; 0 if it has no schema yet
	Schema = store.Schema

	// A Present is the now of an open store. It follows the store's clock, but keeps the latest time it has seen while the clock
	// is behind that time by at most MaxSetBack, as after a correction by NTP. Any goroutine may use it.
	//
	// Its fields:
	//
	//	Logger *slog.Logger // logs when now follows a clock that was set back; nil means slog.Default()
	//
	// Its methods:
	//
	//	// Read returns now by a clock that this process can read.
	//	func (*Present) Read(clock func() time.Time) time.Time
	//	// Heard returns now by a remote clock, which showed the time after it was asked.
	//	func (*Present) Heard(shown, asked time.Time) time.Time
	//	// Latest returns the latest now.
	//	func (*Present) Latest() time.Time
	//	// MustLook reports whether a recovery must look for leases that were granted by a clock that was ahead.
	//	func (*Present) MustLook() (mark int, must bool)
	//	// Looked records that no such lease from before the mark is left.
	//	func (*Present) Looked(mark int)
	Present = store.Present
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
	//	func (NewJob) KeptWaits(item func(i int) int64) []KeptWait
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

	// A ClaimRequest asks for jobs of one queue.
	//
	// Its fields:
	//
	//	Queue      string        // from which to claim
	//	Limit      int           // 1 to 1,000
	//	RetryQuota int           // 0 to Limit: how many of the jobs may be retries while fresh jobs wait
	//	Worker     string        // written to the jobs; no check uses it
	//	TTL        time.Duration // length of the leases
	//	Room       []Job         // optional: memory that the store may use for the answer. Whoever lends it must have finished with the jobs in it.
	//
	// Its methods:
	//
	//	// Check returns an *InvalidError if the request breaks a limit.
	//	func (ClaimRequest) Check() error
	//	// MayLeave reports whether the queue may have had more jobs for a claim that returned these: they are as many
	//	// as it asked for, or so large that the next job may not have fitted.
	//	func (ClaimRequest) MayLeave(jobs []Job) bool
	ClaimRequest = store.ClaimRequest

	// An Ack finishes a job that has succeeded.
	//
	// Its fields:
	//
	//	Lease
	//	Result []byte // a JSON document, or empty
	//
	// Its methods:
	//
	//	// Refused returns why the result cannot be kept, or nil if it can.
	//	func (Ack) Refused() *Failure
	Ack = store.Ack

	// A NAck ends a lease without success.
	//
	// Its fields:
	//
	//	Lease
	//	Form  Form          // what is to happen next
	//	Delay time.Duration // for After and Snooze
	//	Error string        // why: for Fail, Never, After and Snooze
	//
	// Its methods:
	//
	//	// Check returns an *InvalidError if the item breaks a limit.
	//	func (NAck) Check() error
	//	// FinishedBy returns the way in which the NAck ends a lease.
	//	func (NAck) FinishedBy() FinishedBy
	//	// Failure returns the Failure that a NAck with Fail, Never or After stands for.
	//	func (NAck) Failure() Failure
	NAck = store.NAck

	// A Form says what a NAck does with the job.
	//
	// Its values:
	//
	//	Fail    = "fail"    // retry after the job's backoff
	//	Never   = "never"   // no retry
	//	After   = "after"   // retry after Delay
	//	Snooze  = "snooze"  // claimable again after Delay
	//	Release = "release" // claimable again at once; the claim does not count as an attempt
	Form = store.Form

	// A Save stores the checkpoint, the progress or both of a handler. An empty document leaves the stored one as it is.
	//
	// Its fields:
	//
	//	Lease
	//	Seq        int64  // number of this save within the lease: 0 or more, growing
	//	Checkpoint []byte // a JSON document for the next attempt
	//	Progress   []byte // a JSON document for people
	//
	// Its methods:
	//
	//	// Check returns an *InvalidError if the item breaks a limit.
	//	func (Save) Check() error
	Save = store.Save

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
	//	StatusBusy       = "busy"        // Extend: the job is locked right now; its lease was neither extended nor lost
	//	StatusFinished   = "finished"    // Extend: the holder has finished the job
	//	StatusCancelled  = "cancelled"   // Extend: the job is cancelled
	//	StatusWrongState = "wrong_state" // the operation is not possible in the job's state
	//	StatusDuplicate  = "duplicate"   // Requeue: another job holds the unique key
	Status = store.Status

	// A RecoverRequest asks for expired leases to be ended.
	//
	// Its fields:
	//
	//	Limit int           // 1 to 1,000
	//	Grace time.Duration // how long after its expiry a lease is left alone
	//
	// Its methods:
	//
	//	// Check returns an *InvalidError if the request breaks a limit.
	//	func (RecoverRequest) Check() error
	RecoverRequest = store.RecoverRequest

	// A FenceRequest asks for a new epoch.
	//
	// Its fields:
	//
	//	EndLeases bool // ends the leases in force as well
	//
	//	// Epoch is the smallest value that the new epoch may have, if one more than the current epoch is not enough. If you
	//	// restore the same backup a second time, set it to the epoch that Fence returned the first time, plus one.
	//	Epoch int64
	//
	// Its methods:
	//
	//	// Check returns an *InvalidError if the request breaks a limit.
	//	func (FenceRequest) Check() error
	//	// Raised returns the epoch that follows the given one in a store whose latest id is lastID.
	//	func (FenceRequest) Raised(epoch, lastID int64) (int64, error)
	FenceRequest = store.FenceRequest

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

	// A WorkerFilter selects workers.
	//
	// Its fields:
	//
	//	Name string // selects the worker with this name; empty selects every worker
	//
	// Its methods:
	//
	//	// Cursor returns the cursor of the page that begins after the worker with the name.
	//	func (WorkerFilter) Cursor(name string) string
	//	// Position checks the filter and the page, and returns the name after which the page begins: empty for the
	//	// first page.
	//	func (WorkerFilter) Position(page Page) (string, error)
	//	// Check returns an *InvalidError if the filter breaks a limit.
	//	func (WorkerFilter) Check() error
	WorkerFilter = store.WorkerFilter

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

	// A WorkerPage is one page of the list of workers, in bytewise order of name.
	//
	// Its fields:
	//
	//	Workers []Worker // by name
	//	Next    string   // cursor of the next page; empty on the last page
	WorkerPage = store.WorkerPage

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

	// Due lists the queues with due jobs.
	//
	// Its fields:
	//
	//	Now    time.Time  // the store's now
	//	Queues []QueueDue // queues with a due job, in bytewise order of name
	Due = store.Due

	// A QueueDue is a queue with a due job.
	//
	// Its fields:
	//
	//	Queue     string    // its name
	//	OldestDue time.Time // earliest due time of its due jobs
	QueueDue = store.QueueDue

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

// A Record is a job as a store keeps it, with the life of a job as its methods.
type (
	// A Record is a job as a store keeps it: the job, how its holder finished it, and its latest attempt. Its methods implement
	// Transitions, row by row. Every store applies them, and compares its own faster paths with them. Each method returns the
	// outcome for the item that the contract requires.
	//
	// A nil *Record stands for a job that does not exist, or no longer exists.
	//
	// The store keeps earlier attempts elsewhere. Claim and Requeue drop the latest attempt from the record, so the store must move
	// it there. A job that succeeds at once has no history beside its own record.
	//
	// Its fields:
	//
	//	Job
	//
	//	Epoch      int64         // epoch of the store, which must set it before a call that may raise the token
	//	FinishedBy FinishedBy    // how the holder of Token ended its lease
	//	LeaseFor   time.Duration // length of the lease when it was granted or last extended; of the latest lease if none is in force
	//
	//	ClaimToken int64     // token of the latest attempt; zero if there is none, or if it was moved
	//	EndedAt    time.Time // when the latest attempt ended
	//	Ending     Ending    // how the latest attempt ended
	//	Reason     string    // why it was put off, if it ended by Snooze: the job's Error may be that of an earlier attempt
	//
	//	Links Links // for stores that would otherwise have to look whether the job waits for others, or others for it
	//
	// Its methods:
	//
	//	// Latest returns the latest attempt, or false if the record does not hold it.
	//	func (*Record) Latest() (Attempt, bool)
	//	// Detail returns the job with the given earlier attempts and the latest one.
	//	func (*Record) Detail(earlier []Attempt) JobDetail
	//	// Holds reports whether the lease is in force.
	//	func (*Record) Holds(l Lease) bool
	//	// Ack ends the lease with success.
	//	func (*Record) Ack(a Ack, refused *Failure, now time.Time) Outcome
	//	// NAck ends the lease without success.
	//	func (*Record) NAck(n NAck, failure Failure, now time.Time) Outcome
	//	// Extend makes the lease run from now for ttl.
	//	func (*Record) Extend(l Lease, ttl time.Duration, now time.Time) Outcome
	//	// Lend makes the lease in force run from now for ttl.
	//	func (*Record) Lend(ttl time.Duration, now time.Time)
	//	// Save stores checkpoint and progress.
	//	func (*Record) Save(s Save, refused error) Outcome
	//	// Recover ends a lease that has expired.
	//	func (*Record) Recover(now time.Time) Recovered
	//	// Cancel ends a job that is not terminal.
	//	func (*Record) Cancel(now time.Time) Outcome
	//	// Requeue makes a terminal job ready again.
	//	func (*Record) Requeue(holder int64, now time.Time) Outcome
	//	// Reschedule makes a job that waits due at the later of now and at.
	//	func (*Record) Reschedule(at, now time.Time) Outcome
	//	// Replace gives a job that waits the payload, priority, ExpiresAt and due time of n, which needs the unique
	//	// key that it holds.
	//	func (*Record) Replace(n NewJob, now time.Time) bool
	//	// Delete answers ok if the store may remove the job.
	//	func (*Record) Delete() Outcome
	//	// Claim grants a lease on a job that is due.
	//	func (*Record) Claim(req ClaimRequest, now time.Time)
	//	// MustHold returns the error of a strict call, such as a call in a caller's transaction, if the lease is not
	//	// in force.
	//	func (*Record) MustHold(l Lease, by FinishedBy) error
	//	// Hear takes an end of a job that it waits for into account.
	//	func (*Record) Hear(waits []KeptWait, e End, on Awaits, now time.Time) (changed bool)
	//	// HearGroup takes into account that a group may have become done or spoiled, or any group if the name is
	//	// empty.
	//	func (*Record) HearGroup(group string, waits []KeptWait, on Awaits, now time.Time) (changed bool)
	Record = store.Record

	// FinishedBy is a way in which a holder ends its own lease. A store remembers it until the next claim, so that it can tell a
	// repeat from another way of finishing.
	//
	// Its values:
	//
	//	NotFinished       = "" // not ended by its holder
	//	FinishedByAck     = "ack"
	//	FinishedByFail    = "fail"
	//	FinishedBySnooze  = "snooze"
	//	FinishedByRelease = "release"
	FinishedBy = store.FinishedBy
)
