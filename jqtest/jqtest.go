// Package jqtest is for tests: of applications that enqueue and handle jobs, and of stores that keep them.
//
// A test of an application has a store in memory whose clock it moves itself. It asserts what was enqueued, and runs that in its
// own goroutine, with all the retries and delays that are to come:
//
//	store := jqtest.NewStore(t)
//	signUp(jq.NewClient(store, nil), "Ada")
//	jqtest.RequireEnqueued(t, store, jqtest.Want{Payload: Welcome{Name: "Ada"}})
//	ran := jqtest.Drain(t, store, &handlers, nil)
//
// A test of a store runs the conformance suite of jq, against any adapter, also one outside this module:
//
//	func TestConformance(t *testing.T) {
//		jqtest.Run(t, jqtest.Adapter{New: newInstance})
//	}
//
// A case that fails prints the sentence of the contract that was broken, and the calls that it made.
package jqtest

import (
	"sync/atomic"
	"testing"

	"github.com/seed-ed332417/jq/internal/conformance"
	"github.com/seed-ed332417/jq/internal/conformance/linear"
	"github.com/seed-ed332417/jq/internal/conformance/random"
	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/internal/race"
)

// An Adapter is a kind of store, as the suite sees it.
type Adapter = conformance.Adapter

// An Instance is one store under test.
type Instance = conformance.Instance

// Run proves the adapter: every case of the contract, each on a fresh store; random sequences of all operations against a
// reference model; and concurrent histories that must be linearizable. The parts can be run one by one, where all of them
// take too long. Under the race detector, which makes everything many times slower, there are fewer histories, and no random
// sequences: run the suite without it too.
func Run(t *testing.T, a Adapter) {
	histories := 300
	if race.Enabled {
		histories = 60
	}
	t.Run("Cases", func(t *testing.T) { Cases(t, a) })
	t.Run("Random", func(t *testing.T) {
		if race.Enabled {
			t.Skip("not under the race detector: random sequences make one call at a time, so that there is no race to be found")
		}
		Random(t, a)
	})
	t.Run("Linear", func(t *testing.T) { Linear(t, a, histories) })
}

// Cases runs every case of the contract that the adapter does not exclude, several at once.
func Cases(t *testing.T, a Adapter) {
	if err := a.CheckExclusions(); err != nil {
		t.Fatal(err)
	}
	var ran, excluded atomic.Int64
	t.Cleanup(func() {
		figures.Print(t, "%s: %d cases of the contract, %d excluded", t.Name(), ran.Load(), excluded.Load())
	})
	for _, k := range conformance.Cases() {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			if _, ok := a.Excludes(k.Name); ok {
				excluded.Add(1)
			} else {
				ran.Add(1)
			}
			conformance.Test(t, a, k)
		})
	}
}

// Random plays random sequences of all operations and compares the store with a reference model after each.
func Random(t *testing.T, a Adapter) { random.Run(t, a) }

// perStore is how many histories share a store: making one takes a database longer than a history.
const perStore = 10

// Linear records so many concurrent histories and checks that they are linearizable.
func Linear(t *testing.T, a Adapter, histories int) {
	report, err := linear.Check(t.Context(), a, linear.Options{Histories: histories, PerStore: perStore})
	if err != nil {
		t.Fatal(err)
	}
	figures.Print(t, "%s: %v", t.Name(), report)
	if err := report.Shortfall(); err != nil {
		t.Error(err)
	}
}
