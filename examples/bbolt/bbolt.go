// Package bbolt keeps jobs in one file of go.etcd.io/bbolt, for one process at a time. It is an example of a store that is
// written outside jq: by the contract, with packages jq and contract, and proved by package jqtest.
//
//	store, err := bbolt.Open(ctx, "jobs.bolt", nil)
//
// A commit waits for the disk, unless [Options] say otherwise. The store has every ability but jq.Transactor: a caller's
// transaction is one of SQL, and bbolt has none.
package bbolt

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"
	bolt "go.etcd.io/bbolt"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
)

var (
	_ jq.Store        = (*Store)(nil)
	_ jq.Notifier     = (*Store)(nil)
	_ jq.PolicyKeeper = (*Store)(nil)
	_ jq.Registry     = (*Store)(nil)
	_ jq.Fencer       = (*Store)(nil)
)

// Options are what can be chosen; the zero value of each field means its default.
type Options struct {
	Clock    clock.Clock   // nil means the clock of the process
	MaxLease time.Duration // no lease is longer; zero means an hour
	Logger   *slog.Logger  // is told of a clock that goes back; nil means slog.Default()
	NoSync   bool          // commits do not wait for the disk: for tests, or where the latest jobs may be lost with the power

	openFile func(path string, flag int, mode os.FileMode) (*os.File, error) // for a test whose file breaks
}

// A Store keeps jobs in one file.
type Store struct {
	clock  clock.Clock
	db     *bolt.DB
	hub    hub
	closed atomic.Bool

	// turn is the right to begin a call, held by whoever has put something in. A writer holds it until it has committed, a
	// reader until it has its snapshot. A channel and no mutex, so that waiting for it ends with the caller's context.
	turn chan struct{}

	present  contract.Present // whoever has the turn may use it
	maxLease time.Duration
}

// Open opens the store in the file, and makes it if it is not there. Options may be nil.
func Open(ctx context.Context, path string, options *Options) (*Store, error) {
	if options == nil {
		options = &Options{}
	}
	if err := ctx.Err(); err != nil {
		return nil, openError(path, err)
	}
	longest := options.MaxLease
	if longest == 0 {
		longest = contract.DefaultMaxLease
	}
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
	clk := options.Clock
	if clk == nil {
		clk = clock.New()
	}
	return &Store{
		clock: clk, db: db, turn: make(chan struct{}, 1), present: contract.Present{Logger: options.Logger}, maxLease: longest,
	}, nil
}

// lockPatience is how long Open waits for another process to let go of the file.
const lockPatience = time.Second

// Close waits for the calls that have begun, and lets go of the file. Those that wait for their turn are refused.
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

// enter begins a call: it waits for its turn. A request that was refused gets none. After an error the turn is not held;
// otherwise leave gives it back.
func (s *Store) enter(ctx context.Context, refused error) error {
	entered := false
	select {
	case s.turn <- struct{}{}:
		entered = true
	case <-ctx.Done(): // which admit finds out
	}
	err := s.admit(ctx, refused)
	if err != nil && entered {
		s.leave()
	}
	return err
}

func (s *Store) leave() { <-s.turn }

// admit says why a call can not begin.
func (s *Store) admit(ctx context.Context, refused error) error {
	switch {
	case s.closed.Load():
		return jq.ErrClosed
	case ctx.Err() != nil:
		return unavailable(ctx.Err())
	default:
		return refused
	}
}

// now is the time of a call, which has the turn.
func (s *Store) now() time.Time { return s.present.Read(s.clock.Now) }
