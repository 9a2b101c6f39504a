package sqlite

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// A call looks for the jobs of its filter while others write.
func TestSearchKeepsNobodyWaiting(t *testing.T) {
	s := newStore(t)
	enqueue(t, s, 3)
	s.writer.busy.Lock()
	defer s.writer.busy.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	none := store.Filter{Tag: "none"}
	for name, call := range map[string]func(context.Context, store.Filter, int) ([]store.Outcome, error){
		"Cancel": s.Cancel, "Requeue": s.Requeue, "Delete": s.Delete,
	} {
		outcomes, err := call(ctx, none, 1)
		require.NoError(t, err, name)
		assert.Empty(t, outcomes, name)
	}
}

func TestContextEndsASearch(t *testing.T) {
	s := newStore(t)
	crowd(t, s, 50_000, store.Ready, 0, s.now.get().UnixMicro(), nil, nil)
	enqueue(t, s, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := s.Cancel(ctx, store.Filter{Tag: "none"}, 1)
	require.ErrorIs(t, err, store.ErrUnavailable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// Others may change jobs between the search and the change.
func TestJobsThatChangeAfterTheSearch(t *testing.T) {
	const live = `finished_at IS NULL`
	s := newStore(t)
	enqueue(t, s, 6)
	filter := store.Filter{Queue: "q"}
	found, err := (&txn{ctx: t.Context(), tx: s.callers, now: s.now.get()}).firstOf(filter, 3, live)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2, 3}, found)
	_, err = s.Cancel(t.Context(), store.Filter{IDs: []int64{2, 4}}, 2)
	require.NoError(t, err)
	change := func(limit int) (outcomes []store.Outcome, err error) {
		require.ErrorIs(t, s.writer.do(t.Context(), load{}, func(tx *txn) error {
			outcomes, err = tx.operateFound(filter, found, limit, live, (*txn).cancel)
			return errMeasured
		}), errMeasured)
		return outcomes, err
	}
	outcomes, err := change(4) // more would have been found if there were any
	require.NoError(t, err)
	require.Len(t, outcomes, 2)
	assert.Equal(t, []int64{1, 3}, []int64{outcomes[0].ID, outcomes[1].ID})
	_, err = change(3)
	var changed *changedError
	require.ErrorAs(t, err, &changed)
	assert.Equal(t, []int64{1, 3}, changed.still)

	var tries [][]int64
	outcomes, err = s.onFound(t.Context(), filter, 3, nil, live, func(_ *txn, ids []int64) ([]store.Outcome, error) {
		if tries = append(tries, ids); len(tries) == 1 {
			return nil, &changedError{still: ids[1:]}
		}
		return make([]store.Outcome, len(ids)), nil
	})
	require.NoError(t, err)
	assert.Len(t, outcomes, 3)
	assert.Equal(t, [][]int64{{1, 3, 5}, {3, 5, 6}}, tries, "the search goes on behind what it has found")
}
