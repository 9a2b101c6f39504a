// Package memory keeps jobs in the memory of the process: for tests, for trying things out, and for work that may be lost
// with its process. It is as durable as the process is, and the plainest reading of the contract in package store.
//
// One lock guards everything, and one call holds it at a time. A caller's transaction keeps all other calls out from its
// first write until its end, like the one writer of an SQLite file.
package memory

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/wake"
)

var (
	_ store.Store        = (*Store)(nil)
	_ store.Transactor   = (*Store)(nil)
	_ store.Notifier     = (*Store)(nil)
	_ store.PolicyKeeper = (*Store)(nil)
	_ store.Registry     = (*Store)(nil)
	_ store.Fencer       = (*Store)(nil)
)

// Options are what a store can be told.
type Options struct {
	Clock    clock.Clock   // nil means the clock of the process
	MaxLease time.Duration // no lease is longer; zero means an hour
	Logger   *slog.Logger  // is told of a clock that goes back; nil means slog.Default()
}

// A Store keeps jobs in memory. A claim finds at once whatever is committed and claimable.
type Store struct {
	clock    clock.Clock
	present  store.Present
	maxLease time.Duration

	dbOnce sync.Once
	db     *sql.DB // the stand-in that opens callers' transactions, opened when it is first asked for

	mu     sync.Mutex // guards what follows
	closed bool
	tx     *transaction // that keeps others out, or nil
	last   time.Time    // the latest now

	jobs    table
	work    store.Record // of the job that a call is about: see record
	lastID  int64
	epoch   int64 // see Fence
	queues  map[string]*queue
	leases  line    // the jobs in flight, by the end of their leases
	lengths lengths // of leases

	keys     map[string]*holder // of unique keys
	windows  heap[*holder]      // those that hold their key for a window, by its end
	requests map[string]*answer // by request key
	answers  heap[*answer]      // the same, by when they are forgotten

	workers map[string]store.Worker

	hub   wake.Hub
	woken []string // the queues to announce when the call, or the transaction, has its effect
}

// New returns an empty store. It panics if MaxLease is nothing that a lease can be.
func New(options Options) *Store {
	clk := options.Clock
	if clk == nil {
		clk = clock.New()
	}
	longest := cmp.Or(options.MaxLease, store.DefaultMaxLease)
	if err := store.CheckMaxLease(longest); err != nil {
		panic(err)
	}
	return &Store{
		clock:    clk,
		present:  store.Present{Logger: options.Logger},
		maxLease: longest,
		lengths:  newLengths(longest),
		queues:   map[string]*queue{},
		keys:     map[string]*holder{},
		requests: map[string]*answer{},
		workers:  map[string]store.Worker{},
	}
}

// Close forgets everything. A transaction that has written is rolled back.
func (s *Store) Close() error {
	s.drop()
	return s.DB().Close() // which may roll back, and needs the lock for it
}

func (s *Store) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	if s.tx != nil {
		s.tx.rollback()
	}
	s.hub.Close()
	s.jobs, s.queues, s.leases, s.workers = table{}, nil, line{}, nil
	s.keys, s.windows = nil, heap[*holder]{}
	s.requests, s.answers = nil, heap[*answer]{}
}

// enter begins a call: it waits for its turn and returns the call's now. A request that was refused gets no turn. After an
// error the lock is not held; otherwise leave gives it back. Calls are short and are waited for as they come, but a
// transaction lasts as long as its owner likes, so that waiting for one heeds the context.
func (s *Store) enter(ctx context.Context, refused error) (time.Time, error) {
	for {
		now, other, err := s.tryEnter(ctx, nil, refused)
		if other == nil {
			return now, err
		}
		select {
		case <-other.ended:
		case <-ctx.Done():
		}
	}
}

// tryEnter is enter for a call within the transaction, or within none. It does not wait for another transaction: it
// returns the one that keeps the call out. The call's own keeps others out from then on.
func (s *Store) tryEnter(ctx context.Context, tx *transaction, refused error) (now time.Time, other *transaction, err error) {
	s.mu.Lock()
	if err := s.admit(ctx, refused); err != nil {
		s.mu.Unlock()
		return time.Time{}, nil, err
	}
	if s.tx != nil && s.tx != tx {
		defer s.mu.Unlock()
		return time.Time{}, s.tx, nil
	}
	s.tx = tx
	return s.now(), nil, nil
}

// admit says why a call can not begin.
func (s *Store) admit(ctx context.Context, refused error) error {
	switch {
	case s.closed:
		return store.ErrClosed
	case ctx.Err() != nil:
		return unavailable(ctx.Err())
	default:
		return refused
	}
}

// refuse says why a call that was refused can not begin.
func (s *Store) refuse(ctx context.Context, refused error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.admit(ctx, refused)
}

// leave ends a call.
func (s *Store) leave() {
	if s.tx == nil {
		s.announce()
	}
	s.mu.Unlock()
}

// now is the time of a call.
func (s *Store) now() time.Time {
	s.last = s.present.Read(s.clock.Now)
	return s.last
}

func unavailable(cause error) error {
	return fmt.Errorf("%w: %w", store.ErrUnavailable, cause)
}
