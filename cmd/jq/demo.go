package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq"
)

const (
	demoQueue   = "mail"
	demoLease   = 30 * time.Second
	demoBackoff = time.Second
	demoPause   = 1500 * time.Millisecond // long enough to read a line
)

// demoStart is when the simulated time begins: a round hour, so that seconds are easy to follow.
var demoStart = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func demo(flags *flag.FlagSet, std streams) action {
	fast := flags.Bool("fast", false, "tell it without pauses, as when the output is no terminal")
	return func(ctx context.Context) error {
		clk := clock.NewMock()
		clk.Set(demoStart)
		s := &story{store: jq.NewMemory(&jq.MemoryOptions{Clock: clk}), clock: clk, out: bufio.NewWriter(std.out)}
		if !*fast && isTerminal(std.out) {
			s.pause = demoPause
		}
		return cmp.Or(s.tell(ctx), s.store.Close())
	}
}

// A story is the demo under way. Each of its lines is an answer of the store, and an answer that does not fit the story
// ends it with an error.
type story struct {
	store jq.Store
	clock *clock.Mock
	out   *bufio.Writer // remembers a failed write until the next Flush
	pause time.Duration // of real time between steps

	lost  jq.Job // as worker A claimed it
	again jq.Job // the same, as worker B claimed it
	rest  []jq.Job
}

func (s *story) tell(ctx context.Context) error {
	fmt.Fprintf(s.out, "Two workers, three jobs, one crash. The store is in memory and time is simulated.\n\n")
	steps := []struct {
		after time.Duration // of simulated time
		step  func(ctx context.Context) error
	}{
		{0, s.enqueue},
		{0, s.claimByA},
		{5 * time.Second, s.crashOfA},
		{15 * time.Second, s.recoverTooEarly},
		{10 * time.Second, s.recoverLease},
		{demoBackoff, s.claimByB},
		{2 * time.Second, s.ackByB},
		{27 * time.Second, s.lateAckByA},
		{0, s.printJobs},
		{0, s.printHistory},
	}
	for i, next := range steps {
		if i > 0 {
			if err := wait(ctx, s.pause); err != nil {
				return err
			}
		}
		s.clock.Add(next.after)
		if err := next.step(ctx); err != nil {
			return cmp.Or(err, s.out.Flush())
		}
		if err := s.out.Flush(); err != nil {
			return fmt.Errorf("writing the story: %w", err)
		}
	}
	return nil
}

// say prints what happened to whom, at the simulated time.
func (s *story) say(who, format string, args ...any) {
	fmt.Fprintf(s.out, "%s  %-8s  %s\n", clockTime(s.clock.Now()), who, fmt.Sprintf(format, args...))
}

// expect is an error unless the store's answer is the one that the contract promises.
func expect[T comparable](what string, got, want T) error {
	if got == want {
		return nil
	}
	return fmt.Errorf("the store broke its contract, please report it: %s: got %v, want %v", what, got, want)
}

func clockTime(t time.Time) string { return t.UTC().Format(time.TimeOnly) }

// wait lets d of real time pass, unless the context ends.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return errors.New("interrupted")
	case <-time.After(d):
		return nil
	}
}

// isTerminal says whether somebody may be watching: pauses are for people only.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
