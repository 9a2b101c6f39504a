// Package linear checks that a store is linearizable: that the answers to calls made at the same time are those of some
// order in which the calls were made one after another.
//
// Many small histories are recorded from real goroutines on a few jobs, with a clock that moves beside them and answers
// that get lost, and are judged by porcupine: each unique key with all its jobs, and each other job, on its own. A claim may
// return any claimable jobs up to its limit, so that a job which it did not return is no event.
package linear

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/conformance"
)

// What a run must have seen to count, as shares of its histories.
const (
	MinOverlap   = 0.5 // two claims on one queue overlapped, and one of them returned a job
	MinLostLease = 0.5 // a lease was used by one who had lost it
	MinInDoubt   = 0.3 // an answer got lost
)

// Of each history: how many clients call at once, and how many calls each of them makes.
const (
	clients = 4
	calls   = 12
)

// Options say how much is tried. What is zero has a default.
type Options struct {
	Histories int    // how many; 300
	Seed      uint64 // history i has the script of Seed+i; 1
	PerStore  int    // histories on one store, for stores that are slow to make; 1
}

// A Report is what a run has seen.
type Report struct {
	Histories  int
	Operations int // calls recorded
	Parts      int // jobs and keys judged
	Overlap    int // histories that count for MinOverlap
	LostLease  int // histories that count for MinLostLease
	InDoubt    int // histories that count for MinInDoubt
	Took       time.Duration
}

// String is one line of figures.
func (r Report) String() string {
	return fmt.Sprintf("%d histories, %d operations, %d jobs and keys; with overlapping claims %.0f %%, a lost lease %.0f %%, an answer in doubt %.0f %%; in %v",
		r.Histories, r.Operations, r.Parts, 100*r.share(r.Overlap), 100*r.share(r.LostLease), 100*r.share(r.InDoubt),
		r.Took.Round(time.Millisecond))
}

func (r Report) share(n int) float64 { return float64(n) / float64(max(r.Histories, 1)) }

// Shortfall says which floors were missed: a run that never collided proves nothing.
func (r Report) Shortfall() error {
	var missed []error
	floor := func(what string, n int, least float64) {
		if r.share(n) < least {
			missed = append(missed, fmt.Errorf("%s: in %d of %d histories, want at least %.0f %%", what, n, r.Histories, 100*least))
		}
	}
	floor("overlapping claims", r.Overlap, MinOverlap)
	floor("a lost lease", r.LostLease, MinLostLease)
	floor("an answer in doubt", r.InDoubt, MinInDoubt)
	return errors.Join(missed...)
}

// Check records histories on fresh stores of the adapter and judges them. It ends at the first one that is not
// linearizable, or could not be judged in time, with a [*Violation].
func Check(ctx context.Context, a conformance.Adapter, opts Options) (Report, error) {
	opts.Histories, opts.Seed, opts.PerStore = cmp.Or(opts.Histories, 300), cmp.Or(opts.Seed, 1), cmp.Or(opts.PerStore, 1)
	started := time.Now()
	var report Report
	var err error
	for err == nil && report.Histories < opts.Histories {
		err = checkStore(ctx, a, opts, &report)
	}
	report.Took = time.Since(started)
	return report, err
}

// checkStore runs the histories that share one store.
func checkStore(ctx context.Context, a conformance.Adapter, opts Options, report *Report) (err error) {
	clk := clock.NewMock()
	clk.Set(epoch)
	instance, err := a.New(ctx, clk)
	if err != nil {
		return fmt.Errorf("opening a fresh store: %w", err)
	}
	remove := instance.Remove
	if remove == nil {
		remove = instance.Store.Close
	}
	defer func() {
		if removed := remove(); err == nil && removed != nil {
			err = fmt.Errorf("removing the store: %w", removed)
		}
	}()

	for range min(opts.PerStore, opts.Histories-report.Histories) {
		h := newHistory(instance.Store, clk, opts, opts.Seed+uint64(report.Histories))
		if err := h.run(ctx); err != nil {
			return fmt.Errorf("history with seed %d: %w", h.seed, err)
		}
		parts := h.parts()
		report.add(h, len(parts))
		for _, p := range parts {
			if err := p.judge(h.seed); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Report) add(h *history, parts int) {
	count := func(n *int, seen bool) {
		if seen {
			*n++
		}
	}
	r.Histories++
	r.Operations += len(h.records)
	r.Parts += parts
	count(&r.Overlap, h.hasOverlap())
	count(&r.LostLease, h.hasLostLease())
	count(&r.InDoubt, h.hasDoubt())
}
