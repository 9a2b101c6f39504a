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
			ALTER TABLE jobs ADD COLUMN max_retries INTEGER NOT NULL DEFAULT 20;
			ALTER TABLE jobs ADD COLUMN backoff_base INTEGER NOT NULL DEFAULT 1000000;
			ALTER TABLE jobs ADD COLUMN backoff_cap INTEGER NOT NULL DEFAULT 3600000000;
			ALTER TABLE jobs ADD COLUMN backoff_jitter INTEGER NOT NULL DEFAULT 10;
			ALTER TABLE jobs ADD COLUMN timeout INTEGER NOT NULL DEFAULT 0;
			UPDATE jobs
			SET (max_retries, backoff_base, backoff_cap, backoff_jitter, timeout) = (
				SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4
				FROM (SELECT '[' || replace(rules, ' ', ',') || ']' AS value))
			WHERE rules IS NOT NULL;
			ALTER TABLE jobs DROP COLUMN rules;
			ALTER TABLE jobs DROP COLUMN reason;
			ALTER TABLE jobs DROP COLUMN scheduled;
			DROP INDEX jobs_expiring;
			ALTER TABLE jobs DROP COLUMN expires_at;
			DROP TABLE schedules;
			DROP TABLE schedule_revisions;
			DROP TABLE activity;
			DROP TABLE waits;
			DROP TABLE ends;
			DROP TABLE groups;
			DROP TABLE group_runs;
			DROP INDEX jobs_group_dead;
			ALTER TABLE jobs DROP COLUMN group_name;
			DROP INDEX jobs_blocked;
			DROP INDEX jobs_blocked_ids;
			ALTER TABLE jobs DROP COLUMN links;
			DROP TABLE keys;
			DROP TABLE hints;
			DROP INDEX jobs_ready_by_key;
			DROP INDEX jobs_retrying_by_key;
			DROP INDEX jobs_in_flight_by_key;
			ALTER TABLE jobs DROP COLUMN limit_key;
			ALTER TABLE policies DROP COLUMN max_in_flight;
			ALTER TABLE policies DROP COLUMN max_per_key;
			DROP TABLE claims;
			ALTER TABLE policies DROP COLUMN rate_n;
			ALTER TABLE policies DROP COLUMN rate_per;
			ALTER TABLE policies DROP COLUMN owner;
			ALTER TABLE policies DROP COLUMN declared;
			ALTER TABLE policies DROP COLUMN fair;
			ALTER TABLE queues DROP COLUMN turns;
			DROP INDEX workers_beat_at;
			DROP TABLE ordered;
			ALTER TABLE policies DROP COLUMN ordered;
			DELETE FROM migrations WHERE name IN ('reason', 'schedules', 'expiry', 'activity', 'rules', 'waits', 'needed', 'groups', 'group_runs', 'limits', 'keys', 'rates', 'fair', 'silent', 'ordered', 'in_flight_by_key');
			ALTER TABLE migrations DROP COLUMN least;
			UPDATE jobs SET claimed_at = NULL WHERE id = ?`,
			requeued)
		require.NoError(t, err)
		require.NoError(t, before.Close())
		return openAt(t, path, nil)
	})
}
