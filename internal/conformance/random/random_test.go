package random

import (
	"context"
	"maps"
	"slices"
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

// beyond are the faults that scripts of single calls can not notice, by the reason. Cases of the suite must.
var beyond = map[string][]model.Fault{
	"no queue has an underscore":                     {model.PatternsAreLike},
	"no job of a script has 65 waits":                {model.MoreWaitsAccepted},
	"no repeat has other waits, or other limit keys": {model.RepeatIgnoresWaits, model.RepeatIgnoresLimitKey},
	"no script has so long a limit key":              {model.LimitKeyUnchecked},
	"calls do not overlap": {
		model.ClaimUnlocked, model.AckUnlocked, model.RecoverUnlocked, model.SettleUnlocked, model.PolicyUnlocked, model.LimitUnlocked,
		model.KeyLimitUnlocked, model.RateUnlocked, model.FairUnlocked, model.OrderUnlocked,
		model.GroupsSeenBefore, model.WaitsSeenBefore,
	},
	"slices are not changed after a call":     {model.SlicesKept, model.ReplaceSharesSlices, model.SlicesHandedOut, model.ScheduleSharesSlices},
	"no script's jobs weigh so much":          {model.ClaimUnweighed, model.PageUnweighed, model.WeightOfPayloadsOnly, model.HeavyJobSkipped, model.FullKeyWeighs, model.FairHeavySkipped, model.FairHeavyLosesTurn},
	"no job has more than a hundred attempts": {model.HistoryUnbounded},
	"no worker is registered": {
		model.WorkersNeverStale, model.WorkersNeverForgotten, model.LeaveKeepsTheRow, model.LeaveRemovesAll,
		model.LeaveIsForEver, model.LeaveOfNobodyFails, model.WorkersNameIgnored, model.WorkersNameBeginsAlike,
		model.WorkersUnlimited, model.WorkersUnweighed, model.WorkersWeighedShort, model.WorkersNextAfterLast,
		model.WorkersPageOverlaps, model.WorkersPageLosesPlace, model.WorkersCursorUnchecked,
	},
	"the clock is not set back": {
		model.TimeStepsBack, model.TimeStandsStill, model.TimeFollowsEarly, model.AheadLeaseStuck, model.AheadLeaseEarly,
		model.AheadLeaseByItsEnd, model.AheadLeaseExpires, model.AheadLeaseFenced, model.AheadLeaseOverLimit,
		model.AheadLeaseNearestFirst, model.RateForgetsAhead, model.RateKeepsAhead, model.KeyForgetsExpired,
	},
	"no script sets so high a limit":                                      {model.LimitUnchecked, model.KeyLimitUnchecked, model.RateUnchecked},
	"no script comes to the last epoch":                                   {model.EpochUnbounded},
	"hardly any script deletes the last job of a queue that has a policy": {model.PolicyGoesWithJobs},
	"the store is closed at the end only":                                 {model.PingOfClosed, model.CloseIgnored},
	"no context ends before a call":                                       {model.ContextIgnored},
	"no script asks for so long a lease":                                  {model.LeaseUnbounded},
	"stores number revisions as they like": {
		model.ScheduleRevisionRestarts, model.ScheduleRevisionStays, model.ScheduleRepeatChanges, model.FireKeepsRevision,
	},
	"hardly any script replaces a rate by another one":                          {model.RateBeginsAnew, model.RateLooksBack},
	"hardly any script claims in turns from two fair queues with the same keys": {model.FairOfAllQueues},
	"hardly any script lists a queue whose policy sets Fair only":               {model.FairUnlisted},
	"no script declares a policy":                                               {model.PolicyOwnerLost, model.PolicyOwnerListed, model.PolicyDeclaredGrows},
	"no script's schedules weigh so much":                                       {model.SchedulesUnweighed, model.SchedulesWeighedShort},
	"no script asks with the cursor of another filter":                          {model.SchedulesCursorUnchecked},
	"no script adds activity: its cases compare whole answers": {
		model.ActivityUnchecked, model.ActivityFilterUnchecked, model.ActivityByCaller, model.ActivityReplaces, model.ActivityOncePerCall,
		model.ActivityForgetsEarly, model.ActivityDeletesJobs, model.ActivityKeepsEmpty, model.ActivityUnsorted, model.ActivityUnaligned,
		model.ActivityWeekByMinute, model.ActivityOneSpanMore, model.ActivityIgnoresQueues, model.ActivityIgnoresKind,
		model.ActivityKindsOfAllQueues, model.ActivityFromYearOne, model.ActivityUnlocked, model.ActivityLosesHistograms,
	},
	"no script fires so many":                                                 {model.FireUnlimited},
	"hardly any script requeues what has met one of two waits":                {model.MetWaitForgotten},
	"no script has so many jobs that wait":                                    {model.CallSettlesAll, model.SettleHearsNothing},
	"hardly any script names a job, and before it the only one that needs it": {model.NeedJudgedLate},
	"scripts settle all that is left":                                         {model.OldEndsCount},
	"hardly any script cancels what two groups of a job have in common":       {model.FirstWaitNamed},
	"hardly any call adds a cancelled job to a group that a later item needs": {model.SpoiledByCallUnseen},
	"hardly any script fires a schedule again that must not overlap": {
		model.FireOverlaps, model.FireSkipsAfterEnd, model.FireSkipsAfterDeletion, model.FireSkipMovesLast,
	},
}

// tries is how many scripts a fault may survive.
const tries = 300

func TestFaultsAreFound(t *testing.T) {
	if race.Enabled {
		t.Skip("broken stores are left to the pass without the race detector: what is looked for in them is no race")
	}
	unseen := slices.Concat(slices.Collect(maps.Values(beyond))...)
	left := maps.Clone(finders)
	for _, m := range model.Faults() {
		delete(left, m.Fault)
		if slices.Contains(unseen, m.Fault) {
			continue
		}
		t.Run(string(m.Fault), func(t *testing.T) {
			t.Parallel()
			err := firstFailure(t, m.Fault)
			assert.Error(t, err, "%d scripts did not notice: %s", tries, m.Breaks)
		})
	}
	assert.Empty(t, left, "what has a finder is a fault")
}

// finders are the scripts that find faults which more than 40 scripts miss. The test plays them before the others, which halves its time.
// If scripts have changed so that a finder misses its fault, the others are played as without it, and -v prints what to write here.
var finders = map[model.Fault]int{
	"added-cancelled-spares":        61,
	"dead-is-final":                 40,
	"deleted-dead-spare-groups":     113,
	"fair-fence-forgets-turns":      289,
	"fair-forgets-turns":            66,
	"fair-full-key-blocks":          117,
	"fair-hides-late-jobs":          117,
	"fair-hides-older":              109,
	"fair-ignored":                  66,
	"fair-keyless-each-a-key":       66,
	"fair-keyless-last":             66,
	"fair-lanes-share-turns":        729,
	"fair-lifts-key-limit":          99,
	"fair-loses-turn":               729,
	"fair-new-first":                99,
	"fair-new-last":                 81,
	"fair-priorities-share-turns":   642,
	"fair-stays":                    490,
	"fair-takes-all-of-a-key":       66,
	"fire-goes-back":                68,
	"fire-stale-spoils-call":        119,
	"group-named-first":             150,
	"groups-open-for-ignored":       49,
	"key-hides-late-jobs":           776,
	"key-limit-ends-leases":         131,
	"key-limit-of-fresh-only":       248,
	"key-limit-unlisted":            294,
	"met-group-waits-unfiltered":    142,
	"order-held-by-cancelled":       109,
	"order-held-by-dead":            103,
	"order-of-all-queues":           103,
	"order-passes-blocked":          96,
	"order-passes-delayed":          119,
	"order-passes-expired":          109,
	"order-passes-requeued":         1031,
	"order-stays":                   891,
	"order-unlisted":                429,
	"policy-version-restarts":       102,
	"priority-of-schedule-lost":     1144,
	"rate-counts-jobs-once":         97,
	"rate-ends-early":               137,
	"rate-ends-late":                125,
	"rate-forgets-deleted":          642,
	"rate-of-all-queues":            282,
	"rate-of-fixed-spans":           137,
	"rate-unlisted":                 1963,
	"replace-keeps-checkpoint":      413,
	"replace-keeps-ending":          260,
	"replace-keeps-progress":        413,
	"replace-keeps-seqs":            640,
	"replace-of-expired":            237,
	"requeue-drops-dead-checkpoint": 56,
	"schedule-forgets-last":         79,
	"schedule-repeat-refused":       68,
	"schedules-due-early":           46,
	"seal-tells-nobody":             148,
	"settle-early":                  48,
	"spoiled-cancels-again":         193,
	"unblock-forgets-delay":         67,
}

// firstFailure plays scripts of fixed seeds until one fails.
func firstFailure(t *testing.T, fault model.Fault) error {
	t.Helper()
	a := modelWith(fault)
	if seed, known := finders[fault]; known {
		if err := play(t.Context(), a, scripts.Example(seed), newTally()); err != nil {
			return err
		}
	}
	for seed := range tries {
		if err := play(t.Context(), a, scripts.Example(seed), newTally()); err != nil {
			if seed >= 40 {
				t.Logf("found by script %d", seed)
			}
			return err
		}
	}
	return nil
}

// A run that tries nothing must not pass for one that found nothing.
func TestGapsAreSeen(t *testing.T) {
	nothing := newTally().gaps(false)
	assert.Contains(t, nothing, "delete never met a job that was gone")
	assert.Contains(t, nothing, "claim never changed a job that was retrying")
	assert.Contains(t, nothing, "save never met a stale lease")

	some := newTally()
	some.outcome(store.OpSave, map[int64]store.State{}, store.Outcome{ID: 1, Status: store.StatusNotFound})
	some.outcome(store.OpSave, map[int64]store.State{1: store.Dead}, store.Outcome{ID: 1, Status: store.StatusStale})
	assert.Subset(t, nothing, some.gaps(false))
	assert.NotContains(t, some.gaps(false), "save never met a job that was gone")
	assert.NotContains(t, some.gaps(false), "save never met a job that was dead")
	assert.NotContains(t, some.gaps(false), "save never met a stale lease")
	assert.Len(t, some.gaps(false), len(nothing)-3)
}
