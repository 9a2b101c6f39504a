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
	health    *health
	failures  *failures
	wrote     map[writeOp]int // how many writes the committer has brought to the store, by their sort: it alone asks

	life    context.Context // ends when nothing is left to be written
	endLife context.CancelFunc
	work    context.Context // ends when the server is told to stop; always before life
	endWork context.CancelFunc
	last    context.Context // of the registry: ends a little after life
	endLast context.CancelFunc
	base    context.Context // of the handlers: no end of its own

	loops   sync.WaitGroup
	drained chan struct{} // closed when the first recovery is done
	fetched chan struct{} // closed when nothing is claimed any more
	hurry   chan struct{} // closed when a stop must not wait for handlers any more
	stopped chan struct{} // closed when the server has stopped

	mu      sync.Mutex // guards what follows
	phase   phase
	hurried bool
	closed  bool  // the store, under the server
	denied  error // why the store does not let the server work, or nil
	stopErr error
}

type phase int

const (
	idle phase = iota
	started
	stopping
)

// New checks the options. It does not call the store.
func New(s store.Store, lookup Lookup, options Options) (*Server, error) {
	o, err := options.filled()
	if err != nil {
		return nil, err
	}
	o.Observer = &guard{observer: o.Observer, log: o.Logger}
	log := o.Logger.With("worker", o.Name)
	return &Server{
		store: s, lookup: lookup, o: o, clock: o.Clock, log: log, failures: newFailures(log, o.Clock),
		book: newBook(o), scheduler: newScheduler(o), health: newHealth(o), wrote: map[writeOp]int{},
		drained: make(chan struct{}), fetched: make(chan struct{}), hurry: make(chan struct{}), stopped: make(chan struct{}),
	}, nil
}

// Name is the name under which the server claims.
func (s *Server) Name() string { return s.o.Name }

// Start begins to work, and returns at once: a store that is not there yet is waited for. The context's values reach the
// handlers; its end stops nothing.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase != idle {
		return errors.New("jq: a server can be started once, and not after it was stopped")
	}
	s.phase = started
	s.base = context.WithoutCancel(ctx)
	s.last, s.endLast = context.WithCancel(s.base)
	s.life, s.endLife = context.WithCancel(s.last)
	s.work, s.endWork = context.WithCancel(s.life)
	if missing := store.Missing(s.store); len(missing) > 0 {
		s.log.Info("jq: the store lacks abilities", "missing", missing)
	}
	s.loops.Go(s.beatLoop)
	s.loops.Go(s.watchLoop)
	s.loops.Go(s.commitLoop)
	s.loops.Go(s.recoverLoop)
	s.loops.Go(s.retainLoop)
	s.loops.Go(s.registerLoop)
	s.loops.Go(s.listenLoop)
	s.loops.Go(func() {
		defer close(s.fetched)
		s.fetchLoop()
	})
	return nil
}

// Run starts the server, works until the context ends, and stops it. It returns as well when somebody else has stopped it, or
// its store was closed.
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

// Stop ends the server: it claims nothing more, gives back what has not begun, and lets handlers finish for DrainFor or until
// the context ends; then it tells them to stop. It returns when all is written, or can not be: the error says so. Stopping
// twice, or before the start, is fine.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	switch s.phase {
	case idle:
		close(s.stopped)
	case started:
		go s.shutDown() // it is waited for below, by way of stopped
	}
	s.phase = stopping
	s.mu.Unlock()
	select {
	case <-s.stopped:
	case <-ctx.Done():
		s.hasten()
		<-s.stopped
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopErr
}

// hasten ends the patience with handlers.
func (s *Server) hasten() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hastenLocked()
}

func (s *Server) hastenLocked() {
	if !s.hurried {
		s.hurried = true
		close(s.hurry)
	}
}

// stopIfClosed stops the server if the error says that its store was closed: nothing can be read or written ever again.
func (s *Server) stopIfClosed(err error) bool {
	if !errors.Is(err, store.ErrClosed) {
		return false
	}
	if s.life.Err() == nil && s.storeClosed() {
		s.log.Error("jq: the store was closed under the server, which stops")
	}
	return true
}

// storeClosed begins the way down without a store, and says whether this is the first to be heard of it.
func (s *Server) storeClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.closed = true
	s.book.storeClosed()
	s.hastenLocked()
	if s.phase == started {
		s.phase = stopping
		go s.shutDown() // it is waited for by Stop, and ends without
	}
	return true
}

// stopIfDenied stops a server that its store has never let work, because of its rights or of its options, such as a lease longer
// than the store gives: it would ask for ever. One that could work before goes on: what was taken from it may be given back.
func (s *Server) stopIfDenied(err error) {
	works := "claim"
	if len(s.o.Queues) == 0 {
		works = "recover"
	}
	if !errors.Is(err, store.ErrDenied) && !errors.Is(err, store.ErrInvalid) || s.health.right(works).given {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == started {
		s.phase, s.denied = stopping, err
		s.log.Error("jq: the store does not let this server work, which stops", "error", err)
		go s.shutDown() // it is waited for by Stop, and ends without
	}
}

// shutDown is the way down, step by step. A claim that was under way is waited for like a handler: its jobs are given back.
func (s *Server) shutDown() {
	s.endWork()
	s.book.drain(s.clock.Now())
	if !s.awaitRest(s.o.DrainFor, s.hurry) {
		s.cancelHandlers(s.book.cancelRunning(ErrDrained, s.clock.Now()), "")
		s.awaitRest(s.o.AbandonAfter+lastWrites, nil) // to return or be given up, and then to be written
	}
	s.endLife()
	s.awaitLoops()
	s.failures.close()
	s.mu.Lock()
	s.stopErr = leftBehind(s.book.stats())
	clean := s.stopErr == nil && !s.closed
	switch {
	case s.closed:
		s.stopErr = closedEarly(s.stopErr)
	case s.denied != nil: // nothing was ever held
		s.stopErr = fmt.Errorf("jq: the store does not let this server work: %w", s.denied)
	}
	s.mu.Unlock()
	if clean { // who leaves something behind looks like one that died
		s.deregister()
	}
	close(s.stopped)
}

// awaitLoops waits for the loops to end, and for a beat of the registry that is under way: one that was given up could arrive after
// the leave, and the worker would be listed again.
func (s *Server) awaitLoops() {
	timer := s.clock.AfterFunc(longestLeave, s.endLast)
	defer timer.Stop()
	if s.health.unavailable() { // there will be no leave
		s.endLast()
	}
	s.loops.Wait()
	s.endLast()
}

// lastWrites is how long a stop waits for results of handlers that were told to stop, once all have returned or were given up.
const lastWrites = 10 * time.Second

// leftBehind says what a stop could not wait for: the leases of those jobs run out, and they will be run again.
func leftBehind(left Stats) error {
	if stuck := left.Running + left.Abandoned; stuck > 0 || left.Uncommitted > 0 {
		return fmt.Errorf("jq: stopped, with handlers that did not return: %d, and results that could not be written: %d; "+
			"jobs whose end is not written run again when their leases have expired", stuck, left.Uncommitted)
	}
	return nil
}

// closedEarly says that the server has stopped because of its store, and what it has left behind, if anything.
func closedEarly(left error) error {
	err := fmt.Errorf("jq: the store was closed before its server had stopped; close it afterwards: %w", store.ErrClosed)
	if left != nil {
		err = fmt.Errorf("%w; %w", err, left)
	}
	return err
}

// awaitRest waits until the server has come to rest, at most for so long or until it must hurry, and says whether it has.
func (s *Server) awaitRest(atMost time.Duration, hurry <-chan struct{}) bool {
	timer := s.clock.Timer(atMost)
	defer timer.Stop()
	for fetched := s.fetched; fetched != nil || !s.book.atRest(); {
		select {
		case <-fetched:
			fetched = nil
		case <-s.book.rest:
		case <-hurry:
			return false
		case <-timer.C:
			return false
		}
	}
	return true
}

// Ready is nil when the server is working, and says otherwise why it is not.
func (s *Server) Ready() error {
	s.mu.Lock()
	phase, closed, denied := s.phase, s.closed, s.denied
	s.mu.Unlock()
	switch {
	case closed:
		return fmt.Errorf("jq: not ready: the server has lost its store: %w", store.ErrClosed)
	case denied != nil:
		return fmt.Errorf("jq: not ready: the store does not let this server work: %w", denied)
	}
	select {
	case <-s.drained:
	default:
		if phase == started {
			return cmp.Or(s.health.err(), errors.New("jq: not ready: expired leases were not recovered yet"))
		}
	}
	switch {
	case phase == idle:
		return errors.New("jq: not ready: not started")
	case phase == stopping:
		return errors.New("jq: not ready: stopping")
	case s.book.stuck():
		return errors.New("jq: not ready: too many handlers did not return in time; restart the process")
	case s.book.full(s.clock.Now(), s.o.Beat):
		return errors.New("jq: not ready: too many results could not be written yet; see the log")
	}
	return s.health.err()
}

// Stats is what the server holds now.
func (s *Server) Stats() Stats { return s.book.stats() }

// sleep waits for so long, and is false when the context has ended.
func (s *Server) sleep(ctx context.Context, d time.Duration) bool {
	timer := s.clock.Timer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}
