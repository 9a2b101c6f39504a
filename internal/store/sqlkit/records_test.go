package sqlkit_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// kinds are finished jobs with the ids 1, 2 and so on, each of a kind.
func kinds(list ...string) map[int64]*store.Record {
	var records []*store.Record
	for i, kind := range list {
		records = append(records, &store.Record{Job: store.Job{ID: int64(i + 1), Kind: kind, State: store.Succeeded}})
	}
	return sqlkit.Keyed(records)
}

func TestDoNamedAnswersForEachID(t *testing.T) {
	var done []int64
	outcomes, err := sqlkit.DoNamed(store.Filter{IDs: []int64{3, 1, 2, 9, 3}, Kind: "k"}, kinds("k", "other", "k"), noon,
		func(e *store.Record) (store.Outcome, error) {
			done = append(done, e.ID)
			return store.OutcomeOf(e.Job, store.StatusOK), nil
		})
	require.NoError(t, err)
	ok := func(id int64) store.Outcome {
		return store.Outcome{ID: id, Status: store.StatusOK, State: store.Succeeded}
	}
	missing := func(id int64) store.Outcome { return store.Outcome{ID: id, Status: store.StatusNotFound} }
	assert.Equal(t, []store.Outcome{ok(3), ok(1), missing(2), missing(9), ok(3)}, outcomes)
	assert.Equal(t, []int64{3, 1, 3}, done, "jobs that something was done to")
}

func TestDoNamedFindsNothingTwiceThatWasDeleted(t *testing.T) {
	outcomes, err := sqlkit.DoNamed(store.Filter{IDs: []int64{1, 1}}, kinds("k"), noon,
		func(e *store.Record) (store.Outcome, error) {
			return store.Outcome{ID: e.ID, Status: store.StatusOK}, nil
		})
	require.NoError(t, err)
	assert.Equal(t, []store.Outcome{{ID: 1, Status: store.StatusOK}, {ID: 1, Status: store.StatusNotFound}}, outcomes)
}

func TestDoNamedStopsAtAnError(t *testing.T) {
	failed, calls := errors.New("failed"), 0
	_, err := sqlkit.DoNamed(store.Filter{IDs: []int64{1, 2}}, kinds("k", "k"), noon, func(*store.Record) (store.Outcome, error) {
		calls++
		return store.Outcome{}, failed
	})
	assert.ErrorIs(t, err, failed)
	assert.Equal(t, 1, calls, "jobs that something was done to")
}

func TestCrowdingFindsWhoNeedsRoom(t *testing.T) {
	entry := func(id, token, claim int64) *store.Record {
		return &store.Record{Job: store.Job{ID: id, Token: token}, ClaimToken: claim}
	}
	const most = store.MaxAttemptsKept
	moving, crowded := sqlkit.Crowding([]*store.Record{entry(1, 0, 0), entry(2, 1, 1), entry(3, most-1, 0), entry(4, most, 0), entry(5, most+1, 3)})
	assert.Equal(t, []int64{2, 5}, moving)
	assert.Equal(t, []int64{5}, crowded, "a job whose latest attempt stays where it is needs none")
}
