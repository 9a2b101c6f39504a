// Package contract is for authors of stores: what the contract says in code, beside the types that package jq has.
//
// The contract itself is prose, above the methods of [Store]: read it by
//
//	go doc -all github.com/seed-ed332417/jq/internal/store
//
// which works in any module that requires jq. What is here is what all stores must do in the same way, and therefore do by the
// same code: the life of a job is [Record], which a store keeps in its own way; what breaks a limit is refused, error texts are mended,
// times are truncated. Requests have methods for that as well, among them [NewJob.Row], [Ack.Refused], [NAck.Failure], [Policy.Replace]
// and the Check of each.
// Package jqtest then proves the store, and examples/bbolt is one that was written like this, from start to end.
package contract

import (
	"context"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Types that the comments here speak of, under their names in package jq.
type (
	Store   = store.Store
	NewJob  = store.NewJob
	Job     = store.Job
	Ack     = store.Ack
	NAck    = store.NAck
	Policy  = store.Policy
	Present = store.Present
)

// A Record is a job as a store keeps it, with the life of a job as its methods. FinishedBy is how a holder has ended its lease.
type (
	Record     = store.Record
	FinishedBy = store.FinishedBy
)

// The ways in which a holder ends its lease. Fail, Never and After are one.
const (
	NotFinished       = store.NotFinished // not by its holder
	FinishedByAck     = store.FinishedByAck
	FinishedByFail    = store.FinishedByFail
	FinishedBySnooze  = store.FinishedBySnooze
	FinishedByRelease = store.FinishedByRelease
)

// The limits.
const (
	Resolution      = store.Resolution
	MaxItems        = store.MaxItems
	MaxCallBytes    = store.MaxCallBytes
	MaxAnswerBytes  = store.MaxAnswerBytes
	MaxPageNames    = store.MaxPageNames
	MaxJobBytes     = store.MaxJobBytes
	MaxNameBytes    = store.MaxNameBytes
	MaxDocBytes     = store.MaxDocBytes
	MaxErrorBytes   = store.MaxErrorBytes
	MaxTags         = store.MaxTags
	MaxPatterns     = store.MaxPatterns
	MinPriority     = store.MinPriority
	MaxPriority     = store.MaxPriority
	MaxRetryLimit   = store.MaxRetryLimit
	MaxDuration     = store.MaxDuration
	MaxAttemptsKept = store.MaxAttemptsKept
	RequestKeyLife  = store.RequestKeyLife
	WorkerLife      = store.WorkerLife
	MinRetention    = store.MinRetention
	FenceStep       = store.FenceStep
	MaxEpoch        = store.MaxEpoch
	MaxSetBack      = store.MaxSetBack
	DefaultMaxLease = store.DefaultMaxLease
)

// The forms of NAck. Fail, Never and After count as a failure; Snooze and Release do not.
const (
	Fail    = store.Fail
	Never   = store.Never
	After   = store.After
	Snooze  = store.Snooze
	Release = store.Release
)

// The endings of an attempt, each with the call that writes it.
const (
	Running      = store.Running      // not ended: the job is in flight
	EndSucceeded = store.EndSucceeded // Ack
	EndFailed    = store.EndFailed    // NAck, and an Ack whose result is refused
	EndSnoozed   = store.EndSnoozed   // NAck with Snooze
	EndReleased  = store.EndReleased  // NAck with Release
	EndExpired   = store.EndExpired   // RecoverExpiredLeases
	EndCancelled = store.EndCancelled // Cancel
)

// The statuses of an outcome.
const (
	StatusOK         = store.StatusOK
	StatusStale      = store.StatusStale      // the lease was ended by someone else, or by its holder in another way
	StatusNotFound   = store.StatusNotFound   // there is no such job, or no longer
	StatusInvalid    = store.StatusInvalid    // the item breaks a limit
	StatusBusy       = store.StatusBusy       // Extend: the job is locked right now, neither extended nor lost
	StatusFinished   = store.StatusFinished   // Extend: the holder has finished the job
	StatusCancelled  = store.StatusCancelled  // Extend: the job is cancelled
	StatusWrongState = store.StatusWrongState // the job is in a state that the operation does not leave
	StatusDuplicate  = store.StatusDuplicate  // Requeue: another job holds the unique key
)

// NextToken returns the token of a job after a change that raises it, in the epoch that the latest Fence has set.
func NextToken(token, epoch int64) int64 { return store.NextToken(token, epoch) }

// Floor returns the last token, and the last id, below the epoch. Ids of new jobs go on from there.
func Floor(epoch int64) int64 { return store.Floor(epoch) }

// Phases returns all that a job can be, with both faces of Failed in its place.
func Phases() []store.State { return append([]store.State(nil), store.Phases...) }

// LeaseExpired returns the failure of a job whose lease ran out.
func LeaseExpired() store.Failure { return store.LeaseExpired }

// MaxTime returns the first moment that is too late.
func MaxTime() time.Time { return store.MaxTime }

// Truncate brings a time to the resolution of the contract, in UTC. The zero time stays what it is.
func Truncate(t time.Time) time.Time { return store.Truncate(t) }

// CleanError makes an error text fit to be kept: valid UTF-8 without NUL, cut to its limit, and saying that it was.
func CleanError(text string) string { return store.CleanError(text) }

// EachWorker calls see for every worker, by name. It reads one page at a time.
func EachWorker(ctx context.Context, of store.Registry, see func(store.Worker)) error {
	return store.EachWorker(ctx, of, see)
}

// AllWorkers returns every worker, by name.
func AllWorkers(ctx context.Context, of store.Registry) ([]store.Worker, error) {
	return store.AllWorkers(ctx, of)
}

// OutcomeOf returns the outcome with the status for a job as it now stands.
func OutcomeOf(j Job, status store.Status) store.Outcome { return store.OutcomeOf(j, status) }

// CheckExtend says what is wrong with a call of Extend, as an InvalidError.
func CheckExtend(leases []store.Lease, ttl time.Duration) error {
	return store.CheckExtend(leases, ttl)
}

// CheckLease says what is wrong with the length of a lease in a store with that MaxLease. A request that is refused already
// stays so.
func CheckLease(refused error, ttl, longest time.Duration) error {
	return store.CheckLease(refused, ttl, longest)
}

// WrittenAhead is the finding that a Repairer repairs.
func WrittenAhead(jobs int, most time.Duration) store.Finding { return store.WrittenAhead(jobs, most) }

// CheckMaxLease says what is wrong with the setting.
func CheckMaxLease(longest time.Duration) error { return store.CheckMaxLease(longest) }

// Ahead says of a lease of the length, which ends at the given time, whether a clock has given it that was ahead of now, and
// when it ends if it runs from now.
func Ahead(end time.Time, length, longest time.Duration, now time.Time) (time.Time, bool) {
	return store.Ahead(end, length, longest, now)
}

// CheckAcks says what is wrong with a call of Ack as a whole. A result that is refused counts for nothing here: see
// [Ack.Refused].
func CheckAcks(acks []Ack) error { return store.CheckAcks(acks) }

// CheckNAcks says what is wrong with a call of NAck as a whole; [NAck.Check] says it of an item.
func CheckNAcks(nacks []NAck) error { return store.CheckNAcks(nacks) }

// CheckSaves says what is wrong with a call of Save as a whole; Save.Check says it of an item.
func CheckSaves(saves []store.Save) error { return store.CheckSaves(saves) }

// CheckTx refuses what by its type alone is no open transaction. Of everything else the store must ask the database, before it
// writes, and refuse with NotInTx what is in none.
func CheckTx(tx store.Tx) error { return store.CheckTx(tx) }

// NotInTx refuses what has run a statement outside of a transaction.
func NotInTx(tx store.Tx) error { return store.NotInTx(tx) }

// TxError is an error of database/sql in the words of the contract, where it says that the transaction has ended.
func TxError(err error) error { return store.TxError(err) }

// CheckQueue says what is wrong with the name of a queue.
func CheckQueue(name string) error { return store.CheckQueue(name) }

// QueueMatches says whether the queue is one of those that the patterns of a filter choose. No patterns choose every queue.
func QueueMatches(patterns []string, queue string) bool { return store.QueueMatches(patterns, queue) }

// Ping asks a store whether it answers, also one that is no Monitor.
func Ping(ctx context.Context, s Store) error { return store.Ping(ctx, s) }

// Now asks a store for its time.
func Now(ctx context.Context, s Store) (time.Time, error) { return store.Now(ctx, s) }

// Missing names the abilities beyond the core that the store does not have.
func Missing(s Store) []string { return store.Missing(s) }
