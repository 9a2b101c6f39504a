// Package contract is for authors of stores. It has all types, errors and limits of the contract, and the code that every store
// should share. Package jqtest tests a store. You need no other package of jq.
//
//	func (s *Store) Ack(ctx context.Context, acks []contract.Ack) ([]contract.Outcome, error) {
//		if err := contract.CheckAcks(acks); err != nil {
//			return nil, err
//		}
//		// under the store's lock, or in a transaction, for each:
//		outcomes[i] = record.Ack(ack, ack.Refused(), now)
//
// The contract itself is the documentation of [Store] and its package. Read it with
//
//	go doc -all github.com/seed-ed332417/jq/internal/store
//
// which works in any module that requires jq.
//
// A store keeps each job as a [Record], whose methods are the life of a job. Shared code also checks requests, cleans error
// texts and truncates times, so that all stores refuse the same requests with the same messages. Requests have methods for that
// as well, among them [NewJob.Row], [Ack.Refused], [NAck.Failure], [Policy.Replace] and the Check of each. Package kv is
// a complete store that was written with this package, and makes stores of ordered key-value engines.
package contract

import (
	"context"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// The errors, by errors.Is.
var (
	ErrInvalid         = store.ErrInvalid         // a request breaks a limit: the error is an InvalidError
	ErrNotFound        = store.ErrNotFound        // the job does not exist, or no longer exists
	ErrState           = store.ErrState           // not possible in the job's state
	ErrDuplicate       = store.ErrDuplicate       // another job holds the unique key
	ErrConflict        = store.ErrConflict        // the policy was changed since it was read
	ErrStaleLease      = store.ErrStaleLease      // the lease was ended by someone else, or by its holder in another way
	ErrAlreadyFinished = store.ErrAlreadyFinished // in a transaction: the holder has finished the job before
	ErrUnavailable     = store.ErrUnavailable     // the store could not serve the call, and nothing was applied
	ErrDenied          = store.ErrDenied          // the caller may not do this, and nothing was applied
	ErrInDoubt         = store.ErrInDoubt         // the answer was lost: applied as a whole, or not at all
	ErrClosed          = store.ErrClosed          // the store was closed, and nothing was applied
)

// The ways in which a holder ends its lease. Fail, Never and After count as one.
const (
	NotFinished       = store.NotFinished       // not ended by its holder
	FinishedByAck     = store.FinishedByAck     // Ack
	FinishedByFail    = store.FinishedByFail    // NAck with Fail, Never or After
	FinishedBySnooze  = store.FinishedBySnooze  // NAck with Snooze
	FinishedByRelease = store.FinishedByRelease // NAck with Release
)

// The states of a job. Retrying and Dead are the two faces of Failed.
const (
	Blocked   = store.Blocked   // waits for other jobs, and is not claimed before they have ended
	Ready     = store.Ready     // is claimed once RunAt is due
	InFlight  = store.InFlight  // a worker holds it by a lease
	Succeeded = store.Succeeded // ended: its handler returned nil
	Failed    = store.Failed    // Retrying or Dead: see Job.Phase
	Retrying  = store.Retrying  // failed, and is claimed again once RetryAt is due
	Dead      = store.Dead      // ended: it failed, and is not retried; Requeue makes it ready again
	Cancelled = store.Cancelled // ended: somebody cancelled it
)

// KeepForEver is a retention of a [Policy], and the others are those of a queue whose policy does not set them.
const (
	KeepForEver            = store.KeepForEver            // until somebody deletes them
	DefaultRetainSucceeded = store.DefaultRetainSucceeded // a day
	DefaultRetainCancelled = store.DefaultRetainCancelled // a week
	DefaultRetainDead      = store.DefaultRetainDead      // for ever
)

// The limits.
const (
	Resolution       = store.Resolution       // of all times and durations: see Truncate
	MaxItems         = store.MaxItems         // items of a call
	MaxCallBytes     = store.MaxCallBytes     // documents of a call
	MaxAnswerBytes   = store.MaxAnswerBytes   // documents of a page, and of each lane of a claim
	MaxPageNames     = store.MaxPageNames     // bytes of the queue names of the workers of a page; any single worker fits
	MaxPageTemplates = store.MaxPageTemplates // bytes of the payloads of the schedules of a page
	MaxTemplateBytes = store.MaxTemplateBytes // the payload of the job of a schedule
	MaxFirings       = store.MaxFirings       // items of a Fire
	MaxLateness      = store.MaxLateness      // how late a time of a schedule with CatchUpSkip may be
	MaxJobBytes      = store.MaxJobBytes      // all documents of a job
	MaxNameBytes     = store.MaxNameBytes     // a name of a queue, kind, key, tag, worker, trace or host
	MaxDocBytes      = store.MaxDocBytes      // a payload, result, checkpoint or progress
	MaxErrorBytes    = store.MaxErrorBytes    // an error text: see CleanError
	MaxTags          = store.MaxTags          // tags of a job
	MaxWaits         = store.MaxWaits         // waits of a job
	MaxOpen          = store.MaxOpen          // groups that a call opens
	MaxCallWaits     = store.MaxCallWaits     // waits of a call
	SettledByCall    = store.SettledByCall    // jobs that a call changes beside those that it is about: see Settle
	LinkAwaited      = store.LinkAwaited      // a Links: another job waits for it, or has waited for it
	LinkWaits        = store.LinkWaits        // a Links: it waits for another job, or has waited for one
	MaxPatterns      = store.MaxPatterns      // queue patterns of a filter
	MinPriority      = store.MinPriority      // claimed last
	MaxPriority      = store.MaxPriority      // claimed first
	MaxRetryLimit    = store.MaxRetryLimit    // of MaxRetries
	MaxDuration      = store.MaxDuration      // any duration: ten years
	MaxAttemptsKept  = store.MaxAttemptsKept  // the latest attempts of a job, which stay in its history
	RequestKeyLife   = store.RequestKeyLife   // how long a request key is remembered
	WorkerLife       = store.WorkerLife       // how long a worker is listed after its last heartbeat
	MinRetention     = store.MinRetention     // the shortest retention of a Policy
	MaxLimit         = store.MaxLimit         // Policy.MaxInFlight
	MaxKeyLimit      = store.MaxKeyLimit      // Policy.MaxPerKey
	MaxRate          = store.MaxRate          // Rate.N
	MinPer           = store.MinPer           // Rate.Per
	MaxPer           = store.MaxPer           // Rate.Per
	FenceStep        = store.FenceStep        // tokens and ids of one epoch: see Floor
	MaxEpoch         = store.MaxEpoch         // the last epoch whose tokens and ids fit in 63 bits
	MaxSetBack       = store.MaxSetBack       // how far a clock may go back before the store follows it: see Present
	DefaultMaxLease  = store.DefaultMaxLease  // the longest lease, unless the store has another MaxLease: see CheckLease
)

// The forms of NAck. Fail, Never and After count as a failure; Snooze and Release do not.
const (
	Fail    = store.Fail    // retry after the backoff of the job
	Never   = store.Never   // no retry
	After   = store.After   // retry after Delay
	Snooze  = store.Snooze  // claimable again after Delay
	Release = store.Release // claimable again at once; the claim does not count as an attempt
)

// The endings of an attempt, each with the call that writes it.
const (
	NotEnded     = store.NotEnded     // the job is in flight
	EndSucceeded = store.EndSucceeded // Ack
	EndFailed    = store.EndFailed    // NAck, and an Ack whose result is refused
	EndSnoozed   = store.EndSnoozed   // NAck with Snooze
	EndReleased  = store.EndReleased  // NAck with Release
	EndExpired   = store.EndExpired   // RecoverExpiredLeases
	EndCancelled = store.EndCancelled // Cancel
)

// The statuses of an outcome.
const (
	StatusOK         = store.StatusOK         // the call has done what it says
	StatusStale      = store.StatusStale      // the lease was ended by someone else, or by its holder in another way
	StatusNotFound   = store.StatusNotFound   // the job does not exist, or no longer exists
	StatusInvalid    = store.StatusInvalid    // the item breaks a limit
	StatusBusy       = store.StatusBusy       // Extend: the job is locked right now; its lease was neither extended nor lost
	StatusFinished   = store.StatusFinished   // Extend: the holder has finished the job
	StatusCancelled  = store.StatusCancelled  // Extend: the job is cancelled
	StatusWrongState = store.StatusWrongState // the operation is not possible in the job's state
	StatusDuplicate  = store.StatusDuplicate  // Requeue: another job holds the unique key
)

// The ways of a [Schedule] to catch up, and to overlap.
const (
	CatchUpOne   = store.CatchUpOne   // the latest of the missed times enqueues, however late
	CatchUpSkip  = store.CatchUpSkip  // times more than MaxLateness late do not enqueue
	OverlapAllow = store.OverlapAllow // enqueue the next job all the same
	OverlapSkip  = store.OverlapSkip  // leave this time out
)

// CheckFirings returns an [*InvalidError] if a call of Fire breaks a limit.
func CheckFirings(firings []Firing) error { return store.CheckFirings(firings) }

// CheckSchedule returns an [*InvalidError] if the name of a schedule breaks a limit.
func CheckSchedule(name string) error { return store.CheckSchedule(name) }

// NextToken returns the token that a job gets when a change raises it. The epoch is that of the latest Fence.
func NextToken(token, epoch int64) int64 { return store.NextToken(token, epoch) }

// Floor returns the last token, and the last id, before the epoch. Ids of new jobs are greater.
func Floor(epoch int64) int64 { return store.Floor(epoch) }

// Phases returns every phase that a job can have: the states, with Retrying and Dead in place of Failed.
func Phases() []State { return append([]State(nil), store.Phases...) }

// LeaseExpired returns the failure of a job whose lease ran out.
func LeaseExpired() Failure { return store.LeaseExpired }

// MaxTime returns the first time that a store refuses as too late.
func MaxTime() time.Time { return store.MaxTime }

// Truncate rounds a time down to the resolution of the contract, in UTC. The zero time stays zero.
func Truncate(t time.Time) time.Time { return store.Truncate(t) }

// CleanError makes an error text fit to store: it replaces NUL and invalid UTF-8, and cuts the text to its limit with a note
// that it was cut.
func CleanError(text string) string { return store.CleanError(text) }

// EachWorker calls see for every worker, in the order of their names. It reads one page at a time.
func EachWorker(ctx context.Context, of Registry, see func(Worker)) error {
	return store.EachWorker(ctx, of, see)
}

// AllWorkers returns every worker, in the order of their names.
func AllWorkers(ctx context.Context, of Registry) ([]Worker, error) {
	return store.AllWorkers(ctx, of)
}

// PhaseOf returns what [Job.Phase] does, without copying the job.
func PhaseOf(j *Job) State { return store.PhaseOf(j) }

// TerminalOf returns what [Job.Terminal] does, without copying the job.
func TerminalOf(j *Job) bool { return store.TerminalOf(j) }

// NextOf returns what [Job.Next] does, without copying the job.
func NextOf(j *Job) time.Time { return store.NextOf(j) }

// OutcomeOf returns an outcome with the status and with the present state, token and time of the job.
func OutcomeOf(j Job, status Status) Outcome { return store.OutcomeOf(j, status) }

// CheckExtend returns an InvalidError if a call of Extend breaks a limit.
func CheckExtend(leases []Lease, ttl time.Duration) error {
	return store.CheckExtend(leases, ttl)
}

// CheckLease returns an InvalidError if the lease is longer than the MaxLease of the store. If the request is refused already,
// it returns that error.
func CheckLease(refused error, ttl, longest time.Duration) error {
	return store.CheckLease(refused, ttl, longest)
}

// WrittenAhead returns the finding about jobs that a Repairer repairs.
func WrittenAhead(jobs int, most time.Duration) Finding { return store.WrittenAhead(jobs, most) }

// CheckMaxLease returns an error if a store cannot have this MaxLease.
func CheckMaxLease(longest time.Duration) error { return store.CheckMaxLease(longest) }

// ClaimAhead reports whether a claim under a rate was made by a clock that was ahead of now.
func ClaimAhead(at, now time.Time) bool { return store.ClaimAhead(at, now) }

// LeaseAhead reports whether a clock that was ahead of now has given the lease with this end and length. If so, it returns when
// the lease ends if it runs from now.
func LeaseAhead(end time.Time, length, longest time.Duration, now time.Time) (time.Time, bool) {
	return store.LeaseAhead(end, length, longest, now)
}

// CheckAcks returns an InvalidError if a call of Ack breaks a limit as a whole. A refused result does not count here: see
// [Ack.Refused].
func CheckAcks(acks []Ack) error { return store.CheckAcks(acks) }

// CheckNAcks returns an InvalidError if a call of NAck breaks a limit as a whole. [NAck.Check] checks an item.
func CheckNAcks(nacks []NAck) error { return store.CheckNAcks(nacks) }

// CheckSaves returns an InvalidError if a call of Save breaks a limit as a whole. [Save.Check] checks an item.
func CheckSaves(saves []Save) error { return store.CheckSaves(saves) }

// CheckTx refuses nil, and types that cannot be an open transaction. Before it writes, the store must also ask the database
// whether tx is in a transaction, and refuse it with [NotInTx] if it is not.
func CheckTx(tx Tx) error { return store.CheckTx(tx) }

// NotInTx returns the error for a tx whose statement has run outside of a transaction.
func NotInTx(tx Tx) error { return store.NotInTx(tx) }

// TxError translates the errors of database/sql that say that the transaction has ended. It returns other errors as they are.
func TxError(err error) error { return store.TxError(err) }

// CheckQueue returns an InvalidError if the name cannot be that of a queue.
func CheckQueue(name string) error { return store.CheckQueue(name) }

// QueueMatches reports whether one of the patterns of a filter matches the queue. No patterns match every queue.
func QueueMatches(patterns []string, queue string) bool { return store.QueueMatches(patterns, queue) }

// Ping asks a store whether it answers, also a store that is not a Monitor.
func Ping(ctx context.Context, s Store) error { return store.Ping(ctx, s) }

// Now returns the time of the store.
func Now(ctx context.Context, s Store) (time.Time, error) { return store.Now(ctx, s) }

// Missing returns the names of the abilities that the store does not have.
func Missing(s Store) []string { return store.Missing(s) }

// CheckSettle returns an [*InvalidError] if the limit of a Settle breaks a limit.
func CheckSettle(limit int) error { return store.CheckSettle(limit) }

// SettledOf returns the answer of Settle for a job as it is now.
func SettledOf(j *Job) Settled { return store.SettledOf(j) }

// CheckExpiry returns an [*InvalidError] if a job's ExpiresAt is not later than the time at which it becomes due if it is
// enqueued at now. A store must not check it for a repeat under a request key: the time may have come since.
func CheckExpiry(jobs []NewJob, now time.Time) error { return store.CheckExpiry(jobs, now) }

// ExpiredOf reports whether a job has expired at now: it waits, and its ExpiresAt has come.
func ExpiredOf(j *Job, now time.Time) bool { return store.ExpiredOf(j, now) }

// RefuseWaits returns an [*InvalidError] if a job waits for others, or is in a group, for a store that does not keep waits.
func RefuseWaits(req EnqueueRequest) error { return store.RefuseWaits(req) }

// RefuseGroups returns an [*InvalidError] if a request has to do with groups, for a store that does not keep them.
func RefuseGroups(req EnqueueRequest) error { return store.RefuseGroups(req) }

// RefuseKeyLimits returns an [*InvalidError] if a policy limits the jobs of each limit key, lets the keys take turns, or keeps their jobs in order, for a store that
// keeps limit keys only for people and filters.
func RefuseKeyLimits(p Policy) error { return store.RefuseKeyLimits(p) }

// SpoilsOf returns the group that a job spoils which has ended, or is deleted. It returns "" if it spoils none.
func SpoilsOf(j *Job, deleted bool) string { return store.SpoilsOf(j, deleted) }

// NotOpen returns the error for a group that is to be sealed and is not open.
func NotOpen(name string) error { return store.NotOpen(name) }

// CheckGroup returns an [*InvalidError] if the name of a group breaks a limit.
func CheckGroup(name string) error { return store.CheckGroup(name) }

// NoSuchWait returns the error for an item that waits for a job which does not exist.
func NoSuchWait(item int, id int64) error { return store.NoSuchWait(item, id) }

// EndOf returns how the job ended, or false if it has not.
func EndOf(j *Job) (End, bool) { return store.EndOf(j) }

// GoneOf returns the end of a job that is deleted, or false if it was not dead: what has succeeded or was cancelled is beyond that.
func GoneOf(j *Job) (End, bool) { return store.GoneOf(j) }

// LookAgain sets the waits of a job that was requeued as the other jobs and groups are now. It reports whether one of them is not met, so
// that the job must be blocked.
func LookAgain(waits []KeptWait, on Awaits) (blocked bool) { return store.LookAgain(waits, on) }

// WaitsOf returns what Get shows of the waits.
func WaitsOf(waits []KeptWait, on Awaits) []Waiting { return store.WaitsOf(waits, on) }

// CheckNew returns an [*InvalidError] with the first job that cannot be added at now, or nil: its ExpiresAt is not later than its due
// time, it waits for a job that does not exist, or it has a priority and a limit key in one of the queues whose policies are Ordered. A store must
// not check this for a repeat under a request key.
func CheckNew(jobs []NewJob, now time.Time, exists func(id int64) bool, ordered []string) error {
	return store.CheckNew(jobs, now, exists, ordered)
}

// Prioritized returns the queues of jobs with a limit key and a priority: CheckNew must know which of their policies are Ordered.
func Prioritized(jobs []NewJob) (queues []string) { return store.Prioritized(jobs) }
