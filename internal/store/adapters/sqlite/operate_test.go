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
	for limit, want := range map[int][]int64{3: {1, 3, 5}, 4: {1, 3}} { // four would have been found if there were more
		require.ErrorIs(t, s.writer.do(t.Context(), load{}, func(tx *txn) error {
			outcomes, err := tx.operateFound(filter, found, limit, live, (*txn).cancel)
			require.NoError(t, err)
			var ids []int64
			for _, o := range outcomes {
				assert.Equal(t, store.StatusOK, o.Status)
				ids = append(ids, o.ID)
			}
			assert.Equal(t, want, ids)
			return errMeasured
		}), errMeasured)
	}
}
