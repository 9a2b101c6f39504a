// Package sample shares the answers of calls that cost much, such as counting all jobs of a store.
//
// A call runs in the background, and only if somebody asks. All callers get the same answer, with the time at which its call
// began, and decide for themselves how long they wait for a newer one.
package sample

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/timeout"
)

// An Answer is what one call has returned.
type Answer[A any] struct {
	Value A
	Err   error
	Began time.Time     // when the call began: the answer is no older than that; zero if there is none
	Took  time.Duration // how long the call took
}

// Known reports whether there is an answer.
func (a Answer[A]) Known() bool { return !a.Began.IsZero() }

// Tenth is the Rest with which calls take at most a tenth of the time.
const Tenth = 9

// Options configures New. Zero fields mean the default.
type Options struct {
	// Life limits how long a call may run. Default: a minute.
	Life time.Duration
	// MaxAge is how long an answer is reused after its call has ended. By default only calls that overlap share an answer.
	MaxAge time.Duration
	// Rest makes the next call wait at least this many times as long as the last one took: see Tenth.
	Rest int
	// Clock measures these times. Default: the clock of the process.
	Clock clock.Clock
}

// A Sampler makes one call again and again, at most once at a time, and keeps its answers.
type Sampler[A any] struct {
	do      func(context.Context) (A, error)
	options Options

	mu      sync.Mutex         // guards the fields below
	running chan struct{}      // closed when the current call returns; nil if there is none
	stop    context.CancelFunc // cancels the current call
	latest  Answer[A]
	good    Answer[A] // the latest answer without an error
	rest    time.Time // no new call before this time
}

// New returns a sampler that calls do. The context of a call ends after Options.Life, and with Close.
func New[A any](do func(context.Context) (A, error), options Options) *Sampler[A] {
	if options.Life == 0 {
		options.Life = time.Minute
	}
	if options.Clock == nil {
		options.Clock = clock.New()
	}
	return &Sampler[A]{do: do, options: options}
}

// Ask starts a call, unless one is in progress or the latest answer may be reused. The channel is closed when the answer is
// there.
func (s *Sampler[A]) Ask() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil {
		return s.running
	}
	done := make(chan struct{})
	if s.options.Clock.Now().Before(s.rest) {
		close(done)
		return done
	}
	ctx, cancel := timeout.Of(context.Background(), s.options.Clock, s.options.Life)
	s.running, s.stop = done, cancel
	go func() {
		defer close(done)
		defer cancel()
		s.call(ctx)
	}()
	return done
}

func (s *Sampler[A]) call(ctx context.Context) {
	now := s.options.Clock.Now
	got := Answer[A]{Began: now()}
	got.Value, got.Err = s.safely(ctx)
	got.Took = now().Sub(got.Began)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest, s.running, s.stop = got, nil, nil
	if got.Err == nil {
		s.good = got
	}
	s.rest = now().Add(max(s.options.MaxAge, time.Duration(s.options.Rest)*got.Took))
}

// safely makes the call. A panic becomes an error: nothing above this goroutine could recover it, and the process would end.
func (s *Sampler[A]) safely(ctx context.Context) (value A, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return s.do(ctx)
}

// Answers returns the latest answer, and the latest one without an error.
func (s *Sampler[A]) Answers() (latest, good Answer[A]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest, s.good
}

// Close cancels the current call and waits for it. Nobody may ask during Close or later.
func (s *Sampler[A]) Close() {
	s.mu.Lock()
	running := s.running
	if running != nil {
		s.stop()
	}
	s.mu.Unlock()
	if running != nil {
		<-running
	}
}

// Wait waits until the channel of an Ask is closed, and reports whether that came before the end of the context.
func Wait(ctx context.Context, asked <-chan struct{}) bool {
	select {
	case <-asked:
		return true
	default:
	}
	select {
	case <-asked:
		return true
	case <-ctx.Done():
		return false
	}
}
