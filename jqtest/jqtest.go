// Package jqtest helps to test applications that enqueue and handle jobs, and stores that keep them.
//
// In a test of an application, NewStore makes a store in memory whose clock the test moves. The test asserts which jobs were
// enqueued, and runs them in its own goroutine, with all their retries and delays:
//
//	store := jqtest.NewStore(t)
//	signUp(jq.NewClient(store, nil), "Ada")
//	jqtest.RequireEnqueued(t, store, jqtest.Want{Payload: Welcome{Name: "Ada"}})
//	ran := jqtest.Drain(t, store, &handlers, nil)
//
// A test of a store runs the conformance suite of jq against an adapter, which may belong to another module:
//
//	func TestConformance(t *testing.T) {
//		jqtest.Run(t, jqtest.Adapter{New: newInstance})
//	}
//
// A case that fails prints the sentence of the contract that the store breaks, and the calls that the case made.
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
//
// Its fields:
//
//	// New makes an empty store that takes its time from clk.
//	New func(ctx context.Context, clk clock.Clock) (*Instance, error)
//
//	// Exclude names cases, or groups of cases as "Tx/", that do not hold for this adapter, each with the reason. What is
//	// not named here must pass: a missing ability is no excuse. If a group is excluded, cases of other groups leave out the steps that need it.
//	Exclude map[string]string
//
//	// AnyOrder is the reason why jobs may be told of several ends in another order than that of the ends, which decides what their errors
//	// name. If it is set, random sequences leave out waits, because the reference model tells them in one order.
//	AnyOrder string
//
// Its methods:
//
//	// Excludes gives the adapter's reason for leaving the case out.
//	func (Adapter) Excludes(name string) (reason string, ok bool)
//	// CheckExclusions refuses exclusions that name no case, or give no reason.
//	func (Adapter) CheckExclusions() error
type Adapter = conformance.Adapter

// An Instance is one store under test.
//
// Its fields:
//
//	// Store is empty, and takes its time from the clock that New was given.
//	Store contract.Store
//
//	// DB opens callers' transactions for a store that is a Transactor.
//	DB *sql.DB
//
//	// Reopen closes the store and opens it again on what it has kept; nil for a store that keeps nothing.
//	Reopen func(ctx context.Context) (contract.Store, error)
//
//	// Remove closes the store and takes away what it has kept; nil if Store.Close does.
//	Remove func() error
type Instance = conformance.Instance

// Run tests the adapter: every case of the contract, each on a fresh store; random sequences of all operations against a
// reference model; and concurrent histories that must be linearizable. If all of it takes too long, run the parts one by one.
// The race detector makes everything many times slower, so with it Run checks fewer histories and no random sequences: run the
// suite without it too.
func Run(t *testing.T, a Adapter) {
	histories := 250
	if race.Enabled {
		histories = 50
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

// Cases runs every case of the contract that the adapter does not exclude, several at the same time.
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

// Random runs random sequences of all operations, and compares the store with a reference model after each one.
func Random(t *testing.T, a Adapter) { random.Run(t, a) }

// perStore is how many histories share a store: with a database, making a store takes longer than a history.
const perStore = 10

// Linear records this many concurrent histories and checks that they are linearizable. Jobs wait for others in them, and for groups, unless
// the adapter excludes Waits/ or Groups/.
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
