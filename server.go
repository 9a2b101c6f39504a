package jq

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/server"
)

// A Server claims jobs and runs their handlers. Any number of servers, in any number of processes, may work on one store.
//
// It keeps the lease of each job that it holds alive by heartbeats, writes down how runs ended, recovers the jobs of servers that
// died, deletes what has been finished for long enough, and lists itself among the workers. It works once: to go on after
// Stop, make another one.
type Server struct{ inner *server.Server }

// ServerOptions are what can be chosen. The zero value of each field means its default, which stands beside it.
type ServerOptions struct {
	// Name is shown among the workers, and with the jobs that this server claims. Default: host, process id and a random part.
	Name string
	// Queues are those to work on, 1,000 at most. Default: the queue "default".
	Queues map[string]QueueOptions

	// Slots is how many handlers run at once. Default: 10.
	Slots int
	// Buffer is how many jobs are claimed ahead of free slots. Default: none. With many short jobs it saves waiting for the
	// store; with long ones it keeps jobs from other servers that could run them.
	Buffer int
	// RetryShare is the part of all claims that goes to retries while fresh jobs wait. Default: 0.2. Negative: none.
	RetryShare float64
	// Poll is the longest pause between two looks into a queue that was found empty. Default: 1 second. Stores that tell of
	// new jobs are looked at right then.
	Poll time.Duration

	// Lease is for how long a job is ours without a heartbeat: after so long, the jobs of a dead process are recovered.
	// Default: 30 seconds.
	Lease time.Duration
	// Beat is the time between heartbeats. Default: a third of the lease.
	Beat time.Duration

	// Timeout is how long a run may take, for jobs that do not say so themselves. Default: 15 minutes.
	Timeout time.Duration
	// AbandonAfter is for how long a handler is waited for that was told to stop. Then its slot is given to another job.
	// Default: 10 seconds.
	AbandonAfter time.Duration
	// MaxAbandoned is how many slots are replaced like that. From then on Ready says that the process should be restarted.
	// Default: as many as Slots. Negative: none.
	MaxAbandoned int
	// UnknownFor is for how long jobs of a kind without a handler are left to other servers before they fail. Default: 1 hour.
	UnknownFor time.Duration

	// CommitSize is how many ended runs are written without waiting for more. Default: 500.
	CommitSize int
	// CommitAfter is for how long an ended run waits for others, while there are others. Default: 5 milliseconds.
	CommitAfter time.Duration
	// MaxUncommitted is how many ended runs may wait to be written before nothing more is claimed. Default: twice Slots and
	// Buffer, and 1000.
	MaxUncommitted int

	// RecoverEvery is the time between looks for expired leases. Default: 10 seconds. Negative: never, which leaves the
	// jobs of dead processes to other servers.
	RecoverEvery time.Duration
	// RecoverGrace leaves leases alone for so long after they expired. Default: none.
	RecoverGrace time.Duration
	// RecoverLimit is how many are recovered by one call; a full one is followed by the next. Default: 100.
	RecoverLimit int

	// RetainEvery is the time between deletions of finished jobs. For how long they are kept is the policy of their queue in
	// the store, which all servers go by: set it by [Client.SetPolicy]. Default: 1 minute. Negative: never, which leaves
	// deletion to other servers.
	RetainEvery time.Duration

	// DrainFor is how long Stop waits for handlers before it tells them to stop. Default: 30 seconds.
	DrainFor time.Duration

	// Clock moves the server's timers. Default: the clock of the process. The time that counts for jobs is the store's.
	Clock clock.Clock
	// Logger is where the server says what people should know. Default: slog.Default().
	Logger *slog.Logger
	// Observer is told what the server does: for metrics.
	Observer Observer
}

// QueueOptions say how much of a server one queue gets.
type QueueOptions = server.QueueOptions

// An Observer is told what a server does: for metrics. Its methods are called often, by many goroutines, and must return at
// once. The first panic of one is logged, and all are ignored. Embed [Unobserved] to implement some of them only.
type Observer = interface {
	// Claimed is told of each claim that found something.
	Claimed(queue string, jobs int)
	// Started is told of each handler that begins, and how long its job was due before, by the store's clock. The wait of a
	// retry is not known and negative.
	Started(job Job, waited time.Duration)
	// Ended is told of each end of a run that the store has accepted, the phase of the job after it, and how long the
	// handler ran.
	Ended(job Job, ending Ending, phase State, ran time.Duration)
	// Recovered is told of the expired leases that were ended.
	Recovered(leases []Recovered)
	// StaleWrite is told of each write that was refused because its lease was lost: ack, nack, extend, save or confirm.
	StaleWrite(op string)
	// BeatFailed is told of each heartbeat that did not reach the store.
	BeatFailed()
}

// Unobserved ignores everything.
type Unobserved = server.Unobserved

// Stats is what a server holds at one moment.
type Stats = server.Stats

// An OptionError says which of the ServerOptions can not be, and why.
type OptionError = server.OptionError

// NewServer returns a server that is not started yet. It does not call the store. Options may be nil; what can not be is an
// [OptionError].
func NewServer(s Store, handlers *Handlers, options *ServerOptions) (*Server, error) {
	switch {
	case s == nil:
		return nil, errors.New("jq: a server needs a store: open one first")
	case options == nil:
		options = &ServerOptions{}
	}
	if handlers == nil {
		handlers = &Handlers{}
	}
	if keeper := options.Queues != nil && len(options.Queues) == 0; handlers.empty() && !keeper {
		return nil, errors.New("jq: a server without handlers would run nothing: register some first")
	}
	inner, err := server.New(s, handlers.seal(), server.Options(*options))
	if err != nil {
		return nil, err
	}
	return &Server{inner}, nil
}

// Run starts the server, works until the context ends, and stops it as [Server.Stop] does. It returns as well when the server
// has stopped otherwise: by Stop, or because its store was closed. Its error is then that of Stop.
//
//	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
//	defer stop()
//	err := srv.Run(ctx)
func (s *Server) Run(ctx context.Context) error { return s.inner.Run(ctx) }

// Start begins to work, and returns at once: a store that is not there yet is waited for, see [Server.Ready]. The values of
// the context reach the handlers; its end stops nothing.
func (s *Server) Start(ctx context.Context) error { return s.inner.Start(ctx) }

// Stop ends the server. It claims nothing more, gives back what has not begun, and lets handlers finish for DrainFor, or until
// the context ends; then their contexts are cancelled, with [ErrDrained] as the cause. From then on a handler that returns nil
// has succeeded, one that returns the context's error gives its job back, and one that returns another error has failed.
//
// Stop returns when everything is written, or can not be: the error says so, and those jobs run again when their leases have
// expired. To stop twice, or before the start, is fine.
//
// The store has to outlive the server: close it afterwards. A server whose store is closed stops by itself, in a hurry, and the
// error of Stop and Run is ErrClosed.
func (s *Server) Stop(ctx context.Context) error { return s.inner.Stop(ctx) }

// Ready is nil while the server works, and says otherwise why it does not: for a readiness probe.
func (s *Server) Ready() error { return s.inner.Ready() }

// Name is the name under which the server claims.
func (s *Server) Name() string { return s.inner.Name() }

// Stats is what the server holds now.
func (s *Server) Stats() Stats { return s.inner.Stats() }
