package store

import (
	"cmp"
	"slices"
	"time"
)

// An Activity is what happened to the jobs of one queue and kind within a span of time.
type Activity struct {
	At    time.Time `json:"at,omitzero"`     // begin of the span, in answers only
	Queue string    `json:"queue,omitempty"` // empty if it is not known, or if the answer adds up all queues
	Kind  string    `json:"kind,omitempty"`  // empty if it is not known, or if the answer adds up all kinds

	Succeeded int64 `json:"succeeded,omitempty"` // runs that succeeded
	Retried   int64 `json:"retried,omitempty"`   // runs that failed and left a retry
	Dead      int64 `json:"dead,omitempty"`      // jobs that failed for good, also by a lost lease
	Snoozed   int64 `json:"snoozed,omitempty"`   // runs that ended by Snooze
	Recovered int64 `json:"recovered,omitempty"` // leases that expired and were recovered
	Expired   int64 `json:"expired,omitempty"`   // jobs that were cancelled because they had expired
	Stale     int64 `json:"stale,omitempty"`     // writes that were refused because their lease was lost

	Waited Histogram `json:"waited,omitzero"` // how long jobs were due before they ran; retries are not counted
	Ran    Histogram `json:"ran,omitzero"`    // how long runs took
}

// Numbers returns where the activity keeps its numbers: the counts in the order of the fields, then both histograms.
func (a *Activity) Numbers() []*int64 {
	all := make([]*int64, 0, 7+2*len(a.Ran))
	all = append(all, &a.Succeeded, &a.Retried, &a.Dead, &a.Snoozed, &a.Recovered, &a.Expired, &a.Stale)
	for _, h := range []*Histogram{&a.Waited, &a.Ran} {
		for i := range h {
			all = append(all, &h[i])
		}
	}
	return all
}

// Empty reports whether nothing happened: every number is zero.
func (a Activity) Empty() bool { return a == Activity{At: a.At, Queue: a.Queue, Kind: a.Kind} }

// Plus returns a with the numbers of b added.
func (a Activity) Plus(b Activity) Activity {
	more := b.Numbers()
	for i, n := range a.Numbers() {
		*n += *more[i]
	}
	return a
}

// A Histogram counts durations by class. Each class but the last has an upper bound: see Bounds. A duration belongs to the first
// class whose bound it does not exceed, or to the last class.
type Histogram [len(histogramBounds) + 1]int64

var histogramBounds = [...]time.Duration{
	time.Millisecond, 3 * time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond,
	time.Second, 3 * time.Second, 10 * time.Second, 30 * time.Second,
	time.Minute, 3 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour,
}

// Bounds returns the upper bounds of the classes, without one for the last class.
func (h Histogram) Bounds() []time.Duration { return slices.Clone(histogramBounds[:]) }

// Add counts a duration. A negative one counts as zero.
func (h *Histogram) Add(d time.Duration) {
	i := 0
	for i < len(histogramBounds) && d > histogramBounds[i] {
		i++
	}
	h[i]++
}

// Total returns how many durations were counted.
func (h Histogram) Total() (sum int64) {
	for _, n := range h {
		sum += n
	}
	return sum
}

// Quantile estimates the duration that a share q of the durations do not exceed, with q from 0 to 1: it finds the class of that
// duration and interpolates between the bounds of the class. For the last class it returns an hour, the bound below it. It returns
// 0 if nothing was counted.
func (h Histogram) Quantile(q float64) time.Duration {
	rank := max(0, min(q, 1)) * float64(h.Total())
	var below, low float64
	for i, bound := range histogramBounds {
		n := float64(h[i])
		if n > 0 && below+n >= rank {
			return time.Duration(low + (float64(bound)-low)*(rank-below)/n)
		}
		below, low = below+n, float64(bound)
	}
	if h.Total() == 0 {
		return 0
	}
	return time.Duration(low)
}

// An ActivityFilter says what to add up.
type ActivityFilter struct {
	Queues []string      // the queue matches one of these: a name, or a prefix followed by *; empty means every queue
	Kind   string        // of this kind; empty means every kind
	Last   time.Duration // how far back: a minute to MaxActivity
	Step   time.Duration // length of the spans; zero means one span
	By     ActivityBy    // without a Step: what has a row of its own
}

// An ActivityBy says what has a row of its own in an answer.
type ActivityBy string

// The ways to divide the rows of an answer.
const (
	ByNothing ActivityBy = ""      // one row for each span
	ByQueue   ActivityBy = "queue" // one row for each queue
	ByKind    ActivityBy = "kind"  // one row for each queue and kind
)

// An ActivityPage is the answer of Activity. Spans without activity are left out: a chart counts from From in steps of Step.
type ActivityPage struct {
	Now   time.Time     // the store's now
	From  time.Time     // begin of the first span, even if nothing happened in it
	Step  time.Duration // length of the spans; zero if there is one
	Spans []Activity    // spans and rows in which something happened, by At, queue and kind
}

// The limits of activity.
const (
	MaxActivity     = 7 * 24 * time.Hour // how long it is kept
	MaxFineActivity = 24 * time.Hour     // how long it is kept minute by minute; older activity is kept hour by hour
	MaxActivityNum  = 1_000_000_000      // for each number of an item
)

// From returns the begin of the first span that the filter selects at now.
func (f ActivityFilter) From(now time.Time) time.Time {
	return AtMultiple(now.Add(-f.Last.Truncate(Resolution)), f.Granularity()).Add(f.Granularity())
}

// Granularity returns the length of time at whose multiples the answer begins: the Step, or a minute, or an hour if Last is longer
// than MaxFineActivity.
func (f ActivityFilter) Granularity() time.Duration {
	switch {
	case f.Step > 0:
		return f.Step
	case f.Last > MaxFineActivity:
		return time.Hour
	default:
		return time.Minute
	}
}

// AtMultiple returns the latest multiple of d since the beginning of 1970 in UTC that is not after t. It must be whole seconds.
func AtMultiple(t time.Time, d time.Duration) time.Time {
	length := int64(d / time.Second)
	at := t.Unix() - t.Unix()%length
	if at > t.Unix() {
		at -= length
	}
	return time.Unix(at, 0).UTC()
}

// ActivityWidths are the lengths of time for which a store that adds up rows should keep them: AddActivity adds to one row of each
// length. Then an answer for a long time reads few rows: see Parts.
var ActivityWidths = [...]time.Duration{time.Minute, 5 * time.Minute, time.Hour}

// ActivityKept returns the time at or before which a row of the width can be deleted at now. It leaves an hour more than the
// longest answer needs, because stores of other processes may be a little behind.
func ActivityKept(width time.Duration, now time.Time) time.Time {
	if width < time.Hour {
		return now.Add(-MaxFineActivity - time.Hour)
	}
	return now.Add(-MaxActivity - time.Hour)
}

// An ActivityRow is what a call adds to one row of each width.
type ActivityRow struct {
	Overall  bool // the row has the sum of all queues and kinds
	Activity      // without At
}

// ActivityRows returns what the items add to the rows that a store keeps: one for each queue and kind, in bytewise order, and one
// for all of them. It leaves out rows to which nothing is added.
func ActivityRows(items []Activity) []ActivityRow {
	sums := map[activityKey]*ActivityRow{}
	overall := ActivityRow{Overall: true}
	for _, one := range items {
		if one.Empty() {
			continue
		}
		key := activityKey{0, one.Queue, one.Kind}
		if sums[key] == nil {
			sums[key] = &ActivityRow{Activity: Activity{Queue: one.Queue, Kind: one.Kind}}
		}
		sums[key].Activity = sums[key].Plus(one)
		overall.Activity = overall.Plus(one)
	}
	if len(sums) == 0 {
		return nil
	}
	rows := make([]ActivityRow, 0, len(sums)+1)
	for _, sum := range sums {
		rows = append(rows, *sum)
	}
	slices.SortFunc(rows, func(a, b ActivityRow) int { return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind)) })
	return append(rows, overall)
}

// An ActivityPart selects rows of one width.
type ActivityPart struct {
	Overall bool          // the rows of all queues and kinds, or else those of each queue and kind
	Width   time.Duration // length of the rows
	From    time.Time     // begin of the first row
	To      time.Time     // begin of the first row after the part; zero if it has no end
}

// Parts returns the rows to read at now: the longest ones that fit, for a store that keeps ActivityRows for each of ActivityWidths.
func (f ActivityFilter) Parts(now time.Time) []ActivityPart {
	from, last := f.From(now), len(ActivityWidths)-1
	overall := f.By == ByNothing && len(f.Queues) == 0 && f.Kind == ""
	if f.Step > 0 {
		for last > 0 && f.Step%ActivityWidths[last] != 0 {
			last--
		}
		return []ActivityPart{{Overall: overall, Width: ActivityWidths[last], From: from}}
	}
	var parts []ActivityPart
	for i, width := range ActivityWidths[:last] {
		longer := ActivityWidths[i+1]
		if to := AtMultiple(from.Add(longer-1), longer); to.After(from) {
			parts, from = append(parts, ActivityPart{overall, width, from, to}), to
		}
	}
	return append(parts, ActivityPart{Overall: overall, Width: ActivityWidths[last], From: from})
}

// An ActivitySum adds up activities as a filter asks.
type ActivitySum struct {
	filter ActivityFilter
	page   ActivityPage
	rows   map[activityKey]*Activity
}

type activityKey struct {
	at          int64
	queue, kind string
}

// Sum returns an empty sum for the filter at now.
func (f ActivityFilter) Sum(now time.Time) *ActivitySum {
	page := ActivityPage{Now: now, From: f.From(now), Step: f.Step}
	return &ActivitySum{filter: f, page: page, rows: map[activityKey]*Activity{}}
}

// Add adds an activity, unless the filter does not select it. Its At must be set, to the begin of the row that a store keeps.
func (s *ActivitySum) Add(a Activity) {
	f := s.filter
	if a.Empty() || a.At.Before(s.page.From) || f.Kind != "" && f.Kind != a.Kind || !QueueMatches(f.Queues, a.Queue) {
		return
	}
	if f.Step > 0 {
		a.At = AtMultiple(a.At, f.Step)
	} else {
		a.At = s.page.From
	}
	if f.By != ByKind {
		a.Kind = ""
	}
	if f.By == ByNothing {
		a.Queue = ""
	}
	s.AddRow(a)
}

// AddRow adds to a row of the answer: one with the same At, queue and kind. It is for a store whose queries add up by themselves.
func (s *ActivitySum) AddRow(a Activity) {
	key := activityKey{a.At.Unix(), a.Queue, a.Kind}
	if known := s.rows[key]; known != nil {
		*known = known.Plus(a)
		return
	}
	s.rows[key] = &a
}

// Page returns the answer.
func (s *ActivitySum) Page() ActivityPage {
	page := s.page
	for _, row := range s.rows {
		page.Spans = append(page.Spans, *row)
	}
	slices.SortFunc(page.Spans, func(a, b Activity) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind))
	})
	return page
}

// CheckActivity returns an [*InvalidError] if a call of AddActivity breaks a limit.
func CheckActivity(items []Activity) error {
	if err := checkItems("activity", len(items)); err != nil {
		return err
	}
	for i := range items {
		if err := items[i].check(); err != nil {
			err.Item = i
			return err
		}
	}
	return nil
}

func (a *Activity) check() *InvalidError {
	if err := firstError(checkName("queue", a.Queue, optional), checkName("kind", a.Kind, optional)); err != nil {
		return err
	}
	for _, n := range a.Numbers() {
		if *n < 0 || *n > MaxActivityNum {
			return checkRange("activity", int(*n), 0, MaxActivityNum)
		}
	}
	return nil
}

// Check returns an [*InvalidError] if the filter breaks a limit.
func (f ActivityFilter) Check() error {
	if err := (Filter{Queues: f.Queues, Kind: f.Kind}).Check(); err != nil {
		return err
	}
	switch {
	case f.Last < time.Minute || f.Last > MaxActivity:
		return refuse("last", "must be 1m to 168h")
	case f.Step < 0 || f.Step%time.Minute != 0 || f.Step > f.Last:
		return refuse("step", "must be whole minutes, and at most last")
	case f.Last > MaxFineActivity && f.Step%time.Hour != 0:
		return refuse("step", "must be whole hours if last is longer than 24h")
	case f.By != ByNothing && f.By != ByQueue && f.By != ByKind:
		return refuse("by", "must be queue or kind")
	case f.By != ByNothing && f.Step > 0:
		return refuse("by", "and step exclude each other")
	}
	return nil
}
