package postgres

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/recordtest"
)

// TestStatementsDoWhatTheRecordDoes to a job in each phase.
func TestStatementsDoWhatTheRecordDoes(t *testing.T) {
	t.Parallel()
	clk := newClock()
	s := openStore(t, Options{Clock: clk})
	recordtest.Run(t, recordtest.Adapter{Store: s, Clock: clk, Read: func(id int64) store.Record {
		found, err := read(t.Context(), s, nil, func(t *txn) ([]*store.Record, error) {
			return t.records(`
				SELECT`+withDocuments.columns+`,`+presentEpoch+`
				FROM {schema}.jobs
				WHERE id = $1`,
				id)
		})
		require.NoError(t, err)
		require.Len(t, found, 1)
		return *found[0]
	}})
}

func TestJobsOfTheSchemaBeforeGoOn(t *testing.T) {
	t.Parallel()
	before := openStore(t, Options{})
	recordtest.Upgraded(t, before, func(requeued int64) store.Store {
		for _, statement := range []string{
			`DROP FUNCTION {schema}.hint(), {schema}.next_slot CASCADE`,
			`DROP INDEX {schema}.jobs_blocked_by_id`,
			`DROP TABLE {schema}.waits, {schema}.ends, {schema}.looks, {schema}.gone, {schema}.open_groups, {schema}.spoils, {schema}.group_runs, {schema}.group_counts`,
			`ALTER TABLE {schema}.jobs DROP COLUMN links, DROP COLUMN group_name`,
			`ALTER TABLE {schema}.jobs
				ADD COLUMN max_retries integer,
				ADD COLUMN backoff_base bigint,
				ADD COLUMN backoff_cap bigint,
				ADD COLUMN backoff_jitter smallint,
				ADD COLUMN timeout bigint`,
			`UPDATE {schema}.jobs
			SET (max_retries, backoff_base, backoff_cap, backoff_jitter, timeout) = (
				SELECT one[1], one[2], one[3], one[4], one[5]
				FROM (SELECT string_to_array(coalesce(rules, '20 1000000 3600000000 10 0'), ' ')::bigint[] AS one) AS numbers)`,
			`ALTER TABLE {schema}.jobs DROP COLUMN rules`,
			`UPDATE {schema}.jobs SET unleased_state = 'in_flight', retry_at = NULL WHERE lease_expires_at IS NOT NULL`,
			`ALTER TABLE {schema}.jobs RENAME COLUMN unleased_state TO state`,
			`CREATE INDEX jobs_leased ON {schema}.jobs (lease_expires_at, id) WHERE state = 'in_flight'`,
			`DROP TABLE {schema}.leases`,
			`ALTER TABLE {schema}.jobs DROP COLUMN reason, DROP COLUMN scheduled, DROP COLUMN expires_at`,
			`DROP TABLE {schema}.schedules, {schema}.activity`,
			`DROP SEQUENCE {schema}.turns`,
			`DROP TABLE {schema}.slots, {schema}.keys, {schema}.hints, {schema}.ordered, {schema}.claims`,
			`ALTER TABLE {schema}.jobs DROP COLUMN limit_key`,
			`ALTER TABLE {schema}.queues DROP COLUMN max_in_flight, DROP COLUMN limit_version, DROP COLUMN counted, DROP COLUMN first_slot,
				DROP COLUMN max_per_key, DROP COLUMN keys_known, DROP COLUMN rate_n, DROP COLUMN rate_per, DROP COLUMN fair, DROP COLUMN ordered`,
			`ALTER TABLE {schema}.policies DROP COLUMN max_in_flight, DROP COLUMN max_per_key, DROP COLUMN rate_n, DROP COLUMN rate_per,
				DROP COLUMN owner, DROP COLUMN declared, DROP COLUMN fair, DROP COLUMN ordered`,
			`DELETE FROM {schema}.migrations WHERE name IN ('reason', 'schedules', 'expiry', 'activity', 'leases', 'rules', 'waits', 'group_runs', 'limits', 'keys', 'rates', 'fair', 'ordered', 'triggers', 'next_slot', 'policy_once', 'lz4')`,
			`ALTER TABLE {schema}.migrations DROP COLUMN least`,
			fmt.Sprintf(`UPDATE {schema}.jobs SET claimed_at = NULL WHERE id = %d`, requeued),
		} {
			_, err := before.db.Exec(before.sql(statement))
			require.NoError(t, err)
		}
		return openStore(t, Options{Schema: before.options.Schema})
	})
}
