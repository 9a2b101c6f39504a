// Package memory keeps jobs in the memory of the process: for tests, for trying jq out, and for work that may be lost with its
// process. It keeps nothing once the process has ended.
//
// One lock guards everything, and one call holds it at a time. From its first write until its end, a caller's transaction keeps
// all other calls out, as the only writer of an SQLite file does.
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
	_ store.Store          = (*Store)(nil)
	_ store.Transactor     = (*Store)(nil)
	_ store.Notifier       = (*Store)(nil)
	_ store.PolicyKeeper   = (*Store)(nil)
	_ store.Registry       = (*Store)(nil)
	_ store.Fencer         = (*Store)(nil)
	_ store.ScheduleKeeper = (*Store)(nil)
	_ store.GroupKeeper    = (*Store)(nil)
	_ store.ActivityKeeper = (*Store)(nil)
)

// Options configures New. Zero fields mean the default.
type Options struct {
	Clock    clock.Clock   // time of the store; nil means the clock of the process
	MaxLease time.Duration // longest lease; zero means an hour
	Logger   *slog.Logger  // gets a warning when the clock goes back; nil means slog.Default()
}

// A Store keeps jobs in memory. A claim finds every committed, claimable job at once.
type Store struct {
	clock    clock.Clock
	present  store.Present
	maxLease time.Duration

	dbOnce sync.Once
	db     *sql.DB // opens callers' transactions; made by the first call of DB

	mu     sync.Mutex // guards the fields below
	closed bool
	tx     *transaction // the transaction that keeps other calls out, or nil
	last   time.Time    // now of the latest call

	jobs    table
	work    store.Record // reused by every call: see record
	docs    copier       // of the payloads that are enqueued
	chosen  []*job       // reused by every claim
	sorts   map[policy]*sort
	latest  *sort // the latest that was asked for, or nil
	lastID  int64
	epoch   int64 // see Fence
	queues  map[string]*queue
	leases  line    // the jobs in flight, by LeaseExpiresAt
	lengths lengths // lengths of leases

	latestRare *rare // of the latest job that was added, or nil

	expiries map[int64]*expiry // by the job's id
	expiring heap[*expiry]     // those that have not expired, by ExpiresAt
	expired  heap[*expiry]     // the others, by ExpiresAt

	waits   map[int64][]store.KeptWait // by the id of the job that waits
	waiters map[int64][]int64          // by the id of the job that they wait for, in rising order
	ends    []end                      // that waiters must hear of
	heard   bool                       // a call has added to ends
	groups  map[string]*group

	keys     map[string]*holder // by unique key
	windows  heap[*holder]      // the holders with a window, by its end
	requests map[string]*answer // by request key
	answers  heap[*answer]      // the same answers, by the time when they are forgotten

	workers   map[string]store.Worker
	schedules map[string]store.Schedule
	revision  int64 // of the latest change of a schedule

	activity [len(store.ActivityWidths)]activity // as store.ActivityWidths

	hub   wake.Hub
	woken []store.Wakeup // to send when the call or the transaction takes effect
}

// New returns an empty store. It panics if MaxLease is not a valid length of a lease.
func New(options Options) *Store {
	longest := cmp.Or(options.MaxLease, store.DefaultMaxLease)
	if err := store.CheckMaxLease(longest); err != nil {
		panic(err)
	}
	return &Store{
		clock:    cmp.Or(options.Clock, clock.New()),
		present:  store.Present{Logger: options.Logger},
		maxLease: longest,
		lengths:  newLengths(longest),
		queues:   map[string]*queue{},
		sorts:    map[policy]*sort{},
		keys:     map[string]*holder{},
		requests: map[string]*answer{},
		expiries: map[int64]*expiry{},
		waits:    map[int64][]store.KeptWait{},
		waiters:  map[int64][]int64{},
		groups:   map[string]*group{},
		workers:  map[string]store.Worker{},

		schedules: map[string]store.Schedule{},
	}
}

// Close drops every job. It rolls back a transaction that has written.
func (s *Store) Close() error {
	s.drop()
	return s.DB().Close() // without the lock, because a rollback takes it
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
	s.jobs, s.queues, s.leases, s.workers, s.schedules = table{}, nil, line{}, nil, nil
	s.latestRare = nil
	s.sorts, s.latest, s.docs, s.chosen, s.work = nil, nil, copier{}, nil, store.Record{}
	s.keys, s.windows = nil, heap[*holder]{}
	s.requests, s.answers = nil, heap[*answer]{}
	clear(s.activity[:])
	s.waits, s.waiters, s.ends, s.groups = nil, nil, nil, nil
	s.expiries, s.expiring, s.expired = nil, heap[*expiry]{}, heap[*expiry]{}
}

// enter begins a call: it waits for its turn and returns the call's now. It refuses a request at once if refused is not nil.
// After an error the lock is not held; otherwise the caller must call leave. Calls are short, so waiting for them ignores the
// context. A transaction lasts as long as its owner likes, so waiting for one ends with the context.
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

// tryEnter is enter for a call within tx, or outside a transaction if tx is nil. It does not wait for another transaction, but
// returns the one that keeps the call out. From then on tx keeps other calls out.
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

// admit returns the reason why a call must not begin, or nil.
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

// refuse is admit for a caller that does not hold the lock.
func (s *Store) refuse(ctx context.Context, refused error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.admit(ctx, refused)
}

// leave ends a call.
func (s *Store) leave() {
	if s.tx == nil {
		s.follow()
		s.announce()
	}
	s.mu.Unlock()
}

// now returns the time of a call.
func (s *Store) now() time.Time {
	before := s.last
	s.last = s.present.Read(s.clock.Now)
	s.expire(before, s.last)
	return s.last
}

func unavailable(cause error) error {
	return fmt.Errorf("%w: %w", store.ErrUnavailable, cause)
}
