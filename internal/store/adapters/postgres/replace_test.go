package postgres

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// TestReplaceDecidesUnderTheLock ends the holder of a key between the moment at which an Enqueue with Replace reads that it waits,
// and the moment at which it has locked it.
func TestReplaceDecidesUnderTheLock(t *testing.T) {
	holder := func(state store.State) store.Enqueued { return store.Enqueued{ID: 1, State: state, Duplicate: true} }
	added := store.Enqueued{ID: 2, State: store.Ready}
	for name, k := range map[string]struct {
		window  time.Duration
		ending  []operation
		want    store.Enqueued
		changed int64 // the token of the holder
	}{
		"cancelled":              {0, []operation{&cancelling{}}, added, 1},
		"cancelled, in a window": {time.Hour, []operation{&cancelling{}}, holder(store.Cancelled), 1},
		"deleted":                {0, []operation{&cancelling{}, &deleting{}}, added, 0},
		"deleted, in a window":   {time.Hour, []operation{&cancelling{}, &deleting{}}, holder(""), 0},
		"rescheduled":            {0, []operation{&rescheduling{at: time.Now().Add(time.Hour)}}, store.Enqueued{ID: 1, State: store.Ready, Duplicate: true, Replaced: true}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, Options{Timeout: time.Minute, LockTimeout: time.Minute})
			n := benchJobs(1)[0]
			n.UniqueKey, n.UniqueFor = "key", k.window
			add := func() []store.Enqueued {
				answers, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{n}})
				assert.NoError(t, err)
				return answers
			}
			require.Equal(t, []store.Enqueued{{ID: 1, State: store.Ready}}, add())
			n.Replace = true
			answered := make(chan []store.Enqueued, 1)
			_, err := write(t.Context(), s, nil, func(tn *txn) (struct{}, error) {
				waiting := func() (n int) {
					require.NoError(t, s.callers.GetContext(t.Context(), &n, `
						SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'`, s.options.Schema))
					return n
				}
				for i, do := range k.ending {
					if _, err := tn.operate(store.Filter{IDs: []int64{1}}, 1, ifAny, do); err != nil {
						return struct{}{}, err
					}
					if i == 0 { // a deletion before would lock the key
						go func() { answered <- add() }()
						require.Eventually(t, func() bool { return waiting() == 1 }, time.Minute, 5*time.Millisecond, "the call does not wait for the holder")
					}
				}
				return struct{}{}, nil
			})
			require.NoError(t, err)
			select {
			case got := <-answered:
				assert.Equal(t, []store.Enqueued{k.want}, got)
			case <-time.After(time.Minute):
				require.Fail(t, "the call does not end")
			}
			if k.changed == 0 {
				_, err = s.Get(t.Context(), 1)
				assert.ErrorIs(t, err, store.ErrNotFound)
				return
			}
			after, err := s.Get(t.Context(), 1)
			require.NoError(t, err)
			assert.Equal(t, k.changed, after.Token, "the token of the holder")
		})
	}
}
