package postgres

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/migratetest"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

func allSteps(t *testing.T) []sqlkit.Migration {
	t.Helper()
	steps, err := folder()
	require.NoError(t, err)
	return steps
}

func TestProgramsOfSeveralVersions(t *testing.T) {
	t.Parallel()
	migratetest.Run(t, migratetest.Adapter{
		Steps:    allSteps(t),
		Additive: `ALTER TABLE {schema}.jobs ADD COLUMN colour text NOT NULL DEFAULT 'red'`,
		Breaking: `ALTER TABLE {schema}.jobs RENAME COLUMN kind TO sort`,
		New: func(t *testing.T) func(o migratetest.Opening) (migratetest.Store, error) {
			dsn := pgtest.DSN(t)
			schema := pgtest.Schema(t, dsn)
			return func(o migratetest.Opening) (migratetest.Store, error) {
				s, err := Open(t.Context(), dsn, &Options{
					Schema: schema, Clock: o.Clock, Logger: o.Logger, NoMigrate: o.NoMigrate, MigrateWait: o.Wait, MigrateForce: o.Force, steps: o.Steps,
				})
				if err != nil {
					return nil, err
				}
				t.Cleanup(func() { assert.NoError(t, s.Close()) })
				return s, nil
			}
		},
		Narrow: func(s migratetest.Store) error {
			at := s.(*Store)
			_, err := at.db.Exec(at.sql(`ALTER TABLE {schema}.migrations DROP COLUMN least`))
			return err
		},
	})
}

// schema8 makes a store as the last program before schema 9 left it, with n jobs in flight and four times as many of other sorts.
func schema8(t *testing.T, n int) (*Store, Options) {
	t.Helper()
	s := openStore(t, Options{steps: allSteps(t)[:8], Timeout: 10 * time.Minute})
	filled8(t, s, n)
	return s, Options{Schema: s.options.Schema, MigrateForce: true}
}

func filled8(t *testing.T, s *Store, n int) {
	t.Helper()
	for _, c := range []crowd{
		{queue: "q", state: store.Ready, due: longAgo}, {queue: "q", state: store.Failed, due: longAgo, retry: soon},
		{queue: "q", state: store.Succeeded, due: longAgo, finished: longAgo}, {queue: "q", state: store.Failed, due: longAgo, finished: longAgo},
		{queue: "q", state: store.InFlight, due: longAgo, lease: soon},
	} {
		_, err := s.callers.Exec(s.sql(`
			INSERT INTO {schema}.jobs (
				queue, state, kind, priority, run_at, retry_at, lease_expires_at, finished_at, token, claim_token, worker, claimed_at, attempts,
				max_retries, backoff_base, backoff_cap, backoff_jitter, timeout, unique_key, unique_for, enqueued_at, trace, payload)
			SELECT $1, $2, 'k', 0, now() + $3::interval, now() + $4::interval, now() + $5::interval, now() + $6::interval, 7, 7, 'old', now(), 1,
				20, 1000000, 3600000000, 10, 0, '', 0, now() - interval '3 days', '', '{"user":12345,"text":"hello there"}'
			FROM generate_series(1, $7::integer)`),
			c.queue, string(c.state), c.due, c.retry, c.lease, c.finished, n)
		require.NoError(t, err)
	}
	_, err := s.callers.Exec(s.sql(`ALTER TABLE {schema}.migrations DROP COLUMN least; ANALYZE {schema}.jobs`))
	require.NoError(t, err)
}

// continues tries whether the jobs that were in flight keep their leases in the migrated store.
func continues(t *testing.T, s *Store, n int) {
	t.Helper()
	assert.EqualValues(t, n, countIn(t, s, store.InFlight))
	page, err := s.List(t.Context(), store.Filter{States: []store.State{store.InFlight}}, store.Page{Limit: 1})
	require.NoError(t, err)
	done, err := s.Ack(t.Context(), []store.Ack{{Lease: store.Lease{ID: page.Jobs[0].ID, Token: 7}}})
	require.NoError(t, err)
	assert.Equal(t, store.StatusOK, done[0].Status)
}

// Schema 9 renames a column that programs of before use.
func TestSchema9WaitsForEarlierPrograms(t *testing.T) {
	t.Parallel()
	old, o := schema8(t, 3)
	o.MigrateForce = false
	_, err := Open(t.Context(), pgtest.DSN(t), &o)
	busy := new(sqlkit.BusyError)
	require.ErrorAs(t, err, &busy)
	assert.Equal(t, []sqlkit.Busy{{Name: "old", Jobs: 3}}, busy.Busy)
	require.NoError(t, old.Ping(t.Context()))

	o.MigrateForce = true
	continues(t, openStore(t, o), 3)
	require.ErrorIs(t, old.Ping(t.Context()), sqlkit.ErrNewer)
	_, err = Open(t.Context(), pgtest.DSN(t), &Options{Schema: o.Schema, steps: allSteps(t)[:8]})
	require.ErrorIs(t, err, sqlkit.ErrNewer)
}

// migrate is a process that a test kills.
func migrate(dsn, schema string, _ io.Reader, _ io.Writer) error {
	s, err := Open(context.Background(), dsn, &Options{Schema: schema, MigrateForce: true})
	if err != nil {
		return err
	}
	return s.Close()
}

// A process that migrates is killed in the last statement but one of step 9. The store is as before the step, and the next process applies it.
func TestAKilledMigrationIsStartedAgain(t *testing.T) {
	t.Parallel()
	old, o := schema8(t, 500)
	holds, err := old.callers.Beginx()
	require.NoError(t, err)
	defer func() { _ = holds.Rollback() }()
	_, err = holds.Exec(old.sql(`LOCK TABLE {schema}.sweeps IN SHARE MODE`))
	require.NoError(t, err)

	process := start(t, "migrate", pgtest.DSN(t), o.Schema)
	require.Eventually(t, func() bool {
		var waiting int
		err := holds.Get(&waiting, `
			SELECT count(*)
			FROM pg_locks JOIN pg_class ON pg_class.oid = relation JOIN pg_namespace ON pg_namespace.oid = relnamespace
			WHERE nspname = $1 AND relname = 'sweeps' AND NOT granted`, o.Schema)
		return err == nil && waiting == 1
	}, time.Minute, time.Millisecond, "the step has changed the jobs, and waits")
	require.NoError(t, old.Ping(t.Context()), "it reads the table of migrations, which the step must not lock")
	require.NoError(t, process.Process.Kill())
	require.ErrorContains(t, process.Wait(), "signal: killed")
	require.NoError(t, holds.Rollback())

	s := openStore(t, o) // waits until the server has given the killed process up
	continues(t, s, 500)
	var steps int
	require.NoError(t, s.db.Get(&steps, s.sql(`SELECT count(*) FROM {schema}.migrations`)))
	assert.Len(t, allSteps(t), steps)
}

// Nobody can work while step 9 runs. Step 10 changes no job that has the default rules.
func TestSchema9ManyJobsInFlight(t *testing.T) {
	n, most := 100_000, 10*time.Second
	if race.Enabled {
		n = 10_000
	}
	_, o := schema8(t, n)
	begin := time.Now()
	s := openStore(t, o)
	took := time.Since(begin)
	assert.Less(t, took, most)
	figures.Print(t, "schemas 9 and 10: %d jobs in flight of %d moved in %v", n, 5*n, took.Round(time.Millisecond))
	continues(t, s, n)
}

// The server compresses documents of some size by lz4, in a new schema and in one that an earlier version has made.
func TestDocumentsAreCompressedByLz4(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	schema := pgtest.Schema(t, dsn)
	steps := allSteps(t)
	before, err := Open(t.Context(), dsn, &Options{Schema: schema, steps: steps[:20]})
	require.NoError(t, err)
	payload := []byte(`"` + strings.Repeat("of some size ", 1_000) + `"`)
	old := enqueueOne(t, before, store.NewJob{Queue: "q", Kind: "k", Payload: payload})
	require.NoError(t, before.Close())

	s, err := Open(t.Context(), dsn, &Options{Schema: schema})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	var able bool
	require.NoError(t, s.db.Get(&able, `SELECT EXISTS (SELECT 1 FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals))`))
	require.True(t, able, "the servers of the tests have lz4")
	added := enqueueOne(t, s, store.NewJob{Queue: "q", Kind: "k", Payload: payload})
	for id, want := range map[int64]string{old: "pglz", added: "lz4"} {
		var method string
		require.NoError(t, s.db.Get(&method, s.sql(`SELECT pg_column_compression(payload) FROM {schema}.jobs WHERE id = $1`), id))
		assert.Equal(t, want, method)
		job, err := s.Get(t.Context(), id)
		require.NoError(t, err)
		assert.Equal(t, payload, job.Payload)
	}
}
