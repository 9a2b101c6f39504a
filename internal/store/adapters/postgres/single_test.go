package postgres

import (
	"context"
	"database/sql/driver"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
)

// warm is a store with one connection, which has prepared what calls about a few jobs need. It sends no notification in a message of its
// own, which a test that counts messages would count, and a test that wraps connections would meet.
func warm(t *testing.T, o Options) *Store {
	t.Helper()
	s := narrow(openStore(t, o))
	s.limiter.mu.Lock()
	s.limiter.latest[store.Wakeup{Queue: "q"}] = time.Now().Add(time.Hour)
	s.limiter.mu.Unlock()
	for range 3 {
		enqueue(t, s, 1)
		jobs := claimN(t, s, 1)
		require.Len(t, jobs, 1)
		require.Empty(t, claimN(t, s, 1))
		_, err := s.Ack(t.Context(), acksOf(jobs))
		require.NoError(t, err)
	}
	return s
}

// backend is the server process of the store's only connection.
func backend(t *testing.T, s *Store) (pid int) {
	t.Helper()
	require.NoError(t, s.db.GetContext(t.Context(), &pid, `SELECT pg_backend_pid()`))
	return pid
}

// inQueue lets a test look at what is remembered of the queue q, or change it.
func inQueue(s *Store, f func(*cursor.Queue)) {
	s.cursors.Change("q", s.cursors.Get("q"), f)
}

// lively makes the store take its marks and its idle sessions for new, however slowly the test runs.
func lively(s *Store) {
	inQueue(s, func(q *cursor.Queue) { q.Looked = time.Now().Add(time.Hour) })
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	for _, idle := range s.pool.idle {
		idle.worked = time.Now().Add(time.Hour)
	}
}

// Messages are counted, since each takes longer than what it is about.
func TestCallsAboutFewJobsAreSingleStatements(t *testing.T) {
	t.Parallel()
	s := warm(t, Options{})
	other := openStore(t, Options{Schema: s.options.Schema})
	some := func() { require.Len(t, claimN(t, s, 1), 1) }
	none := func() { require.Empty(t, claimN(t, s, 1)) }
	var held []store.Job
	add := func(group string) {
		_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{{Queue: "q", Kind: "k", Payload: []byte(`1`), Group: group}}})
		require.NoError(t, err)
	}
	hold := func() { held = claimN(t, s, 1) }
	ack := func() {
		_, err := s.Ack(t.Context(), acksOf(held))
		require.NoError(t, err)
	}
	for _, call := range []struct {
		name   string
		before func()
		call   func()
		want   int64
	}{
		{"an enqueue", nil, func() { enqueue(t, s, 2) }, 1},
		{"a claim that was told of jobs", nil, some, 1},
		{"one after another, which does not know whether there are many", nil, some, 4},
		{"one that finds neither fresh jobs nor retries, and then looks", nil, none, 5},
		{"one that has nothing to expect", nil, none, 1},
		{"unless it sees something", func() { enqueue(t, other, 1) }, some, 2},
		{"an ack", func() { add(""); hold() }, ack, 1},
		{"an enqueue into a group", nil, func() { add("g") }, 1},
		{"the first ack of a job of a group, which is not expected", hold, ack, 6},
		{"the next one, with the question whether the group is done", func() { add("g"); hold() }, ack, 2},
		{"an ack of another job", func() { add(""); hold() }, ack, 1},
	} {
		if call.before != nil {
			call.before()
		}
		lively(s)
		assert.Equal(t, call.want, spentBy(t, s, call.call)["round trips"], call.name)
	}
}

// Leases that are refused are not given, and the session goes on.
func TestWhatIsRefusedIsNotCommitted(t *testing.T) {
	t.Parallel()
	s := warm(t, Options{})
	ids := enqueue(t, s, 2)
	before := backend(t, s)
	_, err := s.DB().ExecContext(t.Context(), s.sql(`ALTER TABLE {schema}.jobs ADD CHECK (worker <> 'bad')`))
	require.NoError(t, err)
	bad := claimOf(1)
	bad.Worker = "bad"
	for range 3 {
		_, err = s.FetchAndClaim(t.Context(), bad)
		require.ErrorIs(t, err, store.ErrUnavailable)
		require.NotErrorIs(t, err, store.ErrInDoubt)
	}
	require.Equal(t, int64(2), countIn(t, s, store.Ready))
	jobs := claimN(t, s, 2)
	require.Len(t, jobs, 2)
	assert.Equal(t, ids[0], jobs[0].ID)
	assert.Equal(t, int64(1), jobs[0].Token)
	assert.Equal(t, before, backend(t, s), "it is the same session")
}

// A look was made from marks that hold no longer, if its answer tells that the clock was set back.
func TestALookThatCameTooEarlyIsMadeAnew(t *testing.T) {
	t.Parallel()
	for _, told := range []bool{false, true} {
		noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		shown := clock.NewMock()
		shown.Set(noon)
		s := narrow(openStore(t, Options{Clock: shown}))
		other := openStore(t, Options{Clock: shown, Schema: s.options.Schema})
		awaitMark(t, s, cursor.Position{At: noon.Add(store.Resolution), ID: 0}, func() {
			shown.Add(time.Second)
			require.Empty(t, claimN(t, s, 1))
		})
		shown.Set(noon)
		enqueue(t, other, 1)
		inQueue(s, func(q *cursor.Queue) { q.Told = told })
		assert.Len(t, claimN(t, s, 1), 1)
	}
}

// A look that has to wait for a table that is written anew must see the new one.
func TestALookDuringAChangeOfTheTableMissesNothing(t *testing.T) {
	t.Parallel()
	for _, told := range []bool{false, true} {
		s := warm(t, Options{})
		other := openStore(t, Options{Schema: s.options.Schema})
		enqueue(t, other, 2)
		inQueue(s, func(q *cursor.Queue) { q.Told = told })
		change, err := s.DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = change.ExecContext(t.Context(), s.sql(`ALTER TABLE {schema}.jobs ALTER COLUMN attempts TYPE bigint`))
		require.NoError(t, err)
		claimed := make(chan int, 1)
		go func() {
			jobs, err := s.FetchAndClaim(t.Context(), claimOf(1))
			assert.NoError(t, err)
			claimed <- len(jobs)
		}()
		awaitWaiting(t, s, 1, time.Minute)
		require.NoError(t, change.Commit())
		assert.Equal(t, 1, <-claimed)
		assert.Len(t, claimN(t, s, 2), 1)
	}
}

// lookMark is in each statement that only looks.
const lookMark = "AS always"

// A slowConn is a connection on which something else happens between a message and its answer.
type slowConn struct {
	Conn
	at        string // is in the message
	meanwhile *func()
}

func (c *slowConn) await(query string) {
	if f := *c.meanwhile; f != nil && strings.Contains(query, c.at) {
		*c.meanwhile = nil
		f()
	}
}

// QueryContext is part of driver.QueryerContext.
func (c *slowConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.Conn.QueryContext(ctx, query, args)
	c.await(query)
	return rows, err
}

// ExecContext is part of driver.ExecerContext.
func (c *slowConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	result, err := c.Conn.ExecContext(ctx, query, args)
	c.await(query)
	return result, err
}

// PrepareContext is part of driver.ConnPrepareContext.
func (c *slowConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	stmt, err := c.Conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return &slowStmt{stmt, stmt.(statement), c, query}, nil
}

type slowStmt struct {
	driver.Stmt
	statement
	c     *slowConn
	query string
}

// QueryContext is part of driver.StmtQueryContext.
func (s *slowStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := s.statement.QueryContext(ctx, args)
	s.c.await(s.query)
	return rows, err
}

// A transaction ends after a look, and another claim has learned of it before the answer is there.
func TestALookKnowsOfNothingThatEndedAfterIt(t *testing.T) {
	t.Parallel()
	for _, told := range []bool{false, true} {
		shown := clock.NewMock()
		s := openStore(t, Options{Clock: shown})
		var meanwhile func()
		wrapped(t, s, func(c Conn) Conn { return &slowConn{c, lookMark, &meanwhile} })
		for range 4 {
			require.Empty(t, claimN(t, s, 1))
		}
		tx, err := s.DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		enqueue(t, s.InTx(tx), 1)
		shown.Add(time.Second)
		claimOther(t, s)
		inQueue(s, func(q *cursor.Queue) { q.Told = told })
		took := 0
		meanwhile = func() {
			require.Eventually(t, func() bool {
				var looking int
				err := s.callers.GetContext(t.Context(), &looking, `
					SELECT count(*)
					FROM pg_stat_activity
					WHERE application_name = $1 AND state = 'active' AND query LIKE '%' || $2 || '%'`, s.options.Schema, lookMark)
				return err == nil && looking == 0
			}, time.Minute, time.Millisecond)
			require.NoError(t, tx.Commit())
			awaitHorizon(t, s, shown.Now())
		}
		for range 2 {
			took += len(claimN(t, s, 1))
		}
		require.Nil(t, meanwhile, "no look was made")
		assert.Equal(t, 1, took)
	}
}

// Another claim has found the clock set back before the look is answered: what this one began from holds no longer.
func TestALookWhosePlacesWereForgottenIsMadeAnew(t *testing.T) {
	t.Parallel()
	for _, told := range []bool{false, true} {
		s := narrow(openStore(t, Options{}))
		other := openStore(t, Options{Schema: s.options.Schema})
		var meanwhile func()
		wrapped(t, s, func(c Conn) Conn { return &slowConn{c, lookMark, &meanwhile} })
		for range 4 {
			require.Empty(t, claimN(t, s, 1))
		}
		enqueue(t, other, 1)
		inQueue(s, func(q *cursor.Queue) {
			q.Lanes[cursor.Fresh].Mark[cursor.LevelOf(0)] = cursor.Position{At: time.Now().Add(time.Hour)}
			q.Told = told
		})
		meanwhile = s.cursors.Forget
		assert.Len(t, claimN(t, s, 1), 1)
		require.Nil(t, meanwhile, "no look was made")
	}
}

// A look that fails has seen nothing, which does not mean that nothing is there.
func TestALookThatFailsMovesNoMark(t *testing.T) {
	t.Parallel()
	s := warm(t, Options{LockTimeout: 50 * time.Millisecond})
	other := openStore(t, Options{Schema: s.options.Schema})
	enqueue(t, other, 1)
	for _, told := range []bool{false, true} {
		inQueue(s, func(q *cursor.Queue) { q.Told = told })
		change, err := s.DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = change.ExecContext(t.Context(), s.sql(`LOCK TABLE {schema}.jobs`))
		require.NoError(t, err)
		before := s.cursors.Get("q")
		_, err = s.FetchAndClaim(t.Context(), claimOf(1))
		assert.ErrorIs(t, err, store.ErrUnavailable)
		assert.Equal(t, before, s.cursors.Get("q"))
		require.NoError(t, change.Rollback())
	}
	assert.Len(t, claimN(t, s, 1), 1)
}

// Whoever finds nothing to do leaves no trace on the server.
func TestWhoFindsNothingTakesNoNumber(t *testing.T) {
	s, err := Open(t.Context(), ownServer(t, pgtest.Options{}).DSN, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	s.sweeper.pace(never)
	next := func() (n int64) {
		require.NoError(t, s.callers.GetContext(t.Context(), &n, `
			SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint + age(pg_snapshot_xmax(pg_current_snapshot())::xid)`))
		return n
	}
	idle := func() {
		require.Empty(t, claimN(t, s, 1))
		recovered, err := s.RecoverExpiredLeases(t.Context(), store.RecoverRequest{Limit: 1})
		require.NoError(t, err)
		require.Empty(t, recovered)
		settled, err := s.Settle(t.Context(), 1)
		require.NoError(t, err)
		require.Empty(t, settled)
	}
	for range 3 { // until the store has met the server
		idle()
	}
	before := next()
	for range 5 {
		inQueue(s, func(q *cursor.Queue) { q.Told = true }) // so it asks for jobs, and not only whether there are some
		idle()
	}
	assert.Equal(t, before, next())
	enqueue(t, s, 1)
	assert.Greater(t, next(), before, "whoever writes takes one")
}

// A delayedClock is a connection on which the statements of the store wait for a lock before they read the clock.
type delayedClock struct{ Conn }

var delayed = strings.NewReplacer(`clock_timestamp()`, `(SELECT clock_timestamp() FROM (SELECT pg_advisory_xact_lock(7) OFFSET 0) AS waited)`)

// QueryContext is part of driver.QueryerContext.
func (c delayedClock) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.Conn.QueryContext(ctx, delayed.Replace(query), args)
}

// PrepareContext is part of driver.ConnPrepareContext.
func (c delayedClock) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	return c.Conn.PrepareContext(ctx, delayed.Replace(query))
}

// A mark passes the due time of a job, or of a lease, only when every transaction has ended that had a number then. So whoever writes
// one must have its number before it reads the clock.
func TestSingleStatementsHaveTheirNumberBeforeTheyReadTheClock(t *testing.T) {
	t.Parallel()
	s := warm(t, Options{})
	wrapped(t, s, func(c Conn) Conn { return delayedClock{c} })
	narrow(s)
	enqueue(t, s, 1)
	require.Len(t, claimN(t, s, 2), 1)
	lock, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	numbered := func(name string, call func() error) {
		lively(s)
		_, err := lock.ExecContext(t.Context(), `SELECT pg_advisory_lock(7)`)
		require.NoError(t, err)
		before := s.roundTrips.messages.Load()
		done := make(chan error, 1)
		go func() { done <- call() }()
		require.Eventually(t, func() bool {
			var n int
			err := s.callers.GetContext(t.Context(), &n, `
				SELECT count(*)
				FROM pg_stat_activity
				WHERE application_name = $1 AND wait_event = 'advisory' AND backend_xid IS NOT NULL`, s.options.Schema)
			return err == nil && n == 1
		}, time.Minute, time.Millisecond, "%s has no number, or reads no clock", name)
		_, err = lock.ExecContext(t.Context(), `SELECT pg_advisory_unlock(7)`)
		require.NoError(t, err)
		require.NoError(t, <-done, name)
		assert.Equal(t, int64(1), s.roundTrips.messages.Load()-before, "messages of %s", name)
	}
	for range 3 {
		numbered("an enqueue", func() error {
			_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
			return err
		})
		numbered("a claim", func() error {
			jobs, err := s.FetchAndClaim(t.Context(), claimOf(2))
			assert.Len(t, jobs, 1)
			return err
		})
	}
	require.NoError(t, lock.Rollback())
}

// Jobs that are inserted by a single statement are as all others.
func TestASingleStatementInsertsJobsAsATransactionDoes(t *testing.T) {
	t.Parallel()
	s := warm(t, Options{})
	jobs := []store.NewJob{
		{Queue: "q", Kind: "k", Payload: []byte(`{"a": "\u00fc"}`), Priority: 3, Tags: []string{"t", `"`}, Trace: "trace"},
		{Queue: "it's", Kind: `k\`, Payload: []byte(`1`), Delay: time.Hour + 7*time.Microsecond + 9, MaxRetries: 5, Timeout: time.Minute},
		{Queue: "q", Kind: "k", Payload: []byte(`null`), Backoff: store.Backoff{Base: time.Second, Cap: time.Minute, Jitter: 20}},
	}
	var last time.Time
	for i := range 4 {
		if i == 2 {
			jobs[1].Group = "g"
		}
		var answers []store.Enqueued
		lively(s)
		costs := spentBy(t, s, func() {
			var err error
			answers, err = s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: jobs})
			require.NoError(t, err)
		})
		require.Len(t, answers, len(jobs))
		assert.Equal(t, int64(1), costs["round trips"])
		for i, a := range answers {
			assert.Equal(t, store.Enqueued{ID: answers[0].ID + int64(i), State: store.Ready}, a)
			detail, err := s.Get(t.Context(), a.ID)
			require.NoError(t, err)
			now := detail.Job.EnqueuedAt
			assert.Equal(t, jobs[i].Row(a.ID, now), detail.Job)
			assert.False(t, now.Before(last), "now goes on")
			last = now
		}
	}
}

// A session on which nothing has happened for a while is asked first, so that a call whose answer is lost was not applied. So is one
// that the server has ended.
func TestOnlyWarmSessionsGetSingleStatementsThatWrite(t *testing.T) {
	s := warm(t, Options{})
	killer := openKiller(t)
	messages := func(want int64, why string) {
		t.Helper()
		assert.Equal(t, want, spentBy(t, s, func() { enqueue(t, s, 1) })["round trips"], why)
	}
	lively(s)
	messages(1, "the session is warm")
	s.pool.mu.Lock()
	require.NotEmpty(t, s.pool.idle)
	for _, idle := range s.pool.idle {
		idle.worked = time.Now().Add(-warmFor)
	}
	s.pool.mu.Unlock()
	began := time.Now()
	messages(3, "it is cold")
	s.pool.mu.Lock()
	for _, idle := range s.pool.idle {
		assert.False(t, idle.worked.Before(began), "it is warm again")
	}
	s.pool.mu.Unlock()
	lively(s)
	messages(1, "it is warm")
	require.Positive(t, killer.end(t, s, `state = 'idle'`))
	_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
	assert.NoError(t, err, "a connection that died in the pool leaves nothing in doubt")
}

// Retries that are due later are many, and a claim that was told of a fresh job passes them by. Its plan is from when there were none.
func TestAToldClaimPassesLaterRetriesBy(t *testing.T) {
	s := warm(t, Options{})
	m := metered(t, s)
	told := func() cost {
		enqueue(t, s, 1)
		lively(s)
		return m.of(func() error {
			require.Len(t, claimN(t, s, 2), 1)
			return nil
		})
	}
	for range 3 {
		told()
	}
	before := told()
	crowd{queue: "q", state: store.Failed, due: longAgo, retry: soon}.add(t, s, 20_000)
	after := told()
	assert.LessOrEqual(t, after.pages, before.pages+50)
	assert.LessOrEqual(t, after.rows, before.rows+50)
}

// A store has left a server for another while a call on it was under way. Nobody may take what is committed there for not applied.
func TestACallOnAServerThatWasReplacedMeanwhileIsInDoubt(t *testing.T) {
	t.Parallel()
	s := warm(t, Options{})
	var meanwhile func()
	wrapped(t, s, func(c Conn) Conn { return &slowConn{c, "INSERT INTO", &meanwhile} })
	narrow(s)
	enqueue(t, s, 1)
	meanwhile = func() { s.server.meet(time.Now()) }
	lively(s)
	_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
	require.Nil(t, meanwhile)
	require.ErrorIs(t, err, store.ErrInDoubt)
	var n int
	require.NoError(t, s.callers.GetContext(t.Context(), &n, s.sql(`SELECT count(*) FROM {schema}.jobs WHERE lease_expires_at IS NULL AND finished_at IS NULL`)))
	assert.Equal(t, 2, n)
}

// A claim whose COMMIT may not have been confirmed releases what it has taken.
func TestAToldClaimInDoubtIsReleased(t *testing.T) {
	t.Parallel()
	s := warm(t, Options{})
	_, err := s.callers.ExecContext(t.Context(), s.sql(`
		CREATE FUNCTION {schema}.warn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'as of a commit'; RETURN NEW; END $$;
		CREATE TRIGGER warn BEFORE UPDATE ON {schema}.jobs FOR EACH ROW WHEN (NEW.worker = 'doubts') EXECUTE FUNCTION {schema}.warn()`))
	require.NoError(t, err)
	id := enqueue(t, s, 1)[0]
	req := claimOf(2)
	req.Worker = "doubts"
	lively(s)
	costs := spentBy(t, s, func() {
		_, err = s.FetchAndClaim(t.Context(), req)
		s.running.Wait()
	})
	require.ErrorIs(t, err, store.ErrInDoubt)
	require.Positive(t, costs["round trips"])
	detail, err := s.Get(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, store.Ready, detail.Job.State)
	assert.Equal(t, int64(1), detail.Job.Token, "it was claimed")
}

// An injected clock is read before the statement has its number. Meanwhile the mark of the leases may pass the row that it writes.
func TestALeaseOfAClockThatMovedMeanwhileIsFound(t *testing.T) {
	t.Parallel()
	shown := newClock()
	s := warm(t, Options{Clock: shown})
	other := openStore(t, Options{Clock: shown, Schema: s.options.Schema})
	recovered := func() int {
		list, err := other.RecoverExpiredLeases(t.Context(), store.RecoverRequest{Limit: 10})
		require.NoError(t, err)
		return len(list)
	}
	moved := 0
	spied(t, s, "given.until", func(string) {
		moved++
		to := shown.Now().Add(9 * time.Second)
		shown.Add(10 * time.Second)
		require.Eventually(t, func() bool { recovered(); return other.leases().At.After(to) }, time.Minute, time.Millisecond, "the mark does not move")
	})
	narrow(s)
	enqueue(t, s, 1)
	lively(s)
	require.Len(t, claimN(t, s, 2), 1)
	require.Positive(t, moved, "the claim was no single statement")
	shown.Add(2 * time.Minute)
	assert.Equal(t, 1, recovered())
}

// What ended after a single claim had looked is not behind the cursor then.
func TestAToldClaimKnowsOfNothingThatEndedAfterIt(t *testing.T) {
	t.Parallel()
	s := warm(t, Options{})
	var meanwhile func()
	wrapped(t, s, func(c Conn) Conn { return &slowConn{c, "given.until", &meanwhile} })
	narrow(s)
	s.pool.most = 4
	enqueue(t, s, 1)
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	late := enqueue(t, s.InTx(tx), 1)[0]
	enqueue(t, s, 2)
	inQueue(s, func(q *cursor.Queue) { q.Short, q.Told = true, true })
	lively(s)
	meanwhile = func() {
		require.NoError(t, tx.Commit())
		awaitHorizon(t, s, time.Now())
	}
	require.Len(t, claimN(t, s, 2), 2)
	require.Nil(t, meanwhile, "the claim was no single statement")
	lively(s)
	jobs := claimN(t, s, 1)
	require.Len(t, jobs, 1)
	assert.Equal(t, late, jobs[0].ID)
}
