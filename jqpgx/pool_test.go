package jqpgx_test

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/jqpgx"
	"github.com/seed-ed332417/jq/postgres"
)

const bound = time.Minute

// onPool opens a store on the pool, in a schema of its own unless the options name one.
func onPool(t *testing.T, dsn string, pool *pgxpool.Pool, o postgres.Options) *postgres.Store {
	t.Helper()
	if o.Schema == "" {
		o.Schema = pgtest.Schema(t, dsn)
	}
	s, err := jqpgx.Open(t.Context(), pool, &o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// oneJob is a request for one job.
var oneJob = contract.EnqueueRequest{Jobs: []contract.NewJob{{Queue: "q", Kind: "k", Payload: []byte(`{"a": 1}`)}}}

// lives lets a job go through enqueue, claim and ack.
func lives(t *testing.T, s *postgres.Store) {
	t.Helper()
	added, err := s.Enqueue(t.Context(), oneJob)
	require.NoError(t, err)
	claimed, err := s.FetchAndClaim(t.Context(), contract.ClaimRequest{Queue: "q", Limit: 1, Worker: "w", TTL: time.Minute})
	require.NoError(t, err)
	require.Len(t, claimed, 1)
	assert.Equal(t, added[0].ID, claimed[0].ID)
	outcomes, err := s.Ack(t.Context(), []contract.Ack{{Lease: claimed[0].Lease()}})
	require.NoError(t, err)
	require.NoError(t, outcomes[0].Err())
}

// configured returns a pool after the test has changed its configuration.
func configured(t *testing.T, dsn string, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	change(config)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// eventually asks the server until the query returns true.
func eventually(t *testing.T, pool *pgxpool.Pool, what, query string, args ...any) {
	t.Helper()
	require.Eventually(t, func() bool {
		var holds bool
		require.NoError(t, pool.QueryRow(t.Context(), query, args...).Scan(&holds))
		return holds
	}, bound, 5*time.Millisecond, what)
}

func TestAStoreUsesThePoolAsItIsConfigured(t *testing.T) {
	c, err := pgtest.Start(t.Context(), pgtest.Options{Password: "secret"})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Stop()) })
	var opened atomic.Int64
	seen := &tracer{}
	pool := configured(t, c.DSN, func(config *pgxpool.Config) {
		config.ConnConfig.Password = "expired"
		config.BeforeConnect = func(_ context.Context, conn *pgx.ConnConfig) error {
			conn.Password = "secret"
			return nil
		}
		config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			opened.Add(1)
			_, err := conn.Exec(ctx, `SET application_name = 'after connect'`)
			return err
		}
		config.ConnConfig.Tracer = seen
	})
	s, err := jqpgx.Open(t.Context(), pool, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	lives(t, s)
	assert.Equal(t, pool.Stat().NewConnsCount(), opened.Load(), "the store opens no connection beside the pool")
	assert.True(t, seen.saw("COMMIT"))
	assert.True(t, seen.saw("BEGIN ISOLATION LEVEL READ COMMITTED"))
	assert.True(t, seen.saw("INSERT INTO \"jq\".jobs"))
	assert.Zero(t, seen.open(), "statements without an end")

	_, err = s.Subscribe(t.Context(), []string{"q"})
	require.NoError(t, err)
	eventually(t, pool, "the store listens", `
		SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'LISTEN %' AND application_name = 'after connect'`)
}

// A tracer keeps the texts of statements.
type tracer struct {
	mu      sync.Mutex
	texts   []string
	running int
}

func (r *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.texts, r.running = append(r.texts, data.SQL), r.running+1
	return ctx
}

func (r *tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running--
}

func (r *tracer) saw(part string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, text := range r.texts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

func (r *tracer) open() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running
}

// One connection is enough for a store, and is the caller's again after each call, as it was.
func TestThePoolRemainsTheCallers(t *testing.T) {
	dsn := pgtest.DSN(t)
	pool := sized(t, dsn, 1)
	settings := func() (all string) {
		t.Helper()
		require.NoError(t, pool.QueryRow(t.Context(), `
			SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings`).Scan(&all))
		return all
	}
	before := settings()
	s := onPool(t, dsn, pool, postgres.Options{})
	lives(t, s)
	_, err := s.Subscribe(t.Context(), []string{"q"})
	require.NoError(t, err)
	lives(t, s)
	tx := begin(t, pool, pgx.TxOptions{})
	_, err = jq.NewClient(s, nil).EnqueueTx(t.Context(), jqpgx.Tx(tx), ship{1}, nil)
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	assert.Equal(t, before, settings())
	require.NoError(t, s.Close())
	assert.Zero(t, pool.Stat().AcquiredConns())
	require.NoError(t, pool.Ping(t.Context()))
	eventually(t, pool, "nobody listens any more", `SELECT count(*) = 0 FROM pg_stat_activity WHERE query LIKE 'LISTEN %'`)
}

func TestAPoolThatGivesNoConnectionIsUnavailable(t *testing.T) {
	_, err := jqpgx.Open(t.Context(), nil, nil)
	require.EqualError(t, err, "jq: the pool is nil: want one of pgxpool.New")

	dsn := pgtest.DSN(t)
	pool := sized(t, dsn, 1)
	s := onPool(t, dsn, pool, postgres.Options{Timeout: 2 * time.Second})
	held, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer held.Release() // otherwise a failure would keep the pool from closing
	_, err = s.OldestDue(t.Context())
	require.ErrorIs(t, err, jq.ErrUnavailable)
	assert.NotErrorIs(t, err, context.DeadlineExceeded, "it is not the caller's context that has ended")
	assert.ErrorContains(t, err, "all 1 connections of the pool are in use, raise its MaxConns")
	held.Release()
	lives(t, s)

	pool.Close()
	_, err = s.OldestDue(t.Context())
	require.ErrorIs(t, err, jq.ErrUnavailable)
	assert.ErrorContains(t, err, "closed pool")
	_, err = jqpgx.Open(t.Context(), pool, nil)
	require.ErrorIs(t, err, jq.ErrUnavailable)
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	dsn := pgtest.DSN(t)
	for want, change := range map[string]func(*pgx.ConnConfig){
		"create it first":   func(c *pgx.ConnConfig) { c.Database = "nowhere" },
		"refuses the user":  func(c *pgx.ConnConfig) { c.User = "nobody_at_all" },
		"no server answers": func(c *pgx.ConnConfig) { c.Host, c.Port = "127.0.0.1", 1 },
		"transactions may only read here": func(c *pgx.ConnConfig) { // told by a text of several statements
			c.RuntimeParams["default_transaction_read_only"] = "on"
		},
	} {
		pool := configured(t, dsn, func(config *pgxpool.Config) { change(config.ConnConfig) })
		_, err := jqpgx.Open(t.Context(), pool, &postgres.Options{Schema: pgtest.NewSchema()})
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "\n")
	}
}

// Another process has enqueued: the store hears of it at once, also after it has lost the connection on which it listens.
func TestAStoreListensOnAConnectionOfThePool(t *testing.T) {
	dsn := pgtest.DSN(t)
	pool := sized(t, dsn, 4)
	schema := pgtest.Schema(t, dsn)
	s, other := onPool(t, dsn, pool, postgres.Options{Schema: schema}), onPool(t, dsn, pool, postgres.Options{Schema: schema})
	wakeups, err := s.Subscribe(t.Context(), []string{"q"})
	require.NoError(t, err)
	woken := func() {
		t.Helper()
		select {
		case w := <-wakeups:
			assert.Equal(t, "q", w.Queue)
		case <-time.After(bound):
			t.Fatal("the store was not woken")
		}
	}
	const listens = `SELECT count(*) = 1 FROM pg_stat_activity WHERE query = 'LISTEN "jq ' || $1::text || '"' AND pid <> $2`
	eventually(t, pool, "the store listens", listens, schema, 0)
	enqueue := func() {
		t.Helper()
		_, err := other.Enqueue(t.Context(), oneJob)
		require.NoError(t, err)
	}
	enqueue()
	woken()

	var listening int
	require.NoError(t, pool.QueryRow(t.Context(), `
		SELECT pid FROM pg_stat_activity WHERE query = 'LISTEN "jq ' || $1::text || '"'`, schema).Scan(&listening))
	_, err = pool.Exec(t.Context(), `SELECT pg_terminate_backend($1)`, listening)
	require.NoError(t, err)
	woken() // notifications may have been missed
	eventually(t, pool, "the store listens again", listens, schema, listening)
	enqueue()
	woken()
}

// Through a proxy, LISTEN does not work.
func TestAPooledStorePolls(t *testing.T) {
	dsn := pgtest.DSN(t)
	schema := pgtest.Schema(t, dsn)
	through := configured(t, pgtest.Bouncer(t, dsn), func(config *pgxpool.Config) {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	})
	s := onPool(t, dsn, through, postgres.Options{Schema: schema, Pooled: true})
	wakeups, err := s.Subscribe(t.Context(), []string{"q"})
	require.NoError(t, err)
	lives(t, s)
	select {
	case <-wakeups:
	case <-time.After(bound):
		t.Fatal("the store was not woken")
	}
	direct := sized(t, dsn, 1)
	eventually(t, direct, "nobody listens", `SELECT count(*) = 0 FROM pg_stat_activity WHERE query = 'LISTEN "jq ' || $1::text || '"'`, schema)
}

func TestAJobLivesInEveryMode(t *testing.T) {
	dsn := pgtest.DSN(t)
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			pool := configured(t, dsn, func(config *pgxpool.Config) { config.ConnConfig.DefaultQueryExecMode = mode })
			s := onPool(t, dsn, pool, postgres.Options{})
			for range 3 {
				lives(t, s)
			}
		})
	}
}

// The disabled plan nodes make one plan right for all arguments, and to plan takes longer than to run.
func TestStatementsThatRecurArePlannedOnce(t *testing.T) {
	dsn := pgtest.DSN(t)
	pool := sized(t, dsn, 1)
	s := onPool(t, dsn, pool, postgres.Options{})
	for range 10 { // the server plans the first five anew unless it is told otherwise
		lives(t, s)
		_, err := s.List(t.Context(), contract.Filter{Queue: "q"}, contract.Page{Limit: 1})
		require.NoError(t, err)
	}
	var calls, listings bool
	require.NoError(t, pool.QueryRow(t.Context(), `
		SELECT coalesce(bool_and(custom_plans = 0) FILTER (WHERE statement ~ '^\s*(UPDATE|INSERT INTO "[^"]*".jobs|WITH)'), false),
			coalesce(bool_and(generic_plans = 0) FILTER (WHERE statement ~ '^\s*SELECT jobs.id, jobs.queue'), false)
		FROM pg_prepared_statements`).Scan(&calls, &listings))
	assert.True(t, calls, "statements of calls are planned once")
	assert.True(t, listings, "listings are planned for their filter")
}

// A newer version changes tables while this one is at work. pgx prepares each statement when it is first run.
func TestPreparedStatementsOutliveAMigration(t *testing.T) {
	dsn := pgtest.DSN(t)
	pool := sized(t, dsn, 4)
	schema := pgtest.Schema(t, dsn)
	s := onPool(t, dsn, pool, postgres.Options{Schema: schema})
	lives(t, s)
	for _, change := range []string{`ALTER COLUMN attempts TYPE bigint`, `ALTER COLUMN attempts TYPE integer`, `ADD COLUMN more text`} {
		_, err := pool.Exec(t.Context(), `ALTER TABLE `+pgx.Identifier{schema, "jobs"}.Sanitize()+` `+change)
		require.NoError(t, err)
		lives(t, s)
		lives(t, s)
	}
}

// A call that is broken off leaves neither a statement at the server nor a bad connection in the pool.
func TestACallThatIsBrokenOffLeavesNothing(t *testing.T) {
	dsn := pgtest.DSN(t)
	pool := sized(t, dsn, 2)
	schema := pgtest.Schema(t, dsn)
	s := onPool(t, dsn, pool, postgres.Options{Schema: schema})
	for name, call := range map[string]func(ctx context.Context) error{
		"a command": func(ctx context.Context) error {
			_, err := s.DB().ExecContext(ctx, `SELECT pg_sleep(3600) -- broken off`)
			return err
		},
		"a query": func(ctx context.Context) error {
			rows, err := s.DB().QueryContext(ctx, `SELECT pg_sleep(3600) -- broken off`)
			if err == nil {
				_ = rows.Close()
				err = rows.Err()
			}
			return err
		},
		"a query with arguments": func(ctx context.Context) error {
			_, err := s.DB().ExecContext(ctx, `SELECT pg_sleep($1::int) -- broken off`, 3600)
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		require.Error(t, call(ctx), name)
		cancel()
		eventually(t, pool, name, `
			SELECT count(*) = 0 FROM pg_stat_activity
			WHERE query LIKE '%-- broken off' AND state = 'active' AND pid <> pg_backend_pid()`)
		lives(t, s)
	}
	given := func() bool { return pool.Stat().AcquiredConns() == 0 } // a connection is given back after its call has returned
	assert.Eventually(t, given, 10*time.Second, time.Millisecond, "a connection is still taken")
}

func TestDBRunsTextsOfSeveralStatements(t *testing.T) {
	dsn := pgtest.DSN(t)
	s := onPool(t, dsn, sized(t, dsn, 2), postgres.Options{})
	ctx := t.Context()
	rows, err := s.DB().QueryContext(ctx, `
		SET work_mem = '1MB'; SELECT 1 AS a UNION ALL SELECT 2; RESET work_mem; SELECT WHERE false; SELECT 'x' AS b, NULL`)
	require.NoError(t, err)
	var sets [][]any
	for again := true; again; again = rows.NextResultSet() {
		columns, err := rows.Columns()
		require.NoError(t, err)
		set := []any{strings.Join(columns, " ")}
		for rows.Next() {
			values := make([]any, len(columns))
			into := make([]any, len(columns))
			for i := range values {
				into[i] = &values[i]
			}
			require.NoError(t, rows.Scan(into...))
			set = append(set, values...)
		}
		sets = append(sets, set)
	}
	require.NoError(t, rows.Err())
	require.NoError(t, rows.Close())
	assert.Equal(t, [][]any{{"a", int64(1), int64(2)}, {"b ?column?", "x", nil}}, sets)

	for what, text := range map[string]string{
		"at first": `SELECT 1 / 0; SELECT 1`, "between rows": `SELECT 1 / (2 - n) FROM generate_series(1, 2) AS n`,
		"at last": `SELECT 1; SELECT 1 / 0`,
	} {
		rows, err := s.DB().QueryContext(ctx, text)
		if err == nil {
			for rows.Next() {
			}
			err = rows.Err()
			_ = rows.Close()
		}
		require.ErrorContains(t, err, "division by zero", what)
		_, err = s.DB().ExecContext(ctx, text)
		require.ErrorContains(t, err, "division by zero", what)
	}
	rows, err = s.DB().QueryContext(ctx, `SELECT n FROM generate_series(1, 3) AS n; SELECT 4`)
	require.NoError(t, err)
	require.True(t, rows.Next())
	require.True(t, rows.NextResultSet(), "past rows that were not read")
	require.True(t, rows.Next())
	var four int
	require.NoError(t, rows.Scan(&four))
	assert.Equal(t, 4, four)
	assert.False(t, rows.NextResultSet())
	require.NoError(t, rows.Err())
	require.NoError(t, rows.Close())

	rows, err = s.DB().QueryContext(ctx, `SET work_mem = '1MB'`)
	require.NoError(t, err)
	assert.False(t, rows.Next())
	require.NoError(t, rows.Err())
	require.NoError(t, rows.Close())

	_, err = s.DB().ExecContext(ctx, `CREATE TEMPORARY TABLE copied (n int); COPY copied FROM STDIN`)
	require.ErrorContains(t, err, "COPY FROM STDIN needs a pgx.Conn")

	prepared, err := s.DB().PrepareContext(ctx, `SELECT $1::int + 1`)
	require.NoError(t, err)
	var sum int
	require.NoError(t, prepared.QueryRowContext(ctx, 2).Scan(&sum))
	assert.Equal(t, 3, sum)
	require.NoError(t, prepared.Close())
	require.NoError(t, s.DB().PingContext(ctx))
}

func TestDBBeginsTransactions(t *testing.T) {
	dsn := pgtest.DSN(t)
	s := onPool(t, dsn, sized(t, dsn, 2), postgres.Options{})
	for level, want := range map[sql.IsolationLevel]string{
		sql.LevelDefault: "read committed", sql.LevelReadUncommitted: "read uncommitted", sql.LevelReadCommitted: "read committed",
		sql.LevelRepeatableRead: "repeatable read", sql.LevelSerializable: "serializable",
	} {
		for _, reads := range []bool{true, false} {
			tx := began(t.Context(), t, s, &sql.TxOptions{Isolation: level, ReadOnly: reads})
			var got string
			var readOnly bool
			require.NoError(t, tx.QueryRow(`
				SELECT current_setting('transaction_isolation'), current_setting('transaction_read_only')::boolean`).Scan(&got, &readOnly))
			assert.Equal(t, want, got)
			assert.Equal(t, reads, readOnly)
			require.NoError(t, tx.Commit())
		}
	}
	_, err := s.DB().BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelLinearizable})
	require.ErrorContains(t, err, "no isolation level Linearizable")

	busy := began(t.Context(), t, s, nil)
	rows, err := busy.Query(`SELECT 1 UNION ALL SELECT 2`)
	require.NoError(t, err)
	_, err = busy.Exec(`CREATE TEMPORARY TABLE unmade (n int)`)
	require.ErrorContains(t, err, "rows of an earlier query are open: close them first")
	require.NoError(t, rows.Close())
	_, err = busy.Exec(`CREATE TEMPORARY TABLE made (n int)`)
	require.NoError(t, err, "the transaction goes on")
	require.NoError(t, busy.Rollback())

	failed := began(t.Context(), t, s, nil)
	_, err = failed.Exec(`SELECT 1 / 0`)
	require.Error(t, err)
	require.ErrorIs(t, failed.Commit(), pgx.ErrTxCommitRollback)

	client := jq.NewClient(s, nil)
	kept := began(t.Context(), t, s, nil)
	first, err := client.EnqueueTx(t.Context(), kept, ship{1}, nil)
	require.NoError(t, err)
	require.NoError(t, kept.Commit())
	ctx, cancel := context.WithCancel(t.Context())
	left := began(ctx, t, s, nil)
	second, err := client.EnqueueTx(t.Context(), left, ship{2}, nil)
	require.NoError(t, err)
	cancel() // rolls back
	require.Error(t, left.Commit())
	_, err = client.Get(t.Context(), first.ID)
	require.NoError(t, err)
	_, err = client.Get(t.Context(), second.ID)
	require.ErrorIs(t, err, jq.ErrNotFound)
}

// began begins a transaction, which ends with the test.
func began(ctx context.Context, t *testing.T, s *postgres.Store, o *sql.TxOptions) *sql.Tx {
	t.Helper()
	tx, err := s.DB().BeginTx(ctx, o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// replicated starts a server whose commits wait for a standby, and opens a store on a pool of it.
func replicated(t *testing.T) (primary, standby *pgtest.Cluster) {
	t.Helper()
	primary, err := pgtest.Start(t.Context(), pgtest.Options{Settings: []string{"synchronous_commit=on"}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, primary.Stop()) })
	standby, err = primary.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, standby.Stop()) })
	return primary, standby
}

// Somebody cancels the wait for the standby. The server then reports success, after a warning that the pool's owner may not hear.
func TestACommitThatNoStandbyHasIsInDoubt(t *testing.T) {
	primary, standby := replicated(t)
	require.NoError(t, primary.Synchronous(t.Context(), true))
	pool := configured(t, primary.DSN, func(*pgxpool.Config) {})
	s := onPool(t, primary.DSN, pool, postgres.Options{Schema: "jq"})
	lives(t, s)
	require.NoError(t, standby.Detach(t.Context()))
	client := jq.NewClient(s, nil)
	for name, call := range map[string]func() error{
		"a call": func() error {
			_, err := client.Enqueue(t.Context(), ship{1}, nil)
			return err
		},
		"a transaction of DB": func() error {
			tx, err := s.DB().Begin()
			if err != nil {
				return err
			}
			if _, err := client.EnqueueTx(t.Context(), tx, ship{1}, nil); err != nil {
				return err
			}
			return tx.Commit()
		},
		"a migration": func() error {
			other, err := jqpgx.Open(t.Context(), pool, &postgres.Options{Schema: "another"})
			if err == nil {
				_ = other.Close()
			}
			return err
		},
	} {
		done := make(chan error, 1)
		go func() { done <- call() }()
		require.Eventually(t, func() bool { // each commit of the migrations
			_, err := pool.Exec(t.Context(), `SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
			require.NoError(t, err)
			return len(done) > 0
		}, bound, 5*time.Millisecond, name)
		require.ErrorIs(t, <-done, jq.ErrInDoubt, name)
	}
	require.NoError(t, standby.Attach(t.Context()))
	lives(t, s)
}

// A connection that leads to a standby does not go back to the pool: the next one may lead to the primary.
func TestAStandbyIsLeft(t *testing.T) {
	primary, standby := replicated(t)
	there := onPool(t, primary.DSN, configured(t, primary.DSN, func(*pgxpool.Config) {}), postgres.Options{Schema: "jq"})
	lives(t, there)
	require.NoError(t, standby.CaughtUp(t.Context()))
	pool := sized(t, standby.DSN, 1)
	s := onPool(t, standby.DSN, pool, postgres.Options{Schema: "jq", NoMigrate: true})
	_, err := s.OldestDue(t.Context())
	require.NoError(t, err)
	for range 3 {
		before := pool.Stat().NewConnsCount()
		_, err := s.Enqueue(t.Context(), oneJob)
		require.ErrorIs(t, err, jq.ErrUnavailable)
		assert.ErrorContains(t, err, "perhaps a standby")
		_, err = s.OldestDue(t.Context())
		require.NoError(t, err)
		assert.Equal(t, before+1, pool.Stat().NewConnsCount())
	}
}
