package postgres

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// A call that notices another server, and fails.
func TestARolledBackCallRaisesOnce(t *testing.T) {
	t.Parallel()
	first := openStore(t, Options{})
	_, err := first.Enqueue(t.Context(), store.EnqueueRequest{RequestKey: "k", Jobs: benchJobs(1)})
	require.NoError(t, err)
	_, err = first.callers.ExecContext(t.Context(), first.sql(`UPDATE {schema}.fence SET timeline = timeline + 1`))
	require.NoError(t, err)
	s := openStore(t, Options{Schema: first.options.Schema})
	for range 3 {
		_, err = s.Enqueue(t.Context(), store.EnqueueRequest{RequestKey: "k", Jobs: benchJobs(2)})
		require.ErrorIs(t, err, store.ErrInvalid)
	}
	enqueue(t, s, 1)
	assert.Equal(t, int64(1), epochOf(t, s))
}
