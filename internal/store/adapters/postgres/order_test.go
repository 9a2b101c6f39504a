package postgres

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// Calls lock jobs by rising id, whatever the order of their items: two callers with the same jobs in opposite orders would each have
// what the other waits for.
func TestJobsAreLockedByRisingID(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(s *Store, held []store.Lease) ([]store.Outcome, error){
		"Ack": func(s *Store, held []store.Lease) ([]store.Outcome, error) {
			return s.Ack(t.Context(), []store.Ack{{Lease: held[0]}, {Lease: held[1]}})
		},
		"Ack with a result": func(s *Store, held []store.Lease) ([]store.Outcome, error) {
			return s.Ack(t.Context(), []store.Ack{{Lease: held[0], Result: []byte(`1`)}, {Lease: held[1], Result: []byte(`2`)}})
		},
		"NAck": func(s *Store, held []store.Lease) ([]store.Outcome, error) {
			return s.NAck(t.Context(), []store.NAck{{Lease: held[0], Form: store.Release}, {Lease: held[1], Form: store.Release}})
		},
		"Save": func(s *Store, held []store.Lease) ([]store.Outcome, error) {
			return s.Save(t.Context(), []store.Save{{Lease: held[0], Seq: 1, Progress: []byte(`1`)}, {Lease: held[1], Seq: 1, Progress: []byte(`1`)}})
		},
		"Cancel": func(s *Store, held []store.Lease) ([]store.Outcome, error) {
			return s.Cancel(t.Context(), store.Filter{IDs: []int64{held[0].ID, held[1].ID}}, 2)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, Options{Timeout: time.Minute, LockTimeout: time.Minute})
			enqueue(t, s, 2)
			jobs := claimN(t, s, 2)
			require.Len(t, jobs, 2)
			require.Less(t, jobs[0].ID, jobs[1].ID)
			blocker, err := s.callers.BeginTxx(t.Context(), nil)
			require.NoError(t, err)
			defer func() { _ = blocker.Rollback() }()
			_, err = blocker.ExecContext(t.Context(), s.sql(`SELECT id FROM {schema}.jobs WHERE id = $1 FOR UPDATE`), jobs[0].ID)
			require.NoError(t, err)

			ended := make(chan error, 1)
			go func() {
				_, err := call(s, []store.Lease{jobs[1].Lease(), jobs[0].Lease()}) // the greater id first
				ended <- err
			}()
			waiting := func() (n int) {
				require.NoError(t, s.callers.GetContext(t.Context(), &n, `
					SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'`, s.options.Schema))
				return n
			}
			require.Eventually(t, func() bool { return waiting() == 1 }, time.Minute, 5*time.Millisecond, "the call waits for the first job")
			var free []int64
			require.NoError(t, s.callers.SelectContext(t.Context(), &free,
				s.sql(`SELECT id FROM {schema}.jobs WHERE id = $1 FOR UPDATE SKIP LOCKED`), jobs[1].ID))
			assert.Equal(t, []int64{jobs[1].ID}, free, "the second job was locked before the first")
			require.NoError(t, blocker.Rollback())
			select {
			case err := <-ended:
				assert.NoError(t, err)
			case <-time.After(time.Minute):
				require.Fail(t, "the call does not end")
			}
		})
	}
}
