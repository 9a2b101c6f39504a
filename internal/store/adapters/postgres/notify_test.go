package postgres

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
)

// What a store adds it tells its own listeners of at once. To hear of it once more from the server would cost a claim that finds
// nothing, for every job.
func TestAStoreDoesNotListenToItself(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	options := &Options{Schema: pgtest.Schema(t, dsn)}
	own, err := Open(t.Context(), dsn, options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, own.Close()) })
	other, err := Open(t.Context(), dsn, options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, other.Close()) })

	add := func(s *Store, queue string) {
		_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{{Queue: queue, Kind: "k", Payload: []byte(`1`)}}})
		require.NoError(t, err)
	}
	wakeups, err := own.Subscribe(t.Context(), []string{"first", "own/queue", "last"})
	require.NoError(t, err)
	var heard []string
	until := func(queue string) {
		for heard = nil; len(heard) == 0 || heard[len(heard)-1] != queue; {
			select {
			case w, open := <-wakeups:
				require.True(t, open)
				heard = append(heard, w.Queue)
			case <-time.After(time.Minute):
				require.Fail(t, "no wake-up came", "for %s", queue)
			}
		}
	}
	add(other, "first")
	until("first") // from here on the server is heard in the order of the commits

	add(own, "own/queue")
	until("own/queue")
	add(other, "last")
	until("last")
	assert.NotContains(t, heard, "own/queue")

	add(other, "own/queue")
	until("own/queue")
}
