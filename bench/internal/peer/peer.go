// Package peer defines what a queue must do to be measured.
package peer

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
)

// A Peer is a queue on one kind of store.
type Peer struct {
	Name     string            // of the queue
	Store    string            // one of the constants below
	Version  string            // of the module or package, empty for code in this repository
	Handlers int               // how many run at once by default
	Settings string            // a description, for people who compare
	Keeps    bool              // finished jobs stay in the store
	Node     bool              // an npm package, which must be installed first
	Skips    map[string]string // the scenarios that it cannot run, and why
	Open     func(ctx context.Context, p Place, started func(number int64)) (Queue, error)
}

// The stores.
const (
	Postgres = "postgres"
	SQLite   = "sqlite"
	Memory   = "memory"
	Redis    = "redis"
)

// ID returns the peer's name on the command line and in files.
func (p Peer) ID() string { return p.Name + "-" + p.Store }

// A Place tells a peer where its empty store is.
type Place struct {
	DSN    string // of an empty Postgres database, as key=value
	Folder string // an empty folder
	Redis  string // the address of an empty Redis
	Node   string // the folder of the installed npm packages
}

// A Queue is a running peer. Its jobs are numbered from zero. When a handler begins a job, it passes the number to the function
// that Open was given. Close is called once.
type Queue interface {
	// Enqueue adds jobs and returns when all are stored.
	Enqueue(ctx context.Context, load Load) error
	// Work starts that many concurrent handlers and returns.
	Work(ctx context.Context, handlers int) error
	// Count counts the jobs in the store.
	Count(ctx context.Context) (Counts, error)
	// Close stops the handlers, waits for them, and closes the store.
	Close(ctx context.Context) error
}

// A Load says which jobs to enqueue, and how.
type Load struct {
	First   int64 // the number of the first job
	Jobs    int
	Callers int // concurrent goroutines
	Batch   int // jobs per call
}

// Counts are the numbers of jobs in a store.
type Counts struct {
	Unfinished int64
	Finished   int64 // zero if finished jobs are deleted
}

// A Job is the payload, the same for every peer.
type Job struct {
	Number int64  `json:"number"`
	User   int    `json:"user"`
	Text   string `json:"text"`
}

// NewJob returns the payload with that number.
func NewJob(number int64) Job { return Job{Number: number, User: 12345, Text: "hello there"} }

// Kind returns the kind of job, for peers that ask the payload.
func (Job) Kind() string { return "bench" }

// Spread divides the load among its callers. Each calls add once for every batch.
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
