package store

import (
	"context"
	"fmt"
	"time"
)

// A Finding is something about a store that people should know.
type Finding struct {
	Name   string // what sort of finding it is: lasts, for scripts
	Detail string // what was found
	Advice string // what to do about it
}

// An Examiner looks at what keeps the jobs: the database, the file. It is for people, and no part of what stores must do.
type Examiner interface {
	// Examine returns what it finds wrong, and nothing where all is well.
	Examine(ctx context.Context) ([]Finding, error)
}

// A Warner says what people must look at although the store works, for probes that ask every few seconds.
type Warner interface {
	// Warnings returns the findings of Examine that one small read can tell.
	Warnings(ctx context.Context) ([]Finding, error)
}

// A Repairer brings back what a clock has written that was ahead. It is for people, and no part of what stores must do.
type Repairer interface {
	// Repair looks at the jobs that wait: of which it was written later than now plus 5 s that they were added, given back or
	// failed. It moves that to now, and when they are due by as much, and returns how many there were. Where it fails, some may
	// have been moved. To repeat it is safe.
	Repair(ctx context.Context) (moved int, err error)
}

// WrittenAhead is the finding that a Repairer repairs.
func WrittenAhead(jobs int, most time.Duration) Finding {
	return Finding{
		Name:   "written_ahead",
		Detail: fmt.Sprintf("%d waiting jobs were written by a clock that was ahead, by up to %v, and are due so much too late", jobs, most.Round(time.Second)),
		Advice: "see that the clock is right, then run doctor --repair",
	}
}

// A Schema is how far what keeps the jobs is migrated.
type Schema struct {
	Version int // of the store; 0 where there is none yet
	Newest  int // that this program knows
}
