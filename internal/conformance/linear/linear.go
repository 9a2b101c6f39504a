// Package linear checks that a store is linearizable: that the answers to calls made at the same time are those of some
// order in which the calls were made one after another.
//
// Many small histories are recorded from real goroutines on a few jobs, with a clock that moves beside them and answers
// that get lost, and are judged by porcupine: each unique key with all its jobs, and each other job, on its own. A claim may
// return any claimable jobs up to its limit, so that a job which it did not return is no event.
//
// Some histories limit how many jobs of a queue are in flight, how many with the same limit key, or how many are claimed in a span of time. That
// concerns jobs together, so it is counted apart: a job is in flight at least from when its claim has returned until a call is made that may end
// its lease, and it was claimed when its row says. In others, or in the same, limit keys take turns. In which order they do is for the cases of the
// suite: here, nothing may be lost or handed out twice over it.
//
// Jobs that wait for others are judged on their own too. What the others bring about enters their parts as events that may come at any time
// after the first call which makes them possible: so no job is unblocked or cancelled before that. A store that forgets somebody shows it
// when all is quiet: then nobody may be blocked whose waits are met, and nobody may have run whose waits are not.
package linear

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/conformance"
)

// floors are what a run must have seen to count, and in which share of its histories at least.
var floors = [...]struct {
	what  string
	least float64
	in    func(*history) bool
}{
	{"overlapping claims", 0.5, (*history).hasOverlap},
	{"a lost lease", 0.5, (*history).hasLostLease},
	{"an answer in doubt", 0.3, (*history).hasDoubt},
	{unblocking, 0.04, (*history).hasUnblocked},
	{filling, 0.1, (*history).hasFullQueue},
	{fillingKeys, 0.1, (*history).hasFullKey},
	{rating, 0.08, (*history).hasFullRate},
}

// The floors that stores without waits or without limits do not have.
const (
	unblocking  = "a job unblocked"
	filling     = "a full queue"
	fillingKeys = "a full limit key"
	rating      = "a rate used up"
)

// Of each history: how many clients call at once, and how many calls each of them makes.
const (
	clients = 4
	calls   = 12
)

// Options say how much is tried. What is zero has a default.
type Options struct {
	Histories int    // how many; 250
	Seed      uint64 // history i has the script of Seed+i; 1
	PerStore  int    // histories on one store, for stores that are slow to make; 1
}

// A Report is what a run has seen.
type Report struct {
	Histories  int
	Operations int              // calls recorded
	Parts      int              // jobs and keys judged
	Met        [len(floors)]int // histories that count for each of the floors
	Lacks      []string         // floors that do not count, because the adapter excludes what they are about
	Took       time.Duration
}

// String is one line of figures.
func (r Report) String() string {
	var met []string
	for i, f := range floors {
		if slices.Contains(r.Lacks, f.what) {
			continue
		}
		met = append(met, fmt.Sprintf("%s %.0f %%", f.what, 100*r.share(i)))
	}
	return fmt.Sprintf("%d histories, %d operations, %d jobs and keys; with %s; in %v",
		r.Histories, r.Operations, r.Parts, strings.Join(met, ", "), r.Took.Round(time.Millisecond))
}

func (r Report) share(floor int) float64 { return float64(r.Met[floor]) / float64(max(r.Histories, 1)) }

// Shortfall says which floors were missed: a run that never collided proves nothing.
func (r Report) Shortfall() error {
	var missed []error
	for i, f := range floors {
		if r.share(i) < f.least && !slices.Contains(r.Lacks, f.what) {
			missed = append(missed, fmt.Errorf("%s: in %d of %d histories, want at least %.0f %%", f.what, r.Met[i], r.Histories, 100*f.least))
		}
	}
	return errors.Join(missed...)
}

// Check records histories on fresh stores of the adapter and judges them. It ends at the first one that is not
// linearizable, or could not be judged in time, with a [*Violation].
func Check(ctx context.Context, a conformance.Adapter, opts Options) (Report, error) {
	opts.Histories, opts.Seed, opts.PerStore = cmp.Or(opts.Histories, 250), cmp.Or(opts.Seed, 1), cmp.Or(opts.PerStore, 1)
	started := time.Now()
	var report Report
	for group, lacks := range map[string][]string{
		"Waits/": {unblocking}, "Groups/": {unblocking}, "Limits/": {filling, rating}, conformance.NoKeyLimits: {fillingKeys},
	} {
		for _, floor := range lacks {
			if _, excluded := a.Excludes(group); excluded && !slices.Contains(report.Lacks, floor) {
				report.Lacks = append(report.Lacks, floor)
			}
		}
	}
	var err error
	for err == nil && report.Histories < opts.Histories {
		err = checkStore(ctx, a, opts, &report)
	}
	report.Took = time.Since(started)
	return report, err
}

// checkStore runs the histories that share one store.
func checkStore(ctx context.Context, a conformance.Adapter, opts Options, report *Report) (err error) {
	s, clk, remove, err := conformance.Fresh(ctx, a)
	if err != nil {
		return err
	}
	defer func() {
		if removed := remove(); err == nil && removed != nil {
			err = fmt.Errorf("removing the store: %w", removed)
		}
	}()

	for range min(opts.PerStore, opts.Histories-report.Histories) {
		h := newHistory(s, clk, opts, report.Lacks, opts.Seed+uint64(report.Histories))
		if err := h.run(ctx); err != nil {
			return fmt.Errorf("history with seed %d: %w", h.seed, err)
		}
		parts := h.parts()
		report.Histories++
		report.Operations += len(h.records)
		report.Parts += len(parts)
		for i, f := range floors {
			if f.in(h) {
				report.Met[i]++
			}
		}
		for _, p := range parts {
			if err := p.judge(h.seed); err != nil {
				return err
			}
		}
		if err := cmp.Or(h.judgeRest(parts), h.judgeLimits()); err != nil {
			return err
		}
	}
	return nil
}
