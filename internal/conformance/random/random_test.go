package random

import (
	"context"
	"testing"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"

	"github.com/seed-ed332417/jq/internal/conformance"
	"github.com/seed-ed332417/jq/internal/conformance/model"
	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/internal/store"
)

// modelWith is the model with faults, as an adapter.
func modelWith(faults ...model.Fault) conformance.Adapter {
	return conformance.Adapter{New: func(_ context.Context, clk clock.Clock) (*conformance.Instance, error) {
		return &conformance.Instance{Store: model.New(clk, faults...)}, nil
	}}
}

func TestModelAgreesWithItself(t *testing.T) {
	if race.Enabled {
		t.Skip("left to the pass without the race detector: there is one call at a time, and no race to be found")
	}
	Run(t, modelWith())
}

// beyond are the faults that scripts of single calls can not notice, with the reason. Cases of the suite must.
var beyond = map[model.Fault]string{
	model.PatternsAreLike:        "no queue has an underscore",
	model.ClaimUnlocked:          "calls do not overlap",
	model.AckUnlocked:            "calls do not overlap",
	model.RecoverUnlocked:        "calls do not overlap",
	model.PolicyUnlocked:         "calls do not overlap",
	model.SlicesKept:             "slices are not changed after a call",
	model.SlicesHandedOut:        "slices are not changed after a call",
	model.ClaimUnweighed:         "no script's jobs weigh so much",
	model.PageUnweighed:          "no script's jobs weigh so much",
	model.WeightOfPayloadsOnly:   "no script's jobs weigh so much",
	model.HeavyJobSkipped:        "no script's jobs weigh so much",
	model.HistoryUnbounded:       "no job has more than a hundred attempts",
	model.WorkersNeverStale:      "no worker is registered",
	model.WorkersNeverForgotten:  "no worker is registered",
	model.TimeStepsBack:          "the clock is not set back",
	model.EpochUnbounded:         "no script comes to the last epoch",
	model.PolicyGoesWithJobs:     "hardly any script deletes the last job of a queue that has a policy",
	model.PingOfClosed:           "the store is closed at the end only",
	model.CloseIgnored:           "the store is closed at the end only",
	model.ContextIgnored:         "no context ends before a call",
	model.TimeStandsStill:        "the clock is not set back",
	model.TimeFollowsEarly:       "the clock is not set back",
	model.AheadLeaseStuck:        "the clock is not set back",
	model.AheadLeaseEarly:        "the clock is not set back",
	model.AheadLeaseByItsEnd:     "the clock is not set back",
	model.AheadLeaseExpires:      "the clock is not set back",
	model.AheadLeaseFenced:       "the clock is not set back",
	model.AheadLeaseOverLimit:    "the clock is not set back",
	model.AheadLeaseNearestFirst: "the clock is not set back",
	model.LeaseUnbounded:         "no script asks for so long a lease",
	model.LeaveKeepsTheRow:       "no worker is registered",
	model.LeaveRemovesAll:        "no worker is registered",
	model.LeaveIsForEver:         "no worker is registered",
	model.LeaveOfNobodyFails:     "no worker is registered",
	model.WorkersNameIgnored:     "no worker is registered",
	model.WorkersNameBeginsAlike: "no worker is registered",
	model.WorkersUnlimited:       "no worker is registered",
	model.WorkersUnweighed:       "no worker is registered",
	model.WorkersWeighedShort:    "no worker is registered",
	model.WorkersNextAfterLast:   "no worker is registered",
	model.WorkersPageOverlaps:    "no worker is registered",
	model.WorkersPageLosesPlace:  "no worker is registered",
	model.WorkersCursorUnchecked: "no worker is registered",

	model.ScheduleSharesSlices:     "slices are not changed after a call",
	model.ScheduleRevisionRestarts: "stores number revisions as they like",
	model.ScheduleRevisionStays:    "stores number revisions as they like",
	model.ScheduleRepeatChanges:    "stores number revisions as they like",
	model.FireKeepsRevision:        "stores number revisions as they like",
	model.SchedulesUnweighed:       "no script's schedules weigh so much",
	model.SchedulesWeighedShort:    "no script's schedules weigh so much",
	model.SchedulesCursorUnchecked: "no script asks with the cursor of another filter",
	model.FireUnlimited:            "no script fires so many",
	model.FireOverlaps:             "hardly any script fires a schedule again that must not overlap",
	model.FireSkipsAfterEnd:        "hardly any script fires a schedule again that must not overlap",
	model.FireSkipsAfterDeletion:   "hardly any script fires a schedule again that must not overlap",
	model.FireSkipMovesLast:        "hardly any script fires a schedule again that must not overlap",
}

// tries is how many scripts a fault may survive.
const tries = 150

func TestFaultsAreFound(t *testing.T) {
	if race.Enabled {
		t.Skip("broken stores are left to the pass without the race detector: what is looked for in them is no race")
	}
	for _, m := range model.Faults() {
		if _, ok := beyond[m.Fault]; ok {
			continue
		}
		t.Run(string(m.Fault), func(t *testing.T) {
			t.Parallel()
			err := firstFailure(t.Context(), modelWith(m.Fault))
			assert.Error(t, err, "%d scripts did not notice: %s", tries, m.Breaks)
		})
	}
}

// firstFailure plays scripts of fixed seeds until one fails.
func firstFailure(ctx context.Context, a conformance.Adapter) error {
	for seed := range tries {
		if err := play(ctx, a, scripts.Example(seed), newTally()); err != nil {
			return err
		}
	}
	return nil
}

// A run that tries nothing must not pass for one that found nothing.
func TestGapsAreSeen(t *testing.T) {
	nothing := newTally().gaps()
	assert.Contains(t, nothing, "delete never met a job that was gone")
	assert.Contains(t, nothing, "claim never changed a job that was retrying")
	assert.Contains(t, nothing, "save never met a stale lease")

	some := newTally()
	some.outcome(store.OpSave, map[int64]store.State{}, store.Outcome{ID: 1, Status: store.StatusNotFound})
	some.outcome(store.OpSave, map[int64]store.State{1: store.Dead}, store.Outcome{ID: 1, Status: store.StatusStale})
	assert.Subset(t, nothing, some.gaps())
	assert.NotContains(t, some.gaps(), "save never met a job that was gone")
	assert.NotContains(t, some.gaps(), "save never met a job that was dead")
	assert.NotContains(t, some.gaps(), "save never met a stale lease")
	assert.Len(t, some.gaps(), len(nothing)-3)
}
