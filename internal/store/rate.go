package store

import (
	"fmt"
	"slices"
	"time"
)

// A Rate limits how many jobs of a queue are claimed in a span of time. The zero Rate limits nothing.
type Rate struct {
	N   int           // how many jobs may be claimed
	Per time.Duration // in how long
}

// The bounds of a rate.
const (
	MaxRate = 1_000 // N
	MinPer  = 100 * time.Millisecond
	MaxPer  = 24 * time.Hour
)

func (r Rate) check() *InvalidError {
	switch {
	case r == Rate{}:
		return nil
	case r.Per < MinPer || r.Per > MaxPer:
		return refuse("rate.per", fmt.Sprintf("must be %v to %v", MinPer, MaxPer))
	}
	return checkRange("rate.n", r.N, 1, MaxRate)
}

// Room returns how many of limit jobs a claim may take at now, if so many were claimed in the latest Per, the first of them at first. If that is fewer
// than limit, it also returns after how long to look again if the claim takes them all. That is a moment at least, so that whoever looks again finds
// room for some jobs rather than for one.
func (r Rate) Room(limit, claimed int, first, now time.Time) (jobs int, wait time.Duration) {
	if jobs = room(limit, r.N, claimed); jobs < limit {
		wait = max(first.Add(r.Per).Sub(now), min(r.Per/10, MinPer))
	}
	return jobs, wait
}

// A ClaimLog tells when jobs of a queue with a rate were claimed, the earliest first.
type ClaimLog []Claimed

// A Claimed is a number of jobs that were claimed at a time.
type Claimed struct {
	At   time.Time // when
	Jobs int       // how many
}

// Count forgets the claims that do not count any more at now, and returns how many jobs those that count have taken, and when the first of them
// was made, or now if there is none. A claim that was made much later than now, by a clock that was ahead, counts as one that is made now.
func (l *ClaimLog) Count(r Rate, now time.Time) (jobs int, first time.Time) {
	kept, ahead := (*l)[:0], 0
	for _, c := range *l {
		switch {
		case ClaimAhead(c.At, now):
			ahead += c.Jobs
		case c.At.After(now.Add(-r.Per)):
			kept = append(kept, c)
		}
	}
	if ahead > 0 {
		kept = append(kept, Claimed{now, ahead})
		slices.SortStableFunc(kept, func(a, b Claimed) int { return a.At.Compare(b.At) })
	}
	*l = kept
	if len(kept) == 0 {
		return 0, now
	}
	for _, c := range kept {
		jobs += c.Jobs
	}
	return jobs, kept[0].At
}

// Replace takes into account that one rate replaces another one at now.
func (l *ClaimLog) Replace(before, by Rate, now time.Time) {
	if before.N == 0 || by.N == 0 {
		*l = nil
		return
	}
	l.Count(before, now)
}

// Add notes that jobs are claimed at now. Call Count before. No claim is noted earlier than another one before it: that may be of a process whose
// clock is a little ahead, and would not count this one.
func (l *ClaimLog) Add(jobs int, now time.Time) {
	if last := len(*l) - 1; last >= 0 && !(*l)[last].At.Before(now) {
		(*l)[last].Jobs += jobs
		return
	}
	*l = append(*l, Claimed{now, jobs})
}

// ClaimAhead reports whether a claim was made by a clock that was ahead of now.
func ClaimAhead(at, now time.Time) bool { return at.After(now.Add(MaxSetBack)) }
