package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres"
	"github.com/seed-ed332417/jq/jqtest"
)

func TestConformanceOnPostgres(t *testing.T) {
	t.Parallel()
	jqtest.Run(t, adapter(t, pgtest.DSN(t), postgres.Options{}))
}

// Through a pooling proxy every transaction may meet another server, and the servers many clients. What random sequences would
// compare, one call at a time, is the same as without the proxy.
func TestConformanceThroughAPooler(t *testing.T) {
	if race.Enabled {
		t.Skip("not under the race detector: the same code as without the proxy, and slow")
	}
	t.Parallel()
	dsn := pgtest.DSN(t)
	a := adapter(t, pgtest.Bouncer(t, dsn), postgres.Options{Pooled: true, ListenDSN: dsn})
	t.Run("Cases", func(t *testing.T) { jqtest.Cases(t, a) })
	t.Run("Linear", func(t *testing.T) { jqtest.Linear(t, a, 80) })
}

// On an application's own *sql.DB, sessions keep nothing of the store.
func TestConformanceOnADB(t *testing.T) {
	if race.Enabled {
		t.Skip("not under the race detector: the same code as on a pool of pgx, and slow")
	}
	t.Parallel()
	dsn := pgtest.DSN(t)
	db, err := sql.Open("postgres", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	db.SetMaxOpenConns(40)
	a := adapterOf(t, dsn, func(ctx context.Context, o *postgres.Options) (*postgres.Store, error) {
		return postgres.OpenDB(ctx, db, o)
	}, postgres.Options{ListenDSN: dsn})
	t.Run("Cases", func(t *testing.T) { jqtest.Cases(t, a) })
	t.Run("Linear", func(t *testing.T) { jqtest.Linear(t, a, 80) })
}

// adapter makes stores that have a schema each, one after the other.
func adapter(t *testing.T, dsn string, o postgres.Options) jqtest.Adapter {
	t.Helper()
	return adapterOf(t, dsn, func(ctx context.Context, o *postgres.Options) (*postgres.Store, error) {
		return postgres.Open(ctx, dsn, o)
	}, o)
}

func adapterOf(
	t *testing.T, dsn string, open func(ctx context.Context, o *postgres.Options) (*postgres.Store, error), o postgres.Options,
) jqtest.Adapter {
	t.Helper()
	schemas := pgtest.NewSchemas(t, dsn)
	checks, err := sql.Open("postgres", dsn) // for all stores: a session for each would cost as much as a usual case
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, checks.Close()) })
	return jqtest.Adapter{New: func(ctx context.Context, clk clock.Clock) (*jqtest.Instance, error) {
		o := o
		o.Clock, o.Schema = clk, schemas.Take()
		s, err := open(ctx, &o)
		if err != nil {
			return nil, err
		}
		instance := &jqtest.Instance{Store: s, DB: s.DB().DB}
		instance.Reopen = func(ctx context.Context) (store.Store, error) {
			if err := s.Close(); err != nil {
				return nil, err
			}
			s, err = open(ctx, &o)
			if err == nil {
				instance.DB = s.DB().DB
			}
			return s, err
		}
		instance.Remove = func() error {
			return errors.Join(s.Close(), postgres.CheckLeases(context.Background(), checks, o.Schema), schemas.Return(o.Schema))
		}
		return instance, nil
	}}
}

// A schema that was used and emptied has what a new one has. Else cases would meet what others have left.
func TestAnEmptiedSchemaIsAsNew(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	schemas := pgtest.NewSchemas(t, dsn)
	used := schemas.Take()
	s, err := postgres.Open(t.Context(), dsn, &postgres.Options{Schema: used})
	require.NoError(t, err)
	fresh := kept(t, s.DB().DB, used)

	fill(t, s, used)
	for table, rows := range kept(t, s.DB().DB, used) {
		assert.NotEqual(t, fresh[table], rows, "the test leaves something in each table but the migrations: %s", table)
	}
	require.NoError(t, s.Close())

	require.NoError(t, schemas.Return(used))
	require.Equal(t, used, schemas.Take())
	s, err = postgres.Open(t.Context(), dsn, &postgres.Options{Schema: used})
	require.NoError(t, err)
	assert.Equal(t, fresh, kept(t, s.DB().DB, used))
	require.NoError(t, s.Close())
	require.NoError(t, schemas.Return(used))
}

// fill leaves something in each table and sequence of the schema.
func fill(t *testing.T, s *postgres.Store, used string) {
	t.Helper()
	job := store.NewJob{Queue: "q", Kind: "k", Payload: []byte(`1`), UniqueKey: "u", MaxRetries: 3}
	_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{job}, RequestKey: "r"})
	require.NoError(t, err)
	for range 2 { // the second attempt leaves the first one in the history
		jobs, err := s.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: "q", Limit: 1, Worker: "w", TTL: time.Minute})
		require.NoError(t, err)
		require.Len(t, jobs, 1)
		_, err = s.NAck(t.Context(), []store.NAck{{Lease: jobs[0].Lease(), Form: store.After}})
		require.NoError(t, err)
	}
	require.NoError(t, s.SetPaused(t.Context(), "q", true))
	_, err = s.SetPolicy(t.Context(), "q", store.Policy{RetainDead: time.Hour})
	require.NoError(t, err)
	require.NoError(t, s.Beat(t.Context(), store.Worker{Name: "w", StaleAfter: time.Minute}))
	for _, name := range []string{"one", "another"} { // the first number leaves a sequence as it was
		_, err = s.SetSchedule(t.Context(), store.Schedule{Name: name, Cron: "@daily", Job: job})
		require.NoError(t, err)
	}
	require.NoError(t, s.AddActivity(t.Context(), []store.Activity{{Queue: "q", Succeeded: 1}}))
	_, err = s.Fence(t.Context(), store.FenceRequest{})
	require.NoError(t, err)
	_, err = s.DB().ExecContext(t.Context(), `INSERT INTO "`+used+`".sweeps (queue, wanted_at) VALUES ('q', now())`)
	require.NoError(t, err)
	_, err = s.DB().ExecContext(t.Context(), `
		INSERT INTO "`+used+`".waits (job_id, number, on_id, from_token, any_end, met) VALUES (1, 0, 2, 0, FALSE, FALSE);
		INSERT INTO "`+used+`".ends (job_id, token, ended_as) VALUES (1, 1, 'dead'), (2, 1, 'dead');
		INSERT INTO "`+used+`".looks (job_id) VALUES (1);
		INSERT INTO "`+used+`".open_groups (name, opened_at) VALUES ('g', now());
		INSERT INTO "`+used+`".spoils (name) VALUES ('g');
		INSERT INTO "`+used+`".group_runs (name, first_id, last_id) VALUES ('g', 1, 2);
		INSERT INTO "`+used+`".group_counts (name, live) VALUES ('g', 2);
		INSERT INTO "`+used+`".slots (queue, number, job_id) VALUES ('q', 1, 1);
		INSERT INTO "`+used+`".keys (queue, limit_key, state) VALUES ('q', 'k', '{}');
		INSERT INTO "`+used+`".hints (queue, limit_key) VALUES ('q', 'k');
		INSERT INTO "`+used+`".ordered (queue, limit_key, job_id) VALUES ('q', 'k', 1);
		INSERT INTO "`+used+`".claims (queue, claimed_at, jobs) VALUES ('q', now(), 1);
		SELECT nextval('"`+used+`".turns');
		INSERT INTO "`+used+`".gone (job_id, token, deleted_at) VALUES (1, 1, now())`)
	require.NoError(t, err)
}

// kept is all that stands in the tables and sequences of the schema, but for the migrations.
func kept(t *testing.T, db *sql.DB, schema string) map[string]string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `
		SELECT relname, query_to_xml(format('SELECT * FROM %I.%I', nspname, relname), true, false, '')::text
		FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
		WHERE nspname = $1 AND relkind IN ('r', 'S') AND relname <> 'migrations'`, schema)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	all := map[string]string{}
	for rows.Next() {
		var name, text string
		require.NoError(t, rows.Scan(&name, &text))
		all[name] = text
	}
	require.NoError(t, rows.Err())
	return all
}
