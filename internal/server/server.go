package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/tally"
	"github.com/seed-ed332417/jq/internal/timeout"
)

// A Lookup finds the handler of a kind.
type Lookup func(kind string) (Handler, bool)

// A Server runs jobs from Start to Stop, once.
type Server struct {
	store  store.Store
	lookup Lookup
	o      Options
	clock  clock.Clock
	log    *slog.Logger

	book      *book
	scheduler *scheduler
	cancels   *cancels
	health    *health
	failures  *failureLog
	settle    signal          // expired leases were recovered, so settle as well
	left      signal          // a call has left something to settle
	writes    map[writeOp]int // how many writes have succeeded, by operation; only the committer uses it
	tally     *tally.Tally    // nil if the store keeps no activity
	slab      Slab
	observed  bool        // there is an observer that wants to see the jobs
	room      []store.Job // lent to each claim; only the claim loop uses it

	life            context.Context // ends when nothing is left to write
	endLife         context.CancelFunc
	work            context.Context // ends when a stop begins, always before life
	endWork         context.CancelFunc
	registration    context.Context // for calls of the registry; ends a little after life
	endRegistration context.CancelFunc
	handlerBase     context.Context // of the handlers; it never ends

	loops        sync.WaitGroup
	recoveryDone chan struct{} // closed when the first recovery is done
	claimsDone   chan struct{} // closed when the server claims no more
	drainOver    chan struct{} // closed when a stop must not wait for handlers
	stopped      chan struct{} // closed when the server has stopped

	mu         sync.Mutex // guards what follows
	phase      phase
	drainEnded bool
	closed     bool  // the store is closed
	denial     error // why the store never permitted the server to work, or nil
	stopErr    error
}

type phase int

const (
	idle phase = iota
	started
	stopping
)

// New checks the options. It does not call the store.
func New(s store.Store, lookup Lookup, options Options) (*Server, error) {
	o, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	_, deaf := o.Observer.(NopObserver)
	o.Observer = &safeObserver{observer: o.Observer, log: o.Logger}
	log := o.Logger.With("worker", o.Name)
	return &Server{
		store: s, lookup: lookup, o: o, clock: o.Clock, log: log, failures: newFailureLog(log, o.Clock),
		book: newBook(o), scheduler: newScheduler(o), cancels: newCancels(), health: newHealth(o), writes: map[writeOp]int{},
		settle: newSignal(), left: newSignal(), tally: tally.New(s, log), slab: plainSlab, observed: !deaf,
		recoveryDone: make(chan struct{}), claimsDone: make(chan struct{}), drainOver: make(chan struct{}), stopped: make(chan struct{}),
	}, nil
}

// MakeRuns sets the slab of which the server takes its runs. Call it before Start.
func (s *Server) MakeRuns(slab Slab) { s.slab = slab }

// Name returns the name under which the server claims.
func (s *Server) Name() string { return s.o.Name }

// Start begins to work and returns at once, even if the store is not reachable yet. Handlers see the values of the context; its end stops
// nothing.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase != idle {
		return errors.New("jq: a server can be started only once, and not after Stop")
	}
	s.phase = started
	s.handlerBase = context.WithoutCancel(ctx)
	s.registration, s.endRegistration = context.WithCancel(s.handlerBase)
	s.life, s.endLife = context.WithCancel(s.registration)
	s.work, s.endWork = context.WithCancel(s.life)
	if missing := store.Missing(s.store); len(missing) > 0 {
		s.log.Info("jq: the store lacks abilities", "missing", missing)
	}
	s.loops.Go(s.beatLoop)
	s.loops.Go(s.watchLoop)
	s.loops.Go(s.commitLoop)
	s.loops.Go(s.recoverLoop)
	s.loops.Go(s.settleLoop)
	s.loops.Go(s.retainLoop)
	s.loops.Go(s.scheduleLoop)
	s.loops.Go(s.registerLoop)
	s.loops.Go(s.listenLoop)
	s.loops.Go(func() { s.tally.Run(s.life, s.clock, s.o.Lease.Heartbeat) })
	s.loops.Go(func() {
		defer close(s.claimsDone)
		s.claimLoop()
	})
	return nil
}

// Run starts the server, works until the context ends, and stops the server. It also returns when Stop was called or the store was closed.
func (s *Server) Run(ctx context.Context) error {
	if err := s.Start(ctx); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-s.stopped:
	}
	return s.Stop(context.WithoutCancel(ctx))
}

// Stop ends the server: it claims no more jobs, releases those that have not started, and lets handlers finish for Shutdown.DrainTimeout or
// until the context ends. Then it cancels them. It returns when every verdict is written, or cannot be; the error says so. You may stop a
// server twice, or before it starts.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	switch s.phase {
	case idle:
		close(s.stopped)
	case started:
		go s.shutDown() // Stop waits for it below, by stopped
	}
	s.phase = stopping
	s.mu.Unlock()
	select {
	case <-s.stopped:
	case <-ctx.Done():
		s.endDrain()
		<-s.stopped
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopErr
}

// endDrain stops waiting for handlers.
func (s *Server) endDrain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endDrainLocked()
}

func (s *Server) endDrainLocked() {
	if !s.drainEnded {
		s.drainEnded = true
		close(s.drainOver)
	}
}

// stopIfClosed stops the server if the error says that its store was closed: then nothing can be read or written any more.
func (s *Server) stopIfClosed(err error) bool {
	if !errors.Is(err, store.ErrClosed) {
		return false
	}
	if s.life.Err() == nil && s.noteStoreClosed() {
		s.log.Error("jq: the store was closed; the server stops")
	}
	return true
}

// noteStoreClosed begins to stop a server without a store. It returns whether this is the first report.
func (s *Server) noteStoreClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.closed = true
	s.book.noteStoreClosed()
	s.endDrainLocked()
	if s.phase == started {
		s.phase = stopping
		go s.shutDown() // Stop waits for it, and it ends without Stop too
	}
	return true
}

// stopIfDenied stops a server that its store has never permitted to work, because of its rights or its options, such as a lease longer than
// the store allows. Otherwise the server would ask for ever. A server that has worked before continues, because it may get its rights back.
func (s *Server) stopIfDenied(err error) {
	works := "claim"
	if len(s.o.Queues) == 0 {
		works = "recover"
	}
	if !errors.Is(err, store.ErrDenied) && !errors.Is(err, store.ErrInvalid) || s.health.permission(works).granted {
		return
	}
	s.giveUp("the store does not permit this server to work", err)
}

// giveUp stops a server that can not work. Stop returns why.
func (s *Server) giveUp(what string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == started {
		s.phase, s.denial = stopping, fmt.Errorf("jq: %s: %w", what, err)
		s.log.Error("jq: "+what+"; the server stops", "error", err)
		go s.shutDown() // Stop waits for it, and it ends without Stop too
	}
}

// shutDown stops the server, step by step. It waits for a claim under way as for a handler, and releases its jobs.
func (s *Server) shutDown() {
	s.endWork()
	s.book.drain(s.clock.Now())
	if !s.awaitDrained(s.o.Shutdown.DrainTimeout, s.drainOver) {
		s.cancelHandlers(s.book.cancelRunning(ErrDrained, s.clock.Now()), "")
		s.awaitDrained(s.o.Abandon.Timeout+finalWriteTimeout, nil) // until handlers return or are abandoned, and their verdicts are written
	}
	s.endLife()
	s.awaitLoops()
	s.flushTally()
	s.failures.close()
	s.mu.Lock()
	s.stopErr = unfinishedError(s.book.stats())
	clean := s.stopErr == nil && !s.closed
	switch {
	case s.closed:
		s.stopErr = storeClosedError(s.stopErr)
	case s.denial != nil: // the server has never held a job
		s.stopErr = s.denial
	}
	s.mu.Unlock()
	if clean { // otherwise the worker stays listed, like one that died
		s.deregister()
	}
	close(s.stopped)
}

// flushTally writes what the server did since it wrote last. It does not wait for an unreachable store.
func (s *Server) flushTally() {
	if s.health.unavailable() {
		return
	}
	ctx, cancel := timeout.Of(s.handlerBase, s.clock, leaveTimeout)
	defer cancel()
	s.tally.Flush(ctx)
}

// awaitLoops waits for the loops to end, and for a call of Registry.Beat under way: if it arrived after Leave, the store would list the
// worker again.
func (s *Server) awaitLoops() {
	timer := s.clock.AfterFunc(leaveTimeout, s.endRegistration)
	defer timer.Stop()
	if s.health.unavailable() { // then there is no call of Leave
		s.endRegistration()
	}
	s.loops.Wait()
	s.endRegistration()
}

// finalWriteTimeout is how long a stop waits for the verdicts of cancelled handlers, once all of them have returned or are abandoned.
const finalWriteTimeout = 10 * time.Second

// unfinishedError says which handlers and writes a stop did not wait for. The leases of those jobs expire, and the jobs run again.
func unfinishedError(left Stats) error {
	if stuck := left.Running + left.Abandoned; stuck > 0 || left.Uncommitted > 0 {
		return fmt.Errorf("jq: stopped, but %d handlers did not return and %d results could not be written; "+
			"jobs without a written result run again when their leases expire", stuck, left.Uncommitted)
	}
	return nil
}

// storeClosedError says that the server stopped because its store was closed, and what is unfinished.
func storeClosedError(unfinished error) error {
	err := fmt.Errorf("jq: the store was closed before its server stopped; close the store after the server: %w", store.ErrClosed)
	if unfinished != nil {
		err = fmt.Errorf("%w; %w", err, unfinished)
	}
	return err
}

// awaitDrained waits until nothing is left to wait for, at most for so long or until drainOver is closed. It returns whether nothing is
// left.
func (s *Server) awaitDrained(atMost time.Duration, hurry <-chan struct{}) bool {
	timer := s.clock.Timer(atMost)
	defer timer.Stop()
	for fetched := s.claimsDone; fetched != nil || !s.book.drained(); {
		select {
		case <-fetched:
			fetched = nil
		case <-s.book.progress:
		case <-hurry:
			return false
		case <-timer.C:
			return false
		}
	}
	return true
}

// Ready returns nil while the server works, and otherwise an error that says why it does not.
func (s *Server) Ready() error {
	s.mu.Lock()
	phase, closed, denied := s.phase, s.closed, s.denial
	s.mu.Unlock()
	switch {
	case closed:
		return fmt.Errorf("jq: not ready: the store was closed: %w", store.ErrClosed)
	case denied != nil:
		return fmt.Errorf("jq: not ready: the store does not permit this server to work: %w", denied)
	}
	select {
	case <-s.recoveryDone:
	default:
		if phase == started {
			return cmp.Or(s.health.err(), errors.New("jq: not ready: expired leases are not recovered yet"))
		}
	}
	switch {
	case phase == idle:
		return errors.New("jq: not ready: not started")
	case phase == stopping:
		return errors.New("jq: not ready: stopping")
	case s.book.slotsBlocked():
		return errors.New("jq: not ready: too many handlers did not return in time; restart the process")
	case s.book.fullFor(s.clock.Now(), s.o.Lease.Heartbeat):
		return errors.New("jq: not ready: too many results could not be written yet; see the log")
	}
	return s.health.err()
}

// Stats returns what the server holds now.
func (s *Server) Stats() Stats { return s.book.stats() }

// sleep waits for so long. It returns false when the context has ended. Nothing here makes a timer that is due at once: two of these at
// the same time in a bubble of synctest can crash the race detector.
func (s *Server) sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := s.clock.Timer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}
