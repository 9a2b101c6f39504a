package conformance_test

import (
	"context"
	"strings"
	"testing"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/conformance"
	"github.com/seed-ed332417/jq/internal/conformance/model"
	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/internal/race"
)

// broken is the reference model with faults, as an adapter of the suite.
func broken(faults ...model.Fault) conformance.Adapter {
	return conformance.Adapter{
		New: func(_ context.Context, clk clock.Clock) (*conformance.Instance, error) {
			return &conformance.Instance{Store: model.New(clk, faults...)}, nil
		},
		Exclude: map[string]string{
			"Tx/":     "the model has no callers' transactions: it is a reference for what a store does by itself",
			"Notify/": "the model wakes nobody up: a wake-up changes no job",
			"Reopen/": "the model keeps nothing",
		},
	}
}

// The store that all mutants are made of passes, so that what kills a mutant is its fault.
func TestTheUnbrokenModelPasses(t *testing.T) {
	if race.Enabled {
		t.Skip("left to the pass without the race detector: the model has one lock, and the stores that run there are in use")
	}
	whole := broken()
	require.NoError(t, whole.CheckExclusions())
	for _, k := range conformance.Cases() {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			result := conformance.Run(t.Context(), whole, k)
			assert.False(t, result.Failed, "%s", strings.Join(result.Log, "\n"))
		})
	}
}

// A suite that a broken store passes is broken itself: each mutant breaks one promise, and a case of the group that is about it, run alone,
// must notice.
func TestMutantsAreKilled(t *testing.T) {
	if race.Enabled {
		t.Skip("broken stores are left to the pass without the race detector: what is looked for in them is no race")
	}
	mutants := model.Faults()
	require.GreaterOrEqual(t, len(mutants), 30)
	killed := make([]bool, len(mutants))
	t.Run("each", func(t *testing.T) {
		for i, m := range mutants {
			t.Run(string(m.Fault), func(t *testing.T) {
				t.Parallel()
				killer := killerOf(t, m)
				killed[i] = killer != ""
				assert.True(t, killed[i], "no case of group %s notices: %s", m.Group, m.Breaks)
				t.Logf("%s: killed by %s", m.Breaks, killer)
			})
		}
	})
	dead := 0
	for _, k := range killed {
		if k {
			dead++
		}
	}
	figures.Print(t, "%s: %d of %d mutants killed, each by a case of the group that is about it", t.Name(), dead, len(mutants))
}

// killerOf runs the cases of the mutant's group, each alone, until one fails by what it finds, and returns its name.
func killerOf(t *testing.T, m model.Mutant) string {
	t.Helper()
	for _, k := range conformance.Cases() {
		if !strings.HasPrefix(k.Name, m.Group+"/") {
			continue
		}
		result := conformance.Run(t.Context(), broken(m.Fault), k)
		assert.False(t, result.Hung, "%s hangs on %s, and a mutant must not die of patience:\n%s", k.Name, m.Fault, strings.Join(result.Log, "\n"))
		if result.Failed && !result.Hung {
			return k.Name
		}
	}
	return ""
}
