// Package bbolt keeps jobs in one file of go.etcd.io/bbolt, for one process at a time. It is an example of a store
// outside jq: it imports only package contract, and package jqtest tests it.
//
//	store, err := bbolt.Open(ctx, "jobs.bolt", nil)
//
// A commit waits for the disk, unless you set Options.NoSync. The store has every ability except contract.Transactor, which needs an SQL
// transaction.
package bbolt

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"
	bolt "go.etcd.io/bbolt"

	"github.com/seed-ed332417/jq/contract"
)

var (
	_ contract.Store          = (*Store)(nil)
	_ contract.Notifier       = (*Store)(nil)
	_ contract.PolicyKeeper   = (*Store)(nil)
	_ contract.Registry       = (*Store)(nil)
	_ contract.Fencer         = (*Store)(nil)
	_ contract.ActivityKeeper = (*Store)(nil)
)

// Options configures Open. Zero fields mean the default.
type Options struct {
	Clock    clock.Clock   // nil means the clock of the process
	MaxLease time.Duration // no lease is longer; zero means an hour
	Logger   *slog.Logger  // gets a line when the clock goes back; nil means slog.Default()
	NoSync   bool          // commits do not wait for the disk: for tests, or if a power loss may lose the latest jobs

	openFile func(path string, flag int, mode os.FileMode) (*os.File, error) // replaced by a test to make the file fail
}

// A Store keeps jobs in one file.
type Store struct {
	clock  clock.Clock
	db     *bolt.DB
	hub    hub
	closed atomic.Bool

	// turn is the right to begin a call. A call holds it while its value is in the channel: a writer until it has committed, a
	// reader until it has its snapshot. It is a channel, not a mutex, so that waiting ends with the caller's context.
	turn chan struct{}

	present  contract.Present // guarded by turn
	maxLease time.Duration
}

// Open opens the store in the file, and creates the file if it does not exist. Options may be nil.
func Open(ctx context.Context, path string, options *Options) (*Store, error) {
	options = cmp.Or(options, &Options{})
	if err := ctx.Err(); err != nil {
		return nil, openError(path, err)
	}
	longest := cmp.Or(options.MaxLease, contract.DefaultMaxLease)
	if err := contract.CheckMaxLease(longest); err != nil {
		return nil, err
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{
		Timeout:      lockPatience,
		FreelistType: bolt.FreelistMapType,
		NoSync:       options.NoSync,
		NoGrowSync:   options.NoSync,
		OpenFile:     options.openFile,
	})
	if err != nil {
		return nil, openError(path, err)
	}
	if err := makeBuckets(db); err != nil {
		_ = db.Close() // the first error says more
		return nil, openError(path, err)
	}
	return &Store{
		clock: cmp.Or(options.Clock, clock.New()), db: db, turn: make(chan struct{}, 1),
		present: contract.Present{Logger: options.Logger}, maxLease: longest,
	}, nil
}

// lockPatience is how long Open waits for another process to release the file.
const lockPatience = time.Second

// Close waits for the calls that have begun, and releases the file. Calls that wait for their turn fail.
func (s *Store) Close() error {
	s.turn <- struct{}{}
	defer s.leave()
	if s.closed.Swap(true) {
		return nil
	}
	s.hub.close()
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("jq: closing the file: %w", err)
	}
	return nil
}

// enter begins a call by waiting for its turn. An invalid request gets none. After an error the caller does not hold the turn;
// otherwise it must call leave.
func (s *Store) enter(ctx context.Context, refused error) error {
	entered := false
	select {
	case s.turn <- struct{}{}:
		entered = true
	case <-ctx.Done(): // admit reports it
	}
	err := s.admit(ctx, refused)
	if err != nil && entered {
		s.leave()
	}
	return err
}

func (s *Store) leave() { <-s.turn }

// admit returns the reason why a call cannot begin, or nil.
func (s *Store) admit(ctx context.Context, refused error) error {
	switch {
	case s.closed.Load():
		return contract.ErrClosed
	case ctx.Err() != nil:
		return unavailable(ctx.Err())
	default:
		return refused
	}
}

// now returns the time of a call. The caller must hold the turn.
func (s *Store) now() time.Time { return s.present.Read(s.clock.Now) }
