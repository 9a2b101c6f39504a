package cli

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/spf13/cobra"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/sqlite"
)

const (
	demoQueue   = "mail"
	demoLease   = 30 * time.Second
	demoBackoff = time.Second
)

// The limits of a real pause between two steps. In total the demo takes about a minute.
const (
	shortPause = 2500 * time.Millisecond // long enough to read a line
	longPause  = 14 * time.Second
)

// demoStart is the start of the simulated time: a full hour, so that times are easy to compare.
var demoStart = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func (a *app) demo() *cobra.Command {
	var fast bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "watch a worker crash, its job run again, and its late write refused",
		Long: "Watch a worker crash. Its lease expires, another worker runs its job, and the store refuses its late write. The demo takes\n" +
			"about a minute. It uses a real store in an SQLite file, and removes the file at the end.",
		Args:        takesNone(),
		Annotations: map[string]string{storeless: ""},
	}
	cmd.Flags().BoolVar(&fast, "fast", false, "do not pause between steps; the default if the output is not a terminal")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		folder, err := os.MkdirTemp("", "jq-demo-")
		if err != nil {
			return fmt.Errorf("making a folder for the demo's file: %w", err)
		}
		defer func() { err = cmp.Or(err, os.RemoveAll(folder)) }()
		clk := clock.NewMock()
		clk.Set(demoStart)
		store, err := sqlite.Open(cmd.Context(), filepath.Join(folder, "jobs.db"), &sqlite.Options{Clock: clk})
		if err != nil {
			return err
		}
		s := &story{store: store, clock: clk, out: a.out, slow: !fast && isTerminal(a.std.out)}
		told := s.run(cmd.Context())
		return cmp.Or(told, store.Close())
	}
	return cmd
}

// A story is the state of the demo. Each line shows an answer of the store. An unexpected answer ends the demo with an error.
type story struct {
	store jq.Store
	clock *clock.Mock
	out   *bufio.Writer // reports a failed write on Flush
	slow  bool          // pause in real time between steps

	lost  jq.Job   // as worker A claimed it
	again jq.Job   // the same job, as worker B claimed it
	last  []jq.Job // the other jobs, as worker B claimed them
}

func (s *story) run(ctx context.Context) error {
	fmt.Fprintf(s.out, "Two workers, three jobs, one crash. The store is an SQLite file and time is simulated.\n\n")
	steps := []struct {
		after time.Duration // simulated time
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
			if err := s.rest(ctx, next.after); err != nil {
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

// rest pauses between two steps, so that the user can read.
func (s *story) rest(ctx context.Context, after time.Duration) error {
	if !s.slow {
		return wait(ctx, 0)
	}
	return wait(ctx, min(max(after, shortPause), longPause))
}

// say prints a line with the simulated time and the actor.
func (s *story) say(who, format string, args ...any) {
	fmt.Fprintf(s.out, "%s  %-8s  %s\n", clockTime(s.clock.Now()), who, fmt.Sprintf(format, args...))
}

// expect returns an error unless the store gave the answer that the contract requires.
func expect[T comparable](what string, got, want T) error {
	if got == want {
		return nil
	}
	return fmt.Errorf("the store broke its contract, please report it: %s: got %v, want %v", what, got, want)
}

func clockTime(t time.Time) string { return t.UTC().Format(time.TimeOnly) }

// wait sleeps for d, or until the context ends.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
