package postgres

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Queues come and go, with names made for a customer or a day. Who has the turn of the sweeps drops what nobody has claimed from for a
// day, its own queues excepted.
func TestSweepsForgetQueuesThatNobodyWants(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	claimN(t, s, 1) // from the queue q
	s.sweeper.pace(time.Hour)
	old := `now() - interval '25 hours'`
	_, err := s.callers.ExecContext(t.Context(), s.sql(`
		INSERT INTO {schema}.sweeps (queue, wanted_at, swept_at)
		VALUES ('', `+old+`, `+old+`), ('q', `+old+`, `+old+`), ('gone', `+old+`, `+old+`),
			('ahead', now() + interval '25 hours', NULL), ('another', now() - interval '23 hours', now())`))
	require.NoError(t, err)
	rows := func() (queues []string) {
		require.NoError(t, s.callers.SelectContext(t.Context(), &queues, s.sql(`SELECT queue FROM {schema}.sweeps ORDER BY queue`)))
		return queues
	}
	require.True(t, checked(t, s), "it has the turn")
	assert.Equal(t, []string{"", "another", "q"}, rows())
	_, err = s.callers.ExecContext(t.Context(), s.sql(`INSERT INTO {schema}.sweeps (queue, wanted_at) VALUES ('gone', `+old+`)`))
	require.NoError(t, err)
	require.False(t, checked(t, s))
	assert.Equal(t, []string{"", "another", "gone", "q"}, rows(), "who has not the turn drops nothing")
}
