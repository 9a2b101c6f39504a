package kv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/store/wake"
)

var (
	_ contract.Store          = (*Store)(nil)
	_ contract.Notifier       = (*Store)(nil)
	_ contract.PolicyKeeper   = (*Store)(nil)
	_ contract.Registry       = (*Store)(nil)
	_ contract.ScheduleKeeper = (*Store)(nil)
	_ contract.GroupKeeper    = (*Store)(nil)
	_ contract.Fencer         = (*Store)(nil)
	_ contract.Monitor        = (*Store)(nil)
	_ contract.ActivityKeeper = (*Store)(nil)
	_ contract.Examiner       = (*Store)(nil)
)

// Options configures Open. Zero fields mean the default.
type Options struct {
	Clock    clock.Clock   // nil means the time of the engine, as the package says
	MaxLease time.Duration // no lease is longer; zero means an hour
	Logger   *slog.Logger  // gets a line when the clock goes back or a watch is lost; nil means slog.Default()

	// NoMigrate keeps Open from creating the store. If the engine has none, Open fails.
	NoMigrate bool

	machine *machine // of a test
}

// A Store keeps jobs in an engine.
type Store struct {
	engine   Engine
	clock    clock.Clock      // of pauses
	shows    func() time.Time // the time, before that is kept from going back by a little
	timer    *estimate        // of the clock of the engine; nil if it has none, or another clock was given
	keeper   *timekeeper      // nil if the stores of the engine need none
	logger   *slog.Logger
	maxLease time.Duration
	present  contract.Present
	hub      wake.Hub
	turns    turns
	adds     combiner // of Enqueue
	finishes combiner // of Ack and NAck
	keeps    combiner // of Extend and Save, which do not wait until others are told
	untold   untold
	told     atomic.Int64 // how many notes were written
	crowds   crowds
	marks    bool // whether it raises any
	walks    walks
	shards   int                  // of each line; see meta
	latest   atomic.Pointer[meta] // that a call has read
	watch    watch

	mu     sync.Mutex // guards closed, and that no call begins after it is set
	closed bool
	calls  sync.WaitGroup // under way
}

// Open opens the store in the engine, which may be empty. The store closes the engine, also if Open fails. Options may be nil.
func Open(ctx context.Context, engine Engine, options *Options) (*Store, error) {
	options = cmp.Or(options, &Options{})
	of := cmp.Or(options.Clock, clock.New())
	s := &Store{
		engine: engine, clock: of, shows: of.Now, logger: cmp.Or(options.Logger, slog.Default()),
		maxLease: cmp.Or(options.MaxLease, contract.DefaultMaxLease), present: contract.Present{Logger: options.Logger},
	}
	s.adds.s, s.finishes.s, s.keeps.s = s, s, s
	s.marks, s.walks.most, s.walks.behind = shared(engine), mostWalked, markBehind
	if err := cmp.Or(contract.CheckMaxLease(s.maxLease), engine.Limits().check()); err != nil {
		_ = engine.Close() // the first error says more
		return nil, err
	}
	if err := s.prepare(ctx, options.NoMigrate); err != nil {
		_ = engine.Close() // the first error says more
		return nil, err
	}
	if options.Clock == nil {
		if err := s.agree(ctx, options.machine); err != nil {
			_ = engine.Close() // the first error says more
			return nil, fmt.Errorf("jq: asking for the time: %w", err)
		}
	}
	s.startWatch()
	return s, nil
}

func (l Limits) check() error {
	for _, c := range []struct {
		what      string
		has, need int
	}{{"keys in a commit", l.Keys, MinKeys}, {"bytes in a commit", l.Bytes, MinBytes}, {"bytes in a value", l.Value, MinValue}} {
		if c.has != 0 && c.has < c.need {
			return fmt.Errorf("jq: the engine takes %d %s, and a store needs %d: raise its limit", c.has, c.what, c.need)
		}
	}
	return nil
}

// Close waits for the calls that have begun, and closes the engine.
func (s *Store) Close() error {
	s.mu.Lock()
	before := s.closed
	s.closed = true
	s.mu.Unlock()
	s.calls.Wait()
	if before {
		return nil
	}
	s.hub.Close()
	s.watch.end()
	s.keeper.close()
	if err := s.engine.Close(); err != nil {
		return fmt.Errorf("jq: closing the engine: %w", err)
	}
	return nil
}

// enter begins a call, unless it cannot begin. The caller must call s.calls.Done if there is no error.
func (s *Store) enter(ctx context.Context, refused error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return contract.ErrClosed
	case ctx.Err() != nil:
		return unavailable(ctx.Err())
	case refused != nil:
		return refused
	}
	s.calls.Add(1)
	return nil
}

func (s *Store) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// A meta is what concerns the whole store.
type meta struct {
	Layout int   // of the keys; see layout, withWaits, withKeys and withMarks
	Epoch  int64 // see Fence
	Shards int   // of each line; see sharedShards
	Lines  lines // of all queues that had a job ever. The others are empty
	Ended  int64 // the latest epoch whose Fence has ended the leases that were in force

	// The maps are never changed, but replaced.
	Modes map[string]mode `json:",omitempty"` // of the queues whose claims find jobs by limit key
	Marks map[string]mark `json:",omitempty"` // by the beginnings of the keys of lines, without shards, and of leases
}

// with returns a copy of a map that has the value for the name, or lacks the name if there is none.
func with[V any](m map[string]V, name string, value V, is bool) map[string]V {
	m = maps.Clone(m)
	if m == nil {
		m = map[string]V{}
	}
	if m[name] = value; !is {
		delete(m, name)
	}
	return m
}

// saveMeta writes what concerns the whole store, in the least layout that has to do with it.
func (t *txn) saveMeta(least int) {
	t.meta.Layout = max(t.meta.Layout, least)
	t.put(key(metas), t.meta)
}

// errMissing means that the engine has no store, and that it was opened without creating one.
var errMissing = errors.New("there is no store: name another one, or create it by jobq migrate up")

// prepare writes the layout of a new store, and refuses one that this package does not know, or a new one if the store must exist.
func (s *Store) prepare(ctx context.Context, exists bool) error {
	var refused error
	_, err := call(ctx, s, nil, ask{any: true}, func(t *txn) struct{} {
		switch {
		case known(t.meta.Layout):
			s.shards = t.meta.Shards
		case t.meta.Layout == 0 && exists:
			refused = errMissing
		case t.meta.Layout == 0:
			s.shards = 1
			if shared(s.engine) {
				s.shards = sharedShards
			}
			t.put(key(metas), meta{Layout: layout, Shards: s.shards})
		default:
			refused = otherLayout(t.meta.Layout)
		}
		return struct{}{}
	})
	if err = cmp.Or(err, refused); err != nil {
		return fmt.Errorf("jq: opening a store: %w", err)
	}
	return nil
}

func otherLayout(of int) error {
	return fmt.Errorf("its keys have the layout %d, and this version of jq knows %d: use the version that wrote them, or a later one", of, withMarks)
}
