package store

import (
	"context"
	"fmt"
	"time"
)

// A Finding is something that people should know about a store.
type Finding struct {
	Name   string `json:"name"`   // kind of the finding: a stable name, for scripts
	Detail string `json:"detail"` // what was found
	Advice string `json:"advice"` // what to do about it

	Count    int      `json:"count,omitempty"`    // how many queues, workers or other things it is about; 0 if not known
	Examples []string `json:"examples,omitempty"` // names of some of them
}

// An Examiner examines the database or the file that keeps the jobs. It is for people, and a store need not implement it.
type Examiner interface {
	// Examine returns the problems that it finds, and nothing if all is well.
	Examine(ctx context.Context) ([]Finding, error)
}

// A Warner reports what people must look at although the store works. It is for probes that ask every few seconds.
type Warner interface {
	// Warnings returns the findings of Examine that one small read can detect.
	Warnings(ctx context.Context) ([]Finding, error)
}

// A Repairer corrects times that were written while a clock was ahead. It is for people, and a store need not implement it.
type Repairer interface {
	// Repair corrects each waiting job for which the time at which it was added, given back or failed was written as later than
	// now plus 5 s. It moves this time to now, and the due time back by as much, and returns the number of these jobs. If it
	// fails, it may have corrected some of them. It is safe to repeat a Repair.
	Repair(ctx context.Context) (moved int, err error)
}

// WrittenAhead returns the finding that a Repairer repairs.
func WrittenAhead(jobs int, most time.Duration) Finding {
	return Finding{
		Name:   "written_ahead",
		Detail: fmt.Sprintf("%d waiting jobs were written by a clock that was ahead, by up to %v, and are due so much too late", jobs, most.Round(time.Second)),
		Advice: "see that the clock is right, then run doctor --repair",
	}
}

// A Schema says how far the database or the file that keeps the jobs is migrated.
type Schema struct {
	Version int // version of the store; 0 if it has no schema yet
	Newest  int // newest version that this program knows
	Least   int // least compatible version: only programs that know this version can work with the store; 0 if it has no schema yet
}
