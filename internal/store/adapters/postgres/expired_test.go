package postgres

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// The holder of a key was seen to have expired. Before its row is locked, others cancel and delete it. It holds no key any more.
func TestAnExpiredHolderThatIsGoneHoldsNoKey(t *testing.T) {
	t.Parallel()
	keyed := func(t *testing.T, s *Store) (store.Enqueued, error) {
		n := benchJobs(1)
		n[0].UniqueKey = "k"
		added, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: n})
		return append(added, store.Enqueued{})[0], err
	}
	for name, isDuplicate := range map[string]func(t *testing.T, s *Store, ended int64) (bool, error){
		"Enqueue": func(t *testing.T, s *Store, _ int64) (bool, error) {
			added, err := keyed(t, s)
			return added.Duplicate, err
		},
		"Requeue": func(t *testing.T, s *Store, ended int64) (bool, error) {
			outcomes, err := s.Requeue(t.Context(), store.Filter{IDs: []int64{ended}}, 1)
			return len(outcomes) > 0 && outcomes[0].Status == store.StatusDuplicate, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, Options{Timeout: time.Minute, LockTimeout: time.Minute})
			ended, err := keyed(t, s)
			require.NoError(t, err)
			_, err = s.Cancel(t.Context(), store.Filter{IDs: []int64{ended.ID}}, 1)
			require.NoError(t, err)
			holder, err := keyed(t, s)
			require.NoError(t, err)
			_, err = s.callers.ExecContext(t.Context(), s.sql(`UPDATE {schema}.jobs SET expires_at = now() WHERE id = $1`), holder.ID)
			require.NoError(t, err)

			others, err := s.callers.BeginTxx(t.Context(), nil)
			require.NoError(t, err)
			defer func() { _ = others.Rollback() }()
			_, err = others.ExecContext(t.Context(), s.sql(`DELETE FROM {schema}.jobs WHERE id = $1`), holder.ID)
			require.NoError(t, err)
			done := make(chan error, 1)
			go func() {
				duplicate, err := isDuplicate(t, s, ended.ID)
				assert.False(t, duplicate, "of a job that does not exist")
				done <- err
			}()
			waiting := func() (n int) {
				require.NoError(t, s.callers.GetContext(t.Context(), &n, `
					SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'`, s.options.Schema))
				return n
			}
			require.Eventually(t, func() bool { return waiting() == 1 }, time.Minute, 5*time.Millisecond, "the call waits for the holder")
			require.NoError(t, others.Commit())
			select {
			case err := <-done:
				assert.NoError(t, err)
			case <-time.After(time.Minute):
				require.Fail(t, "the call does not end")
			}
		})
	}
}
