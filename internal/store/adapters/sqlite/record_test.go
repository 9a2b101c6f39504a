package sqlite

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/recordtest"
)

// TestStatementsDoWhatTheRecordDoes to a job in each phase.
func TestStatementsDoWhatTheRecordDoes(t *testing.T) {
	clk := newClock()
	s := openAt(t, newPath(t), &Options{Clock: clk})
	recordtest.Run(t, recordtest.Adapter{Store: s, Clock: clk, Read: func(id int64) store.Record {
		found, err := read(t.Context(), s, nil, func(t *txn) (map[int64]*store.Record, error) { return t.byID([]int64{id}) })
		require.NoError(t, err)
		return *found[id]
	}})
}

func TestJobsOfTheSchemaBeforeGoOn(t *testing.T) {
	path := newPath(t)
	before := openAt(t, path, nil)
	recordtest.Upgraded(t, before, func(requeued int64) store.Store {
		_, err := before.DB().Exec(`
			ALTER TABLE jobs DROP COLUMN reason;
			ALTER TABLE jobs DROP COLUMN scheduled;
			DROP INDEX jobs_expiring;
			ALTER TABLE jobs DROP COLUMN expires_at;
			DROP TABLE schedules;
			DROP TABLE schedule_revisions;
			DROP TABLE activity;
			DELETE FROM migrations WHERE name IN ('reason', 'schedules', 'expiry', 'activity');
			UPDATE jobs SET claimed_at = NULL WHERE id = ?`,
			requeued)
		require.NoError(t, err)
		require.NoError(t, before.Close())
		return openAt(t, path, nil)
	})
}
