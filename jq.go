package jq

import "github.com/seed-ed332417/jq/internal/store"

// The contract, and the abilities beyond it.
type (
	Store          = store.Store
	Writer         = store.Writer
	Tx             = store.Tx
	Transactor     = store.Transactor
	Notifier       = store.Notifier
	QueueKeeper    = store.QueueKeeper
	PolicyKeeper   = store.PolicyKeeper
	Registry       = store.Registry
	Fencer         = store.Fencer
	Monitor        = store.Monitor
	Examiner       = store.Examiner
	Warner         = store.Warner
	Repairer       = store.Repairer
	Accountant     = store.Accountant
	SnapshotHolder = store.SnapshotHolder
)

// Jobs and what surrounds them.
type (
	Job       = store.Job
	JobDetail = store.JobDetail
	State     = store.State
	Lease     = store.Lease
	Attempt   = store.Attempt
	Ending    = store.Ending
	Backoff   = store.Backoff
	Failure   = store.Failure
	Queue     = store.Queue
	Policy    = store.Policy
	Worker    = store.Worker
	Wakeup    = store.Wakeup
	Finding   = store.Finding
	Cost      = store.Cost
	Schema    = store.Schema
)

// Requests and answers.
type (
	NewJob         = store.NewJob
	EnqueueRequest = store.EnqueueRequest
	Enqueued       = store.Enqueued
	ClaimRequest   = store.ClaimRequest
	Ack            = store.Ack
	NAck           = store.NAck
	Form           = store.Form
	Save           = store.Save
	Outcome        = store.Outcome
	Status         = store.Status
	RecoverRequest = store.RecoverRequest
	FenceRequest   = store.FenceRequest
	Recovered      = store.Recovered
	Filter         = store.Filter
	WorkerFilter   = store.WorkerFilter
	Page           = store.Page
	JobPage        = store.JobPage
	WorkerPage     = store.WorkerPage
	Counts         = store.Counts
	Due            = store.Due
	QueueDue       = store.QueueDue
	QueueCount     = store.QueueCount
	InvalidError   = store.InvalidError
	OverlongError  = store.OverlongError
)

// The states of a job. Retrying and Dead are the two faces of Failed.
const (
	Ready     = store.Ready
	InFlight  = store.InFlight
	Succeeded = store.Succeeded
	Failed    = store.Failed
	Retrying  = store.Retrying
	Dead      = store.Dead
	Cancelled = store.Cancelled
)

// KeepForEver is a retention of a [Policy], and the others are those of a queue whose policy does not set them.
const (
	KeepForEver            = store.KeepForEver
	DefaultRetainSucceeded = store.DefaultRetainSucceeded
	DefaultRetainCancelled = store.DefaultRetainCancelled
	DefaultRetainDead      = store.DefaultRetainDead
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
