package linear

import (
	"context"
	"errors"
	"testing"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-ed332417/jq/internal/conformance"
	"github.com/seed-ed332417/jq/internal/conformance/model"
	"github.com/seed-ed332417/jq/internal/store"
)

// adapterOf makes an adapter of the model with the faults.
func adapterOf(faults ...model.Fault) conformance.Adapter {
	return conformance.Adapter{New: func(_ context.Context, clk clock.Clock) (*conformance.Instance, error) {
		return &conformance.Instance{Store: model.New(clk, faults...)}, nil
	}}
}

func TestModelIsLinearizable(t *testing.T) {
	defer goleak.VerifyNone(t)
	report, err := Check(t.Context(), adapterOf(), Options{})
	require.NoError(t, err)
	t.Log(report)
	assert.NoError(t, report.Shortfall())
}

func TestHistoriesCanShareAStore(t *testing.T) {
	report, err := Check(t.Context(), adapterOf(), Options{Histories: 25, PerStore: 10})
	require.NoError(t, err)
	assert.Equal(t, 25, report.Histories)
}

func TestBrokenStoreIsNotLinearizable(t *testing.T) {
	for _, fault := range []model.Fault{
		model.ClaimUnlocked, model.FairUnlocked, model.OrderUnlocked, model.RecoverUnlocked, model.AckUnlocked, // lost updates: only concurrent calls show them
		model.AckWithoutToken, model.ExtendRevives, model.RecoverKeepsToken, model.RequeueIgnoresKey, model.WindowForEver,
		model.WaitsIgnored, model.FirstWaitIsEnough, model.DeadMembersMeet, model.OpenIgnored, // too early
		model.SpoiledMeets, model.DeadMeets, // what can not go on does
	} {
		t.Run(string(fault), func(t *testing.T) {
			_, err := Check(t.Context(), adapterOf(fault), Options{})
			var v *Violation
			require.ErrorAs(t, err, &v)
			assert.False(t, v.Unknown, "it was judged")
			assert.NotZero(t, v.Seed)
			assert.Contains(t, v.Listing, "✗", "the listing marks what has no place")
		})
	}
}

// What is wrong with jobs that wait for others may show only when all is quiet.
func TestBrokenStoreIsFlawedAtRest(t *testing.T) {
	for fault, flaw := range map[model.Fault]string{
		model.GroupsSeenBefore:       "is blocked although its waits are met", // the last two end at once, and neither sees the end of the other
		model.WaitsSeenBefore:        "is blocked although its waits are met",
		model.SealTellsNobody:        "is blocked although its waits are met",
		model.SpoiledLeavesWaiters:   "is blocked although what it needs is cancelled",
		model.CancelledLeavesWaiters: "is blocked although what it needs is cancelled",
	} {
		t.Run(string(fault), func(t *testing.T) {
			_, err := Check(t.Context(), adapterOf(fault), Options{})
			var v *Violation
			require.ErrorAs(t, err, &v)
			assert.Equal(t, flaw, v.Flaw)
			assert.Contains(t, v.Listing, v.Part, "the listing shows the job")
		})
	}
}

// A barren store gives nobody a job. No order of calls forbids that, but jobs must end once all is quiet.
type barren struct{ *model.Store }

func (barren) FetchAndClaim(context.Context, store.ClaimRequest) ([]store.Job, error) {
	return nil, nil
}

func TestStoreWhoseJobsDoNotEndIsFlawedAtRest(t *testing.T) {
	a := conformance.Adapter{New: func(_ context.Context, clk clock.Clock) (*conformance.Instance, error) {
		return &conformance.Instance{Store: barren{model.New(clk)}}, nil
	}}
	_, err := Check(t.Context(), a, Options{})
	var v *Violation
	require.ErrorAs(t, err, &v)
	assert.Equal(t, "has not ended after 20 rounds of claims and acks", v.Flaw)
	assert.Contains(t, v.Listing, v.Part, "the listing shows the job")
}

// Which jobs are in flight at once concerns several jobs.
func TestBrokenStoreExceedsItsLimit(t *testing.T) {
	for _, fault := range []model.Fault{model.LimitIgnored, model.LimitUnlocked, model.LimitExceededByOne, model.LimitForgetsExpired} {
		t.Run(string(fault), func(t *testing.T) {
			_, err := Check(t.Context(), adapterOf(fault), Options{})
			var v *Violation
			require.ErrorAs(t, err, &v)
			assert.Contains(t, v.Flaw, "jobs in flight at once, and 2 may be")
			assert.Contains(t, v.Listing, "under token")
		})
	}
}

// Those of a limit key are in flight beside others.
func TestBrokenStoreExceedsTheLimitOfAKey(t *testing.T) {
	for _, fault := range []model.Fault{
		model.KeyLimitIgnored, model.KeyLimitUnlocked, model.KeyLimitExceededByOne, model.KeyLimitForgetsExpired, model.KeyLimitForgetsClaim,
	} {
		t.Run(string(fault), func(t *testing.T) {
			_, err := Check(t.Context(), adapterOf(fault), Options{})
			var v *Violation
			require.ErrorAs(t, err, &v)
			assert.Contains(t, v.Part, "limit key l")
			assert.Contains(t, v.Flaw, "jobs in flight at once, and 1 may be")
		})
	}
}

// So does their order.
func TestBrokenStoreIsOutOfOrder(t *testing.T) {
	for _, fault := range []model.Fault{model.OrderIgnored, model.OrderOfDueTimes, model.OrderPassesDelayed} {
		t.Run(string(fault), func(t *testing.T) {
			_, err := Check(t.Context(), adapterOf(fault), Options{Histories: 1000})
			var v *Violation
			require.ErrorAs(t, err, &v)
			assert.Contains(t, v.Part, "limit key l")
			assert.Regexp(t, "claimed before job|jobs in flight at once", v.Flaw)
		})
	}
}

// Which jobs are claimed in a span of time concerns several jobs too.
func TestBrokenStoreExceedsItsRate(t *testing.T) {
	for _, fault := range []model.Fault{
		model.RateIgnored, model.RateUnlocked, model.RateExceededByOne, model.RateOfEachClaim, model.RateEndsEarly, model.RateOfInFlight, model.RateForgetsRelease,
	} {
		t.Run(string(fault), func(t *testing.T) {
			_, err := Check(t.Context(), adapterOf(fault), Options{Histories: 1000})
			var v *Violation
			require.ErrorAs(t, err, &v)
			assert.Contains(t, v.Flaw, "jobs claimed within 4s, and 2 may be")
			assert.Contains(t, v.Listing, "claimed at")
		})
	}
}

func TestShortfallNamesEachFloor(t *testing.T) {
	assert.NoError(t, Report{Histories: 10, Met: [...]int{5, 5, 3, 3, 1, 1, 1}}.Shortfall())
	err := Report{Histories: 10, Met: [...]int{4, 5, 2, 3, 1, 1, 1}}.Shortfall()
	assert.EqualError(t, err, "overlapping claims: in 4 of 10 histories, want at least 50 %\nan answer in doubt: in 2 of 10 histories, want at least 30 %")
	assert.Error(t, Report{}.Shortfall(), "no history proves nothing")
}

func TestCheckEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Check(ctx, adapterOf(), Options{})
	assert.ErrorIs(t, err, context.Canceled)
}

// A closed store refuses every call: nothing is known of it but that.
func TestClosedStoreIsAnError(t *testing.T) {
	closed := conformance.Adapter{New: func(_ context.Context, clk clock.Clock) (*conformance.Instance, error) {
		s := model.New(clk)
		return &conformance.Instance{Store: s}, s.Close()
	}}
	_, err := Check(t.Context(), closed, Options{})
	assert.ErrorIs(t, err, store.ErrClosed)
}

func TestErrorsOfTheAdapterAreReported(t *testing.T) {
	broken := errors.New("broken")
	_, err := Check(t.Context(), conformance.Adapter{New: func(context.Context, clock.Clock) (*conformance.Instance, error) {
		return nil, broken
	}}, Options{})
	assert.ErrorIs(t, err, broken)

	_, err = Check(t.Context(), conformance.Adapter{New: func(_ context.Context, clk clock.Clock) (*conformance.Instance, error) {
		return &conformance.Instance{Store: model.New(clk), Remove: func() error { return broken }}, nil
	}}, Options{})
	assert.ErrorIs(t, err, broken)
}
