// Package peer says what a queue has to do to be measured beside others.
package peer

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
)

// A Peer is a queue on one kind of store.
type Peer struct {
	Name     string            // of the queue
	Store    string            // one of the stores below
	Version  string            // of the module or package, empty for what is in this repository
	Handlers int               // how many run at once, where nobody says otherwise
	Settings string            // in words, for people who compare
	Keeps    bool              // finished jobs stay in the store
	Node     bool              // it is a package of npm, which is installed first
	Skips    map[string]string // scenarios that it can not play, and why
	Open     func(ctx context.Context, p Place, started func(number int64)) (Queue, error)
}

// The stores.
const (
	Postgres = "postgres"
	SQLite   = "sqlite"
	Memory   = "memory"
	Redis    = "redis"
)

// ID is how a peer is named on the command line and in files.
func (p Peer) ID() string { return p.Name + "-" + p.Store }

// A Place is where a peer finds an empty store.
type Place struct {
	DSN    string // of an empty Postgres database, as key=value
	Folder string // an empty folder
	Redis  string // the address of an empty Redis
	Node   string // a folder in which the packages of npm are installed
}

// A Queue is a peer at work. Its jobs are numbered from zero, and its handlers tell the function that was given to Open which
// one they begin with. What Open has returned is closed once.
type Queue interface {
	// Enqueue adds jobs, and returns when all are stored.
	Enqueue(ctx context.Context, load Load) error
	// Work begins to run so many handlers at once, and returns.
	Work(ctx context.Context, handlers int) error
	// Count looks into the store.
	Count(ctx context.Context) (Counts, error)
	// Close ends the work, waits for it, and lets go of the store.
	Close(ctx context.Context) error
}

// A Load is what is to be enqueued.
type Load struct {
	First   int64 // the number of the first job
	Jobs    int
	Callers int // goroutines that enqueue at once
	Batch   int // jobs in one call
}

// Counts are the jobs that a store has.
type Counts struct {
	Unfinished int64
	Finished   int64 // zero where finished jobs are deleted
}

// A Job is the payload, the same for every peer.
type Job struct {
	Number int64  `json:"number"`
	User   int    `json:"user"`
	Text   string `json:"text"`
}

// NewJob is the payload with that number.
func NewJob(number int64) Job { return Job{Number: number, User: 12345, Text: "hello there"} }

// Kind is the kind of job for those peers that ask the payload.
func (Job) Kind() string { return "bench" }

// Spread divides the load among its callers, and these call add batch by batch.
func (l Load) Spread(ctx context.Context, add func(ctx context.Context, first int64, jobs int) error) error {
	callers, ctx := errgroup.WithContext(ctx)
	each, more := l.Jobs/l.Callers, l.Jobs%l.Callers
	first := l.First
	for i := range l.Callers {
		from, share := first, each
		if i < more {
			share++
		}
		first += int64(share)
		callers.Go(func() error {
			for share > 0 {
				n := min(share, l.Batch)
				if err := add(ctx, from, n); err != nil {
					return fmt.Errorf("enqueueing %d jobs from number %d: %w", n, from, err)
				}
				from, share = from+int64(n), share-n
			}
			return nil
		})
	}
	return callers.Wait()
}
