package postgres

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
)

// TestLockedJobIsBusy: a heartbeat waits for no caller's transaction, and the others of its jobs do not either.
func TestLockedJobIsBusy(t *testing.T) {
	s := openStore(t, Options{})
	enqueue(t, s, 3)
	held := claimN(t, s, 3)
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = s.InTx(tx).Ack(t.Context(), acksOf(held[1:2]))
	require.NoError(t, err)
	var leases []store.Lease
	for _, j := range held {
		leases = append(leases, j.Lease())
	}
	outcomes, err := s.Extend(t.Context(), leases, time.Hour)
	require.NoError(t, err)
	for i, want := range []store.Status{store.StatusOK, store.StatusBusy, store.StatusOK} {
		assert.Equal(t, want, outcomes[i].Status)
	}
	require.NoError(t, tx.Rollback())
}

// TestLockTimeOut: who must wait for a locked job gives up in time, with nothing applied, whatever the caller's patience.
func TestLockTimeOut(t *testing.T) {
	other := openStore(t, Options{})
	enqueue(t, other, 1)
	held := claimN(t, other, 1)
	s := openStore(t, Options{Schema: other.options.Schema, LockTimeout: 50 * time.Millisecond})
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = s.InTx(tx).Ack(t.Context(), acksOf(held))
	require.NoError(t, err)
	_, err = s.Ack(t.Context(), acksOf(held))
	assert.ErrorIs(t, err, store.ErrUnavailable)
	assert.Contains(t, err.Error(), "another transaction holds the rows for too long")
	require.NoError(t, tx.Rollback())
	outcomes, err := s.Ack(t.Context(), acksOf(held))
	require.NoError(t, err)
	assert.Equal(t, store.StatusOK, outcomes[0].Status)
}

// TestServerGoesAwayAndComesBack ends all sessions of the store, idle and in mid-call.
func TestServerGoesAwayAndComesBack(t *testing.T) {
	killer := openKiller(t)
	s := openStore(t, Options{Timeout: time.Minute, LockTimeout: time.Minute})
	enqueue(t, s, 1)
	held := claimN(t, s, 1)
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = s.InTx(tx).Ack(t.Context(), acksOf(held))
	require.NoError(t, err)

	waiting := make(chan error, 1)
	go func() {
		_, err := s.Ack(context.Background(), acksOf(held))
		waiting <- err
	}()
	require.Eventually(t, func() bool { return killer.end(t, s, `wait_event_type = 'Lock'`) > 0 }, 5*time.Second, time.Millisecond)
	err = <-waiting
	assert.ErrorIs(t, err, store.ErrInDoubt, "nobody knows whether it was ended before or after its commit")
	require.NoError(t, tx.Commit())

	killer.end(t, s, `state = 'idle'`)
	outcomes, err := s.Ack(t.Context(), acksOf(held))
	require.NoError(t, err, "connections that died in the pool are no caller's concern")
	assert.Equal(t, store.StatusOK, outcomes[0].Status)
}

// TestLostCommitIsInDoubt ends the session between the last statement and the commit.
func TestLostCommitIsInDoubt(t *testing.T) {
	s := openStore(t, Options{})
	killer := openKiller(t)
	_, err := once(t.Context(), s, s.with.write, func(tn *txn) (int, error) {
		var pid int
		if err := tn.conn.GetContext(tn.ctx, &pid, `SELECT pg_backend_pid()`); err != nil {
			return 0, err
		}
		_, err := killer.store.db.Exec(`SELECT pg_terminate_backend($1, 5000)`, pid)
		return 0, err
	})
	assert.ErrorIs(t, err, store.ErrInDoubt)
	assert.NotErrorIs(t, err, store.ErrUnavailable)
	enqueue(t, s, 1)
}

// A killer ends other sessions.
type killer struct{ store *Store }

func openKiller(t *testing.T) killer { return killer{openStore(t, Options{})} }

// end ends the sessions that use the schema of the store, and says how many those were.
func (k killer) end(t *testing.T, s *Store, which string) (n int) {
	t.Helper()
	require.NoError(t, k.store.db.Get(&n, `
		SELECT count(*) FILTER (WHERE pg_terminate_backend(pid, 5000))
		FROM pg_stat_activity
		WHERE pid <> pg_backend_pid() AND application_name = $1 AND `+which, s.options.Schema))
	return n
}

// awaitWaiting waits until so many sessions of the store's schema wait for a lock.
func awaitWaiting(t *testing.T, s *Store, want int, within time.Duration) {
	t.Helper()
	require.Eventually(t, func() bool {
		var n int
		err := s.callers.Get(&n, `
			SELECT count(*)
			FROM pg_stat_activity
			WHERE application_name = $1 AND wait_event_type = 'Lock'`, s.options.Schema)
		return err == nil && n == want
	}, within, time.Millisecond)
}

// TestDeadlockIsRetried lets two calls lock two keys in opposite orders, by way of a caller's transaction. A third one keeps both
// waiting until the circle is complete: a server looks for circles once in each wait.
func TestDeadlockIsRetried(t *testing.T) {
	s := openStore(t, Options{Timeout: time.Minute, LockTimeout: time.Minute})
	enqueue(t, s, 2)
	held := claimN(t, s, 2)
	begin := func() *sql.Tx {
		tx, err := s.DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		return tx
	}
	third, tx := begin(), begin()
	_, err := s.InTx(third).Ack(t.Context(), acksOf(held[:1]))
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), `SET LOCAL deadlock_timeout = '1min'`) // so that ours is the one to give way
	require.NoError(t, err)
	_, err = s.InTx(tx).Ack(t.Context(), acksOf(held[1:]))
	require.NoError(t, err)

	var wait sync.WaitGroup
	var outcomes []store.Outcome
	var ours error
	wait.Go(func() { outcomes, ours = s.Ack(context.Background(), acksOf(held)) }) // waits for the first, then for the second
	awaitWaiting(t, s, 1, 5*time.Second)
	theirs := make(chan error, 1)
	go func() { _, err := s.InTx(tx).Ack(context.Background(), acksOf(held[:1])); theirs <- err }()
	awaitWaiting(t, s, 2, 5*time.Second)
	require.NoError(t, third.Rollback())
	require.NoError(t, <-theirs)
	require.NoError(t, tx.Commit())
	wait.Wait()
	require.NoError(t, ours)
	for _, o := range outcomes {
		assert.Equal(t, store.StatusOK, o.Status)
	}
}

// TestInTxOfAnotherDriver: a caller's transaction by pgx.
func TestInTxOfAnotherDriver(t *testing.T) {
	s := openStore(t, Options{})
	enqueue(t, s, 3)
	held := claimN(t, s, 3)
	config, err := pgx.ParseConfig(pgtest.DSN(t))
	require.NoError(t, err)
	db := stdlib.OpenDB(*config)
	defer func() { assert.NoError(t, db.Close()) }()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	w := s.InTx(tx)
	jobs := benchJobs(2)
	jobs[0].UniqueKey, jobs[0].Tags = `a "key" \ of {many}, words`, []string{`{"a"}`, `b\c`}
	jobs[1].UniqueKey, jobs[1].UniqueFor = "window", time.Hour
	answers, err := w.Enqueue(t.Context(), store.EnqueueRequest{Jobs: jobs, RequestKey: "request"})
	require.NoError(t, err)
	again, err := w.Enqueue(t.Context(), store.EnqueueRequest{Jobs: jobs, RequestKey: "request"})
	require.NoError(t, err)
	assert.Equal(t, answers, again)
	_, err = w.Ack(t.Context(), []store.Ack{{Lease: held[0].Lease(), Result: []byte(`{"a": "b"}`)}})
	require.NoError(t, err)
	_, err = w.NAck(t.Context(), []store.NAck{{Lease: held[1].Lease(), Form: store.After, Delay: time.Hour, Error: `"x" \ ‑`}})
	require.NoError(t, err)
	require.NoError(t, tx.Commit())

	for id, want := range map[int64]store.State{
		answers[0].ID: store.Ready, held[0].ID: store.Succeeded, held[1].ID: store.Retrying, held[2].ID: store.InFlight,
	} {
		got, err := s.Get(t.Context(), id)
		require.NoError(t, err)
		assert.Equal(t, want, got.Phase())
	}
	got, err := s.Get(t.Context(), answers[0].ID)
	require.NoError(t, err)
	assert.Equal(t, jobs[0].Tags, got.Tags)
	assert.Equal(t, jobs[0].UniqueKey, got.UniqueKey)

	tx, err = db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = s.InTx(tx).Ack(t.Context(), []store.Ack{{Lease: held[0].Lease()}})
	assert.ErrorIs(t, err, store.ErrAlreadyFinished)
	require.NoError(t, tx.Rollback())
}

// TestUndeliveredClaimIsReleased: the answer to a claim's commit is lost although it was applied.
func TestUndeliveredClaimIsReleased(t *testing.T) {
	s := openStore(t, Options{})
	enqueue(t, s, 5)
	held := claimN(t, s, 5)
	lost := &claim{ClaimRequest: claimOf(5)}
	for _, j := range held {
		detail, err := s.Get(t.Context(), j.ID)
		require.NoError(t, err)
		lost.at, lost.leases = detail.History[0].StartedAt, append(lost.leases, j.Lease())
	}
	s.background(func(ctx context.Context) { s.release(ctx, lost) })
	s.running.Wait()
	again := claimN(t, s, 5)
	require.Len(t, again, 5)
	assert.Equal(t, 1, again[0].Attempts, "a released claim does not count")
}

func TestErrorsByCode(t *testing.T) {
	for code, k := range map[string]struct {
		commit error
		passes bool
	}{
		codeSerialization: {store.ErrUnavailable, true},
		codeDeadlock:      {store.ErrUnavailable, true},
		codeFull:          {store.ErrUnavailable, false},
		"57P01":           {store.ErrInDoubt, false},
		"08006":           {store.ErrInDoubt, false},
		"":                {store.ErrInDoubt, false},
	} {
		var err error = errors.New("connection reset")
		if code != "" {
			err = &pq.Error{Code: pqerror.Code(code)}
		}
		assert.ErrorIs(t, ours(err), store.ErrUnavailable, code)
		assert.ErrorIs(t, committed(err), k.commit, code)
		assert.Equal(t, k.passes, passing(ours(err)), code)
	}
}

// TestBeatsHaveTheirOwnConnections: a heartbeat comes through while every other connection waits for a locked job.
func TestBeatsHaveTheirOwnConnections(t *testing.T) {
	s := openStore(t, Options{MaxConns: 4})
	enqueue(t, s, 2)
	held := claimN(t, s, 2)
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = s.InTx(tx).Ack(t.Context(), acksOf(held[:1]))
	require.NoError(t, err)
	var waiting sync.WaitGroup
	for range 3 {
		waiting.Go(func() { _, _ = s.Ack(context.Background(), acksOf(held[:1])) })
	}
	require.Eventually(t, func() bool { used, waiting := busy(s); return used == 2 && waiting == 1 }, 5*time.Second, time.Millisecond)
	outcomes, err := s.Extend(t.Context(), []store.Lease{held[1].Lease()}, time.Hour)
	require.NoError(t, err)
	assert.Equal(t, store.StatusOK, outcomes[0].Status)
	require.NoError(t, tx.Rollback())
	waiting.Wait()
}

// A heartbeat that waits for a connection extends from the time at which it comes through.
func TestExtendTakesNowInItsTransaction(t *testing.T) {
	t.Parallel()
	shown := newClock()
	s := openStore(t, Options{Clock: shown})
	enqueue(t, s, 1)
	held := claimN(t, s, 1)
	var taken []*sqlx.Conn
	for range s.pool.most {
		conn, err := s.urgent.Connx(t.Context())
		require.NoError(t, err)
		taken = append(taken, conn)
	}
	var outcomes []store.Outcome
	ended := make(chan error, 1)
	go func() {
		var err error
		outcomes, err = s.Extend(t.Context(), leasesOf(held), time.Minute)
		ended <- err
	}()
	require.Eventually(t, func() bool { _, waiting := busy(s); return waiting > 0 }, time.Minute, time.Millisecond, "it waits for no connection")
	shown.Add(20 * time.Second)
	for _, conn := range taken {
		require.NoError(t, conn.Close())
	}
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		require.Fail(t, "the heartbeat does not end")
	}
	assert.Equal(t, shown.Now().Add(time.Minute), outcomes[0].Next)
}

// Leases run by the database's clock, which is an hour ahead of the caller's here.
func TestLeasesRunByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	schema := pgtest.Schema(t, dsn)
	db, err := sqlx.Connect("postgres", dsn)
	require.NoError(t, err)
	defer func() { assert.NoError(t, db.Close()) }()
	for _, statement := range []string{
		`CREATE SCHEMA ` + pq.QuoteIdentifier(schema), `
		CREATE FUNCTION ` + pq.QuoteIdentifier(schema) + `.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
		'SELECT pg_catalog.clock_timestamp() + interval ''1 hour'''`,
	} {
		_, err := db.Exec(statement)
		require.NoError(t, err)
	}
	s, err := Open(t.Context(), dsn+" search_path='"+pq.QuoteIdentifier(schema)+",pg_catalog'", &Options{Schema: schema})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	enqueue(t, s, 1)
	held := claimN(t, s, 1)
	require.Len(t, held, 1)
	outcomes, err := s.Extend(t.Context(), leasesOf(held), 2*time.Minute)
	require.NoError(t, err)
	ahead := time.Now().Add(time.Hour)
	assert.WithinDuration(t, ahead, held[0].LeaseExpiresAt, 30*time.Minute)
	assert.WithinDuration(t, ahead, outcomes[0].Next, 30*time.Minute)
}

// TestWakeUpsWithoutListening: behind a pooling proxy without a direct way to the server, wake-ups come by and by.
func TestWakeUpsWithoutListening(t *testing.T) {
	s := openStore(t, Options{Pooled: true})
	named, err := s.Subscribe(t.Context(), []string{"q"})
	require.NoError(t, err)
	unnamed, err := s.Subscribe(t.Context(), nil)
	require.NoError(t, err)
	enqueue(t, s, 1)
	for _, wakeups := range []<-chan store.Wakeup{named, unnamed} {
		select {
		case w := <-wakeups:
			assert.Equal(t, "q", w.Queue)
		case <-time.After(10 * pollEvery):
			require.Fail(t, "no wake-up came")
		}
	}
}
