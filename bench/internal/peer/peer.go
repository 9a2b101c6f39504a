// Package peer defines what a queue must do to be measured.
package peer

import (
	"context"
	"fmt"
	"math/rand/v2"

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
	Like     string            // the name of the peer that this one is with other settings, and that it is chosen with
	Plays    string            // the only scenario or group that it runs, if not all
	Open     func(ctx context.Context, p Place, handle Handler) (Queue, error)
}

// A Handler does the work of a job. If it returns an error, the queue must retry the job.
type Handler func(ctx context.Context, job Job) error

// Started begins a job that has only a number.
func (h Handler) Started(number int64) {
	_ = h(context.Background(), Job{Number: number}) // it does nothing that could fail
}

// The stores.
const (
	Postgres = "postgres"
	SQLite   = "sqlite"
	Memory   = "memory"
	Redis    = "redis"

	Replicated = "postgres with a synchronous standby"
	Etcd       = "etcd"
)

// ID returns the peer's name on the command line and in files.
func (p Peer) ID() string { return p.Name + "-" + p.Store }

// A Place tells a peer where its empty store is.
type Place struct {
	DSN    string // of an empty Postgres database, as key=value
	Admin  string // of another database on the same server
	Folder string // an empty folder
	Redis  string // the address of an empty Redis
	Node   string // the folder of the installed npm packages
	Etcd   string // the URL of an empty store on etcd

	Servers []int // processes that serve the store too, beside the server of the database
}

// A Queue is a running peer. Its jobs are numbered from zero. It passes each job to the handler that Open was given. Close is
// called once.
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
	Callers int  // concurrent goroutines
	Batch   int  // jobs per call
	Tx      bool // each job in a transaction of the caller's own; only with batches of one
	Shape   Shape
}

// A Shape says what jobs are like. The zero value means a small payload and an empty handler.
type Shape struct {
	Text  int  `json:"text"`  // so many bytes of text in the payload, instead of a few
	Slow  bool `json:"slow"`  // the handlers take 5 to 800 ms
	Fails int  `json:"fails"` // one job in so many fails once
}

// Counts are the numbers of jobs in a store.
type Counts struct {
	Unfinished int64
	Finished   int64 // zero if finished jobs are deleted
}

// A Job is the payload, the same for every peer. It tells the handler what to do.
type Job struct {
	Number int64  `json:"number"`
	User   int    `json:"user"`
	Text   string `json:"text"`
	Millis int    `json:"millis,omitempty"` // how long the handler takes
	Fails  bool   `json:"fails,omitempty"`  // the first attempt fails
}

// letters is text that stores cannot compress, as long as several large payloads.
var letters = func() string {
	chance := rand.New(rand.NewPCG(1, 2))
	text := make([]byte, 1<<16)
	for i := range text {
		text[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 -"[chance.IntN(64)]
	}
	return string(text)
}()

// Job returns the payload with that number.
func (s Shape) Job(number int64) Job {
	job := Job{Number: number, User: 12345, Text: "hello there"}
	if s.Text > 0 {
		from := int(number*61) % (len(letters) - s.Text)
		job.Text = letters[from : from+s.Text]
	}
	if s.Slow {
		job.Millis = 5 + int(number*7919%796) // evenly spread, and the same for every peer
	}
	job.Fails = s.Fails > 0 && number%int64(s.Fails) == 0
	return job
}

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
