package sqlkit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// held are jobs in flight under their tokens, by their ids.
func held(leases ...store.Lease) map[int64]*store.Record {
	jobs := map[int64]*store.Record{}
	for _, l := range leases {
		jobs[l.ID] = &store.Record{Job: store.Job{ID: l.ID, Token: l.Token, State: store.InFlight, LeaseExpiresAt: noon}, ClaimToken: l.Token}
	}
	return jobs
}

func statuses(outcomes []store.Outcome) []store.Status {
	list := make([]store.Status, len(outcomes))
	for i, o := range outcomes {
		list[i] = o.Status
	}
	return list
}

func TestVerbAnswersForEachItemAndNamesChangedJobsOnce(t *testing.T) {
	one, two := store.Lease{ID: 1, Token: 5}, store.Lease{ID: 2, Token: 6}
	jobs := held(one, two)
	nack := func(l store.Lease, form store.Form) store.NAck { return store.NAck{Lease: l, Form: form} }
	outcomes, changed, err := sqlkit.NAcking(noon, false).Do([]store.NAck{
		nack(two, store.Release), nack(one, "unknown"), nack(store.Lease{ID: 3}, store.Fail), nack(store.Lease{ID: 1, Token: 4}, store.Fail),
		nack(two, store.Release), nack(two, store.Fail), nack(one, store.Never),
	}, jobs)
	require.NoError(t, err)
	assert.Equal(t, []store.Status{
		store.StatusOK, store.StatusInvalid, store.StatusNotFound, store.StatusStale, store.StatusOK, store.StatusStale, store.StatusOK,
	}, statuses(outcomes))
	assert.Equal(t, []*store.Record{jobs[2], jobs[1]}, changed, "in the order in which they were changed first")
}

func TestStrictVerbFailsWithItsFirstBadItem(t *testing.T) {
	one, two := store.Lease{ID: 1, Token: 5}, store.Lease{ID: 2, Token: 6}
	good := store.Ack{Lease: one}
	for name, c := range map[string]struct {
		bad  store.Ack
		want error
		text string
	}{
		"Stale":    {store.Ack{Lease: store.Lease{ID: 2, Token: 5}}, store.ErrStaleLease, "item 1: jq: stale lease"},
		"NotFound": {store.Ack{Lease: store.Lease{ID: 3, Token: 5}}, store.ErrNotFound, "item 1: jq: no such job"},
		"Again":    {good, store.ErrAlreadyFinished, "item 1: jq: already finished under this lease"},
		"Invalid":  {store.Ack{Lease: two, Result: []byte("{")}, store.ErrInvalid, "jq: invalid: item 1: result must be a JSON document within the limits"},
	} {
		t.Run(name, func(t *testing.T) {
			outcomes, changed, err := sqlkit.Acking(noon, true).Do([]store.Ack{good, c.bad}, held(one, two))
			assert.ErrorIs(t, err, c.want)
			assert.EqualError(t, err, c.text)
			assert.Empty(t, outcomes)
			assert.Empty(t, changed)
		})
	}
}

func TestRefusedResultIsNoErrorOfACallThatIsNotStrict(t *testing.T) {
	one := store.Lease{ID: 1, Token: 5}
	outcomes, _, err := sqlkit.Acking(noon, false).Do([]store.Ack{{Lease: one, Result: []byte("{")}}, held(one))
	require.NoError(t, err)
	assert.Equal(t, []store.Outcome{{ID: 1, Status: store.StatusOK, State: store.Failed, Token: 5}}, outcomes)
}

func TestRepeatsFindsAJobThatStandsTwice(t *testing.T) {
	assert.False(t, sqlkit.Repeats(nil))
	assert.False(t, sqlkit.Repeats([]store.Lease{{ID: 1, Token: 1}, {ID: 2, Token: 1}}))
	assert.True(t, sqlkit.Repeats([]store.Lease{{ID: 1, Token: 1}, {ID: 2, Token: 1}, {ID: 1, Token: 2}}))
}

func TestRunsAreOfOneToken(t *testing.T) {
	assert.Empty(t, sqlkit.Runs(nil))
	held := []store.Lease{{ID: 9, Token: 1}, {ID: 2, Token: 1}, {ID: 1, Token: 1}, {ID: 3, Token: 2}, {ID: 4, Token: 2}, {ID: 6, Token: 2}}
	assert.Equal(t, []sqlkit.Run{{First: 1, Last: 2, Token: 1}, {First: 3, Last: 4, Token: 2}, {First: 6, Last: 6, Token: 2}, {First: 9, Last: 9, Token: 1}},
		sqlkit.Runs(held))
	assert.Equal(t, int64(9), held[0].ID, "the leases keep their order")
}
