package jq

import (
	"context"
	"errors"

	"github.com/seed-ed332417/jq/internal/server"
)

// A Server claims jobs and runs their handlers. Any number of servers, in any number of processes, may work on one store.
//
// It extends the leases of its jobs by heartbeats, writes how runs ended, recovers the jobs of servers that died, deletes finished jobs
// that their policy no longer keeps, and registers itself as a worker. You can start it once: to continue after Stop, make another one.
type Server struct{ inner *server.Server }

// ServerOptions configures a [Server]. A zero field means the default that its comment names.
//
// Its fields:
//
//	// Name identifies this server in the list of workers, and in the jobs that it claims. Default: the host name, the process id and a
//	// random part.
//	Name string
//	// Queues names the queues that this server claims from, at most 1,000. An empty map that is not nil means none: such a server only
//	// recovers expired leases and deletes old jobs. Default: the queue "default".
//	Queues map[string]QueueOptions
//	// Slots is how many handlers run at the same time. Default: 10.
//	Slots int
//	// Timeout is how long a handler may run, for jobs that set no timeout themselves. Default: 15 minutes.
//	Timeout time.Duration
//	// UnknownKindTimeout is how long this server leaves a job of a kind for which it has no handler to other servers, before the job
//	// fails. Default: 1 hour.
//	UnknownKindTimeout time.Duration
//
//	Claim     ClaimOptions     // how the server looks for jobs
//	Lease     LeaseOptions     // how long a claimed job belongs to this server
//	Abandon   AbandonOptions   // what happens to handlers that do not return
//	Commit    CommitOptions    // how the server writes the results of handlers
//	Recovery  RecoveryOptions  // how the server takes over the jobs of servers that died
//	Retention RetentionOptions // how often the server deletes finished jobs
//	Schedules ScheduleOptions  // how often the server looks for schedules that are due
//	Shutdown  ShutdownOptions  // how the server stops
//
//	// Clock drives the timers of the server. Due times and leases follow the clock of the store. Default: the system clock.
//	Clock clock.Clock
//	// Logger receives the server's log. Default: slog.Default().
//	Logger *slog.Logger
//	// Observer receives events, for metrics. Default: none.
//	Observer Observer
type ServerOptions = server.Options

// QueueOptions configures how much of a server one queue gets.
//
// Its fields:
//
//	// Weight is the queue's share of the claims while several queues have jobs, at most 1,000. Default: 1.
//	Weight int
//	// Slots is how many jobs of this queue the server holds at the same time, running or buffered. Default: no limit of its own.
//	Slots int
//	// Policy is what this program declares the queue's policy to be, with its Owner and the version in Declared. The server declares it before it
//	// claims: see Client.DeclarePolicy. If the store refuses it, the server stops. Default: the policy stays as it is.
//	Policy *Policy
type QueueOptions = server.QueueOptions

// ClaimOptions configures how a server looks for jobs.
//
// Its fields:
//
//	// Buffer is how many jobs the server claims ahead of free slots. With many short jobs, a buffer saves waiting for the store. With
//	// long jobs, it keeps jobs from other servers that could run them. Default: none.
//	Buffer int
//	// PollInterval is the longest pause between two looks into a queue that was empty, or whose jobs the store announces. If it announces
//	// new jobs, the server looks at once, or after Interval. Default: 1 second.
//	PollInterval time.Duration
//	// Interval is the least time between two claims from a queue for which jobs were announced, when the first of them has taken all that
//	// was due. Jobs that come one by one are then claimed together, which costs the store less, and wait longer. Default: none, so the
//	// server claims at once.
//	Interval time.Duration
//	// RetryShare is the part of all claims that goes to retries while fresh jobs wait, at most 1. Negative: none. Default: 0.2.
//	RetryShare float64
type ClaimOptions = server.ClaimOptions

// LeaseOptions configures the leases by which a server holds jobs.
//
// Its fields:
//
//	// Duration is how long a lease lasts without a heartbeat. When a server dies, its jobs are recovered after this time. Default: 30
//	// seconds.
//	Duration time.Duration
//	// Heartbeat is the time between two heartbeats, each of which extends all leases of the server. It must be at most half of Duration.
//	// Default: a third of Duration.
//	Heartbeat time.Duration
type LeaseOptions = server.LeaseOptions

// AbandonOptions configures what a server does about handlers that do not return.
//
// Its fields:
//
//	// Timeout is how long to wait for a handler after its context is cancelled. Then the server abandons the handler and reuses its
//	// slot. Default: 10 seconds.
//	Timeout time.Duration
//	// MaxHandlers is how many abandoned handlers may run beside the slots. Beyond that, an abandoned handler keeps its slot, and Ready
//	// reports that the process should be restarted. Negative: none. Default: as many as Slots.
//	MaxHandlers int
type AbandonOptions = server.AbandonOptions

// CommitOptions configures how a server writes the results of handlers.
//
// Its fields:
//
//	// Size is how many results the server collects before it writes them at once, at most 1,000. Default: 500.
//	Size int
//	// MaxDelay is how long a result waits for others, as long as other handlers run. Default: 5 milliseconds.
//	MaxDelay time.Duration
//	// Interval is the least time between two writes, unless Size or MaxUncommitted results have gathered or the server stops. The results of
//	// jobs that end one by one are then written together, which costs the store less. Retries and callers of Client.Wait wait for the write,
//	// and if the process dies meanwhile, more of these jobs run again. Default: none.
//	Interval time.Duration
//	// MaxUncommitted is how many results may wait to be written. At this number the server claims no more jobs. Default: 1,000, and
//	// twice the sum of Slots and Buffer.
//	MaxUncommitted int
type CommitOptions = server.CommitOptions

// RecoveryOptions configures how a server recovers the jobs of servers that died.
//
// Its fields:
//
//	// Interval is the time between two searches for expired leases. Negative: never, which leaves the jobs of dead servers to other
//	// servers. Default: 10 seconds.
//	Interval time.Duration
//	// Grace is how long a lease must have been expired before the server recovers it. Default: none.
//	Grace time.Duration
//	// Limit is how many leases one call of the store recovers, at most 1,000. After a full call the server makes the next one at once.
//	// Default: 100.
//	Limit int
type RecoveryOptions = server.RecoveryOptions

// RetentionOptions configures when a server deletes finished jobs. How long they are kept is the policy of their queue: see
// [Client.SetPolicy].
//
// Its fields:
//
//	// Interval is the time between two deletions. Negative: never, which leaves deletion to other servers. Default: 1 minute.
//	Interval time.Duration
type RetentionOptions = server.RetentionOptions

// ScheduleOptions configures when a server enqueues the jobs of schedules.
//
// Its fields:
//
//	// Interval is the time between two searches for schedules that are due. While none is due soon, the server searches five times
//	// less often. Negative: never, which leaves schedules to other servers. Default: 1 second.
//	Interval time.Duration
type ScheduleOptions = server.ScheduleOptions

// ShutdownOptions configures how a server stops.
//
// Its fields:
//
//	// DrainTimeout is how long Stop waits for handlers before it cancels their contexts. Default: 30 seconds.
//	DrainTimeout time.Duration
type ShutdownOptions = server.ShutdownOptions

// An Observer receives the events of a server, for metrics. The server calls its methods often and from many goroutines, so they must
// return at once. If one panics, the server logs the first panic and ignores all of them. Embed [NopObserver] to implement only some of the
// methods.
//
// Its methods:
//
//	// Claimed reports a claim that returned jobs.
//	Claimed(queue string, jobs int)
//	// Started reports that a handler begins, and how long its job had been due, by the store's clock. For a retry, waited is negative:
//	// the store does not keep when it was due.
//	Started(job Job, waited time.Duration)
//	// Ended reports the end of a run that the store has accepted, the phase of the job after it, and how long the handler ran.
//	Ended(job Job, ending Ending, phase State, ran time.Duration)
//	// Recovered reports expired leases that the server ended.
//	Recovered(leases []Recovered)
//	// Settled reports expired jobs that the server cancelled.
//	Settled(jobs []Settled)
//	// StaleWrite reports a write that the store refused because the lease was lost: ack, nack, extend, save or confirm.
//	StaleWrite(op string)
//	// BeatFailed reports a heartbeat that did not reach the store.
//	BeatFailed()
type Observer = server.Observer

// NopObserver is an [Observer] that does nothing: embed it to implement some methods only.
//
// Its methods:
//
//	// Claimed does nothing.
//	func (NopObserver) Claimed(string, int)
//	// Started does nothing.
//	func (NopObserver) Started(Job, time.Duration)
//	// Ended does nothing.
//	func (NopObserver) Ended(Job, Ending, State, time.Duration)
//	// Recovered does nothing.
//	func (NopObserver) Recovered([]Recovered)
//	// Settled does nothing.
//	func (NopObserver) Settled([]Settled)
//	// StaleWrite does nothing.
//	func (NopObserver) StaleWrite(string)
//	// BeatFailed does nothing.
//	func (NopObserver) BeatFailed()
type NopObserver = server.NopObserver

// Stats is what a server holds at one moment.
//
// Its fields:
//
//	Slots       int // how many handlers can run at the same time
//	Running     int // occupied slots, including those that abandoned handlers still occupy
//	Buffered    int // claimed, and not yet started
//	Uncommitted int // ended, and not yet written
//	Abandoned   int // abandoned handlers whose slots were reused
type Stats = server.Stats

// An OptionError names an invalid field of [ServerOptions], and the rule that it breaks.
//
// Its fields:
//
//	Field string // the path of the option, such as Lease.Duration
//	Rule  string // what the option must be
//
// Its methods:
//
//	func (*OptionError) Error() string
type OptionError = server.OptionError

// NewServer returns a server that is not started yet. It does not call the store. Options may be nil. An invalid option returns an
// [*OptionError].
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
	inner, err := server.New(s, handlers.seal(), *options)
	if err != nil {
		return nil, err
	}
	inner.MakeRuns(slab)
	return &Server{inner}, nil
}

// Run starts the server, works until the context ends, and then stops the server like [Server.Stop]. It also returns when Stop was called
// or the store was closed. It returns the error of Stop.
//
//	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
//	defer stop()
//	err := srv.Run(ctx)
func (s *Server) Run(ctx context.Context) error { return s.inner.Run(ctx) }

// Start begins to work and returns at once, even if the store is not reachable yet: see [Server.Ready]. Handlers see the values of the
// context; its end stops nothing.
func (s *Server) Start(ctx context.Context) error { return s.inner.Start(ctx) }

// Stop ends the server. It claims no more jobs, releases those that have not started, and lets handlers finish for Shutdown.DrainTimeout or
// until the context ends. Then it cancels their contexts, with [ErrDrained] as the cause. From then on, a handler that returns nil has
// succeeded, one that returns the context's error releases its job, and one that returns another error has failed.
//
// Stop returns when every result is written, or cannot be. Then its error says so, and those jobs run again when their leases expire. You
// may stop a server twice, or before it starts.
//
// Close the store after the server. If the store is closed first, the server cancels its handlers at once and waits for them no longer
// than Abandon.Timeout, and Stop and Run return ErrClosed.
func (s *Server) Stop(ctx context.Context) error { return s.inner.Stop(ctx) }

// Ready returns nil while the server works, and otherwise an error that says why it does not. Use it for a readiness probe.
func (s *Server) Ready() error { return s.inner.Ready() }

// Name returns the name under which the server claims.
func (s *Server) Name() string { return s.inner.Name() }

// Stats returns what the server holds now.
func (s *Server) Stats() Stats { return s.inner.Stats() }
