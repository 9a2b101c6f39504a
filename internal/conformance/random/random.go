// Package random plays random scripts of every operation on a store and on the reference model side by side, on one clock,
// and compares each answer, and after each step all that the two keep.
//
// A script names jobs and leases by their place in the run and not by their ids, so that it means the same after lines were
// taken out of it: a script that fails shrinks to one that is short enough to read.
package random

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-ed332417/jq/internal/conformance"
	"github.com/seed-ed332417/jq/internal/conformance/model"
	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/internal/store"
)

// minOps is how many operations a run plays at least, in lanes at the same time: a store that waits for a disk or a server leaves
// the processors to others.
const (
	minOps = 20_000
	lanes  = 2
)

// Run plays scripts on stores of the adapter, each on a fresh one. It fails where a store and the model differ, with the
// shortest script found and what to pass to go test to play it again, and where what it tried was too little.
func Run(t *testing.T, a conformance.Adapter) {
	t.Helper()
	var tallies [lanes]*tally
	for i := range tallies {
		tallies[i] = newTally()
	}
	t.Run("Lane", func(t *testing.T) {
		for i := range tallies {
			t.Run(fmt.Sprint(i+1), func(t *testing.T) {
				t.Parallel()
				playMany(t, a, tallies[i])
			})
		}
	})
	tried := newTally()
	for _, lane := range tallies {
		tried.add(lane)
	}
	figures.Print(t, "%s: %d operations in %d random sequences agree with the reference model", t.Name(), tried.ops, tried.scripts)
	for _, gap := range tried.gaps(keepsNone(a)) {
		t.Errorf("the scripts have not tried enough: %s", gap)
	}
}

// playMany plays a lane's share of the operations.
func playMany(t *testing.T, a conformance.Adapter, tried *tally) {
	for tried.ops < minOps/lanes {
		before := tried.ops
		rapid.Check(t, func(rt *rapid.T) {
			if err := play(rt.Context(), a, scripts.Draw(rt, "script"), tried); err != nil {
				rt.Fatalf("%v", err)
			}
		})
		if tried.ops == before {
			t.Fatal("no operation was played: -rapid.checks must not be zero")
		}
	}
}

// keepsNone says of an adapter that its stores keep no waits, or none that the model can foretell.
func keepsNone(a conformance.Adapter) bool {
	_, none := a.Excludes("Waits/")
	return none || a.AnyOrder != ""
}

// play plays one script on a fresh store.
func play(ctx context.Context, a conformance.Adapter, todo script, tried *tally) (err error) {
	s, clk, remove, err := conformance.Fresh(ctx, a)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	r := &run{ctx: ctx, clk: clk, store: s, model: model.New(clk), tried: tried, noWaits: keepsNone(a), rows: map[int64]store.Job{}}
	_, r.noKeyLimits = a.Excludes(conformance.NoKeyLimits)
	tried.scripts++
	for _, o := range todo.ops() {
		tried.ops++
		r.journal = append(r.journal, o.text)
		if err := r.step(o); err != nil {
			return fmt.Errorf("%w\n\nafter these steps:\n\t%s", err, strings.Join(r.journal, "\n\t"))
		}
	}
	return r.compareDetails(r.ids)
}
