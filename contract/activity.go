package contract

import (
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Activity: what servers did, added up by minute, queue and kind.
type (
	// An ActivityReader adds up what happened to jobs within the last hours or days. It is for people: nothing in it affects jobs.
	//
	// Its methods, with the first sentence of each:
	//
	//	// Activity adds up what AddActivity was given for the minutes that the filter selects, and returns the sums
	//	// by span.
	//	Activity(ctx context.Context, filter ActivityFilter) (ActivityPage, error)
	ActivityReader = store.ActivityReader

	// An ActivityKeeper keeps the sums of what all servers did, by minute, queue and kind. Each server adds up its own work and hands
	// it over from time to time, so no job costs a write.
	//
	// Its methods, with the first sentence of each:
	//
	//	ActivityReader
	//	// AddActivity adds the numbers of the items to those of the minute of the store's now.
	//	AddActivity(ctx context.Context, items []Activity) error
	ActivityKeeper = store.ActivityKeeper

	// An Activity is what happened to the jobs of one queue and kind within a span of time.
	//
	// Its fields:
	//
	//	At    time.Time // begin of the span, in answers only
	//	Queue string    // empty if it is not known, or if the answer adds up all queues
	//	Kind  string    // empty if it is not known, or if the answer adds up all kinds
	//
	//	Succeeded int64 // runs that succeeded
	//	Retried   int64 // runs that failed and left a retry
	//	Dead      int64 // jobs that failed for good, also by a lost lease
	//	Snoozed   int64 // runs that ended by Snooze
	//	Recovered int64 // leases that expired and were recovered
	//	Expired   int64 // jobs that were cancelled because they had expired
	//	Stale     int64 // writes that were refused because their lease was lost
	//
	//	Waited Histogram // how long jobs were due before they ran; retries are not counted
	//	Ran    Histogram // how long runs took
	//
	// Its methods:
	//
	//	// Numbers returns where the activity keeps its numbers: the counts in the order of the fields, then both
	//	// histograms.
	//	func (*Activity) Numbers() []*int64
	//	// Empty reports whether nothing happened: every number is zero.
	//	func (Activity) Empty() bool
	//	// Plus returns a with the numbers of b added.
	//	func (Activity) Plus(b Activity) Activity
	Activity = store.Activity

	// A Histogram counts durations by class. Each class but the last has an upper bound: see Bounds. A duration belongs to the first
	// class whose bound it does not exceed, or to the last class.
	//
	// Its methods:
	//
	//	// Bounds returns the upper bounds of the classes, without one for the last class.
	//	func (Histogram) Bounds() []time.Duration
	//	// Add counts a duration.
	//	func (*Histogram) Add(d time.Duration)
	//	// Total returns how many durations were counted.
	//	func (Histogram) Total() (sum int64)
	//	// Quantile estimates the duration that a share q of the durations do not exceed, with q from 0 to 1: it finds
	//	// the class of that duration and interpolates between the bounds of the class.
	//	func (Histogram) Quantile(q float64) time.Duration
	Histogram = store.Histogram

	// An ActivityFilter says what to add up.
	//
	// Its fields:
	//
	//	Queues []string      // the queue matches one of these: a name, or a prefix followed by *; empty means every queue
	//	Kind   string        // of this kind; empty means every kind
	//	Last   time.Duration // how far back: a minute to MaxActivity
	//	Step   time.Duration // length of the spans; zero means one span
	//	By     ActivityBy    // without a Step: what has a row of its own
	//
	// Its methods:
	//
	//	// From returns the begin of the first span that the filter selects at now.
	//	func (ActivityFilter) From(now time.Time) time.Time
	//	// Granularity returns the length of time at whose multiples the answer begins: the Step, or a minute, or an
	//	// hour if Last is longer than MaxFineActivity.
	//	func (ActivityFilter) Granularity() time.Duration
	//	// Parts returns the rows to read at now: the longest ones that fit, for a store that keeps ActivityRows for
	//	// each of ActivityWidths.
	//	func (ActivityFilter) Parts(now time.Time) []ActivityPart
	//	// Sum returns an empty sum for the filter at now.
	//	func (ActivityFilter) Sum(now time.Time) *ActivitySum
	//	// Check returns an *InvalidError if the filter breaks a limit.
	//	func (ActivityFilter) Check() error
	ActivityFilter = store.ActivityFilter

	// An ActivityBy says what has a row of its own in an answer.
	//
	// Its values:
	//
	//	ByNothing = ""      // one row for each span
	//	ByQueue   = "queue" // one row for each queue
	//	ByKind    = "kind"  // one row for each queue and kind
	ActivityBy = store.ActivityBy

	// An ActivityPage is the answer of Activity. Spans without activity are left out: a chart counts from From in steps of Step.
	//
	// Its fields:
	//
	//	Now   time.Time     // the store's now
	//	From  time.Time     // begin of the first span, even if nothing happened in it
	//	Step  time.Duration // length of the spans; zero if there is one
	//	Spans []Activity    // spans and rows in which something happened, by At, queue and kind
	ActivityPage = store.ActivityPage

	// An ActivityRow is what a call adds to one row of each width.
	//
	// Its fields:
	//
	//	Overall  bool // the row has the sum of all queues and kinds
	//	Activity      // without At
	ActivityRow = store.ActivityRow

	// An ActivityPart selects rows of one width.
	//
	// Its fields:
	//
	//	Overall bool          // the rows of all queues and kinds, or else those of each queue and kind
	//	Width   time.Duration // length of the rows
	//	From    time.Time     // begin of the first row
	//	To      time.Time     // begin of the first row after the part; zero if it has no end
	ActivityPart = store.ActivityPart

	// An ActivitySum adds up activities as a filter asks.
	//
	// Its methods:
	//
	//	// Add adds an activity, unless the filter does not select it.
	//	func (*ActivitySum) Add(a Activity)
	//	// AddRow adds to a row of the answer: one with the same At, queue and kind.
	//	func (*ActivitySum) AddRow(a Activity)
	//	// Page returns the answer.
	//	func (*ActivitySum) Page() ActivityPage
	ActivitySum = store.ActivitySum
)

// The ways to divide the rows of an answer.
const (
	ByNothing = store.ByNothing // one row for each span
	ByQueue   = store.ByQueue   // one row for each queue
	ByKind    = store.ByKind    // one row for each queue and kind
)

// The limits of activity.
const (
	MaxActivity     = store.MaxActivity     // how long activity is kept
	MaxFineActivity = store.MaxFineActivity // how long it is kept by the minute; older activity is kept by the hour
	MaxActivityNum  = store.MaxActivityNum  // each number of an Activity
)

// ActivityWidths are the lengths of time for which a store that adds up rows should keep them. See [ActivityFilter.Parts].
var ActivityWidths = store.ActivityWidths

// ActivityRows returns what the items of an AddActivity add to the rows of each width.
func ActivityRows(items []Activity) []ActivityRow { return store.ActivityRows(items) }

// ActivityKept returns the time at or before which a row of the width can be deleted at now.
func ActivityKept(width time.Duration, now time.Time) time.Time {
	return store.ActivityKept(width, now)
}

// AtMultiple returns the latest multiple of d since the beginning of 1970 in UTC that is not after t. It must be whole seconds.
func AtMultiple(t time.Time, d time.Duration) time.Time { return store.AtMultiple(t, d) }

// CheckActivity returns an [*InvalidError] if a call of AddActivity breaks a limit.
func CheckActivity(items []Activity) error { return store.CheckActivity(items) }
