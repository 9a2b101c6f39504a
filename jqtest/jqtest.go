// Package jqtest proves stores: it runs the conformance suite of jq against any adapter, also one outside this module.
//
//	func TestConformance(t *testing.T) {
//		jqtest.Run(t, jqtest.Adapter{New: newInstance})
//	}
//
// A case that fails prints the sentence of the contract that was broken.
package jqtest

import (
	"testing"

	"github.com/seed-ed332417/jq/internal/conformance"
	"github.com/seed-ed332417/jq/internal/conformance/linear"
	"github.com/seed-ed332417/jq/internal/conformance/random"
	"github.com/seed-ed332417/jq/internal/figures"
)

// An Adapter is a kind of store, as the suite sees it.
type Adapter = conformance.Adapter

// An Instance is one store under test.
type Instance = conformance.Instance

// Run proves the adapter: every case of the contract, each on a fresh store; random sequences of all operations against a
// reference model; and concurrent histories that must be linearizable.
func Run(t *testing.T, a Adapter) {
	t.Run("Cases", func(t *testing.T) { runCases(t, a) })
	t.Run("Random", func(t *testing.T) { random.Run(t, a) })
	t.Run("Linear", func(t *testing.T) { runLinear(t, a) })
}

func runCases(t *testing.T, a Adapter) {
	if err := a.CheckExclusions(); err != nil {
		t.Fatal(err)
	}
	ran, excluded := 0, 0
	for _, k := range conformance.Cases() {
		t.Run(k.Name, func(t *testing.T) {
			result := conformance.Run(t.Context(), a, k)
			for _, line := range result.Log {
				t.Log(line)
			}
			switch {
			case result.Excluded != "":
				excluded++
				t.Skipf("excluded by the adapter: %s", result.Excluded)
			case result.Failed:
				t.Fail()
			}
			ran++
		})
	}
	figures.Print(t, "%s: %d cases of the contract, %d excluded", t.Name(), ran, excluded)
}

func runLinear(t *testing.T, a Adapter) {
	report, err := linear.Check(t.Context(), a, linear.Options{})
	if err != nil {
		t.Fatal(err)
	}
	figures.Print(t, "%s: %v", t.Name(), report)
	if err := report.Shortfall(); err != nil {
		t.Error(err)
	}
}
