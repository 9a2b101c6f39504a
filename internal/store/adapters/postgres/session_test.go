package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// alone is a store with one connection for its calls.
func alone(t *testing.T) *Store {
	t.Helper()
	dsn := pgtest.DSN(t)
	s, err := Open(t.Context(), dsn, &Options{Schema: spares.Take(t, dsn)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return narrow(s)
}

// prepared is how many statements the store's connection has prepared.
func prepared(t *testing.T, s *Store) (n int) {
	t.Helper()
	conn, err := s.db.Connx(t.Context())
	require.NoError(t, err)
	require.NoError(t, conn.GetContext(t.Context(), &n, `SELECT count(*) FROM pg_prepared_statements`))
	require.NoError(t, conn.Close())
	return n
}

func TestStatementsArePreparedWhenTheyComeAgain(t *testing.T) {
	t.Parallel()
	s := alone(t)
	for _, want := range []int{0, 1, 2, 2} { // what begins a call and what it does; then both in one, as soon as the store knows the server
		_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
		require.NoError(t, err)
		assert.Equal(t, want, prepared(t, s))
	}
	// What is made for a filter has endless forms.
	for range 2 {
		_, err := s.List(t.Context(), store.Filter{Queue: "q"}, store.Page{Limit: 1})
		require.NoError(t, err)
	}
	assert.Equal(t, 2, prepared(t, s))
}

// A newer version changes tables while this one is at work.
func TestPreparedStatementsOutliveAMigration(t *testing.T) {
	t.Parallel()
	s := alone(t)
	round := func() {
		t.Helper()
		added, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
		require.NoError(t, err)
		claimed, err := s.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: "q", Limit: 1, Worker: "w", TTL: time.Minute})
		require.NoError(t, err)
		require.Len(t, claimed, 1)
		_, err = s.Ack(t.Context(), acksOf(claimed))
		require.NoError(t, err)
		detail, err := s.Get(t.Context(), added[0].ID)
		require.NoError(t, err)
		require.Equal(t, store.Succeeded, detail.Job.State)
	}
	round()
	round()
	require.NotZero(t, prepared(t, s))
	for _, change := range []string{
		`ALTER TABLE {schema}.jobs ADD COLUMN more text`,
		`ALTER TABLE {schema}.jobs ALTER COLUMN attempts TYPE bigint`,
		`ALTER TABLE {schema}.jobs ALTER COLUMN attempts TYPE integer`,
		`ALTER TABLE {schema}.jobs DROP COLUMN more`,
		`ALTER TABLE {schema}.jobs ALTER COLUMN id TYPE integer`,
		`ALTER TABLE {schema}.jobs ALTER COLUMN id TYPE bigint`,
	} {
		_, err := s.DB().ExecContext(t.Context(), s.sql(change))
		require.NoError(t, err)
		round()
		round()
	}
}

// Each connection may have prepared a statement for the tables as they were, and the call that comes next tries one after another.
func TestStalePlansOfAllConnectionsAreOutlived(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s, err := Open(t.Context(), dsn, &Options{Schema: spares.Take(t, dsn), MaxConns: 2 * mostTries})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	added, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
	require.NoError(t, err)
	held := make([]*sqlx.Conn, s.pool.most-1)
	for i := range held {
		for range 2 {
			_, err := s.Get(t.Context(), added[0].ID)
			require.NoError(t, err)
		}
		held[i], err = s.db.Connx(t.Context())
		require.NoError(t, err)
	}
	for _, conn := range held {
		require.NoError(t, conn.Close())
	}
	_, err = s.DB().ExecContext(t.Context(), s.sql(`ALTER TABLE {schema}.jobs ALTER COLUMN attempts TYPE bigint`))
	require.NoError(t, err)
	_, err = s.Get(t.Context(), added[0].ID)
	require.NoError(t, err)
}

// A caller leaves while a prepared statement waits. The server is then listened to for a little while only, which is not to
// break off the call of somebody else.
func TestWhoLeavesAPreparedStatementHarmsNoOtherCall(t *testing.T) {
	t.Parallel()
	s := alone(t)
	_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
	require.NoError(t, err)
	claimed, err := s.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: "q", Limit: 1, Worker: "w", TTL: time.Minute})
	require.NoError(t, err)
	save := func(ctx context.Context) error {
		_, err := s.Save(ctx, []store.Save{{Lease: claimed[0].Lease(), Progress: []byte(`1`)}})
		return err
	}
	for range 2 {
		require.NoError(t, save(t.Context()))
	}
	require.NotZero(t, prepared(t, s))

	lock, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = lock.ExecContext(t.Context(), s.sql(`LOCK TABLE {schema}.jobs`))
	require.NoError(t, err)
	ctx, leave := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer leave()
	require.ErrorIs(t, save(ctx), store.ErrUnavailable)
	require.NoError(t, lock.Rollback())

	_, err = s.db.ExecContext(t.Context(), `SELECT pg_sleep($1)`, (patience + patience/5).Seconds())
	require.NoError(t, err, "a call that lasts longer")
}

// Whoever forgets to say that a proxy stands in between is told, before settings of a session could become everybody's.
func TestAProxyIsNotMistakenForTheServer(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	for proxy, passing := range map[string]bool{
		pgtest.Bouncer(t, dsn):            true, // PgBouncer has one code for whatever it refuses, and for servers that are away
		pgtest.Bouncer(t, dsn, "options"): false,
	} {
		s, err := Open(t.Context(), proxy, &Options{Schema: spares.Take(t, dsn)})
		if err == nil {
			require.NoError(t, s.Close())
		}
		require.Error(t, err)
		assert.Equal(t, passing, errors.Is(err, store.ErrUnavailable), "%v", err)
		assert.Contains(t, err.Error(), "if you connect through a pooling proxy, set Options.Pooled (pooled=true in the URL)")
		assert.NotContains(t, err.Error(), "\n")
	}
}

// What a DSN sets is for callers' own transactions. In the store's, its options decide, as they did before there were sessions.
func TestSettingsOfADSNAreNotTheStores(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	config, err := pq.NewConfig(dsn)
	require.NoError(t, err)
	s, err := unprepared(dsn, &Options{Schema: "s", Timeout: 3 * time.Second})
	require.NoError(t, err)
	s.disconnect()
	config.Options = "-c lock_timeout=77 -c work_mem=5MB"
	config.Runtime = map[string]string{"Statement_Timeout": "77", "enable_seqscan": "on", "temp_buffers": "2MB"}
	require.NoError(t, s.connect(config))
	t.Cleanup(s.disconnect)
	setting := func(db *sqlx.DB, name string) (value string) {
		t.Helper()
		require.NoError(t, db.GetContext(t.Context(), &value, `SELECT current_setting($1)`, name))
		return value
	}
	for _, want := range []struct{ name, own, callers string }{
		{"statement_timeout", "3s", "77ms"},
		{"lock_timeout", "5s", "77ms"},
		{"enable_seqscan", "off", "on"},
		{"plan_cache_mode", planMode, "auto"},
		{"work_mem", "5MB", "5MB"},
		{"temp_buffers", "2MB", "2MB"},
	} {
		assert.Equal(t, want.own, setting(s.db, want.name), "%s of the store's sessions", want.name)
		assert.Equal(t, want.own, setting(s.urgent, want.name), "%s of heartbeats", want.name)
		assert.Equal(t, want.callers, setting(s.callers, want.name), "%s of callers' transactions", want.name)
	}
}

// A statement is planned while its tables are small, and goes on like that when they have grown, until their statistics are
// taken anew. No way through a whole table may then have looked as short as any other.
func TestPlansForSmallTablesServeLargeOnes(t *testing.T) {
	t.Parallel()
	for name, few := range map[string]int{"empty": 0, "one row": 1, "ten rows": 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := alone(t)
			fill := func(from, to int) {
				for _, text := range []string{
					`INSERT INTO {schema}.unique_keys
					SELECT 'key ' || n, n, CASE WHEN n % 2 = 1 THEN now() + interval '1 day' END FROM generate_series($1::bigint, $2) AS n`,
					`INSERT INTO {schema}.request_keys SELECT 'key ' || n, '', '', now() FROM generate_series($1::bigint, $2) AS n`,
					`INSERT INTO {schema}.attempts
					SELECT -n, 1, now(), now(), '', 'failed', '' FROM generate_series($1::bigint, $2) AS n`,
				} {
					_, err := s.callers.ExecContext(t.Context(), s.sql(text), from, to)
					require.NoError(t, err)
				}
				crowd{queue: "crowd", state: store.Ready, due: soon}.add(t, s, to-from+1)
			}
			fill(1, few)
			for _, table := range []string{"jobs", "unique_keys", "request_keys", "attempts"} {
				for _, text := range []string{`ALTER TABLE {schema}.` + table + ` SET (autovacuum_enabled = off)`, `VACUUM ANALYZE {schema}.` + table} {
					_, err := s.callers.ExecContext(t.Context(), s.sql(text))
					require.NoError(t, err)
				}
			}
			for range 3 {
				lives(t, s)
			}
			const many = 5000
			fill(few+1, many)
			before := readByIndex(t, s)
			lives(t, s)
			assert.Less(t, readByIndex(t, s)-before, many/2, "entries of indexes that calls about a few jobs have read")
		})
	}
}

// lives lets a few jobs go through all that has statements of its own.
func lives(t *testing.T, s *Store) {
	t.Helper()
	n := store.NewJob{Queue: "q", Kind: "k", Payload: []byte(`1`), MaxRetries: 3}
	keyed, windowed := n, n
	keyed.UniqueKey, windowed.UniqueKey, windowed.UniqueFor = rand.Text(), rand.Text(), time.Hour
	for _, req := range []store.EnqueueRequest{
		{Jobs: []store.NewJob{n}}, {Jobs: []store.NewJob{keyed, windowed}}, {Jobs: []store.NewJob{n}, RequestKey: rand.Text()},
	} {
		_, err := s.Enqueue(t.Context(), req)
		require.NoError(t, err)
	}
	held := claimN(t, s, 4)
	require.Len(t, held, 4)
	_, err := s.Extend(t.Context(), []store.Lease{held[0].Lease()}, time.Minute)
	require.NoError(t, err)
	_, err = s.Save(t.Context(), []store.Save{{Lease: held[0].Lease(), Progress: []byte(`1`)}})
	require.NoError(t, err)
	_, err = s.NAck(t.Context(), []store.NAck{{Lease: held[0].Lease(), Form: store.Fail}, {Lease: held[1].Lease(), Form: store.Release}})
	require.NoError(t, err)
	for _, acks := range [][]store.Ack{acksOf(held[2:]), acksOf(claimN(t, s, 2))} {
		_, err = s.Ack(t.Context(), acks)
		require.NoError(t, err)
	}
	_, err = s.RecoverExpiredLeases(t.Context(), store.RecoverRequest{Limit: 10})
	require.NoError(t, err)
}

// readByIndex is how many entries of the schema's indexes have been read.
func readByIndex(t *testing.T, s *Store) (n int) {
	t.Helper()
	require.NoError(t, s.flush(t.Context()))
	require.NoError(t, s.callers.GetContext(t.Context(), &n, `
		SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE schemaname = $1`,
		s.options.Schema))
	return n
}

// A goroutine for each message, to watch a context that seldom ends, was a quarter of what an enqueue costs the process.
func TestCallsStartNoGoroutines(t *testing.T) {
	s := openStore(t, Options{})
	id := enqueue(t, s, 1)[0]
	created := func() uint64 {
		sample := []metrics.Sample{{Name: "/sched/goroutines-created:goroutines"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	const calls = 100
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	before := created()
	for range calls {
		_, err := s.Get(ctx, id)
		require.NoError(t, err)
	}
	assert.Less(t, created()-before, uint64(calls))
}

// Nothing was committed of a call that only reads, whatever becomes of its COMMIT.
func TestSessionThatEndsBeforeItsCommit(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	for what, c := range map[string]struct {
		with opening
		want error
	}{
		"a read":  {s.with.get, store.ErrUnavailable},
		"a list":  {s.with.page, store.ErrUnavailable},
		"a write": {s.with.write, store.ErrInDoubt},
	} {
		_, err := call(t.Context(), s, nil, c.with, func(open *txn) (ended bool, err error) {
			pids, err := sqlkit.Values[int](open.each, `SELECT pg_backend_pid()`)
			if err == nil {
				err = s.DB().GetContext(t.Context(), &ended, `SELECT pg_terminate_backend($1, 60000)`, pids[0]) // returns when it has ended
			}
			return ended, err
		})
		assert.ErrorIs(t, err, c.want, what)
		wellSaid(t, err)
	}
}
