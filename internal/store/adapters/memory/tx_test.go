package memory

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/bubble"
	"github.com/seed-ed332417/jq/internal/store"
)

func beginTx(t *testing.T, s *Store) *sql.Tx {
	t.Helper()
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// A picture is all that can be seen of a store, and what can not be seen but matters later.
type picture struct {
	Jobs     []store.JobDetail
	Counts   store.Counts
	Queues   []store.Queue
	Keys     map[string]int64
	Windows  int
	Requests int
	Answers  int
	Leases   int
	Ended    []uint8
}

func pictureOf(t *testing.T, s *Store) picture {
	t.Helper()
	p := picture{
		Keys: map[string]int64{}, Windows: len(s.windows.items), Requests: len(s.requests), Answers: len(s.answers.items),
		Leases: s.leases.fifo.count + len(s.leases.aside.items),
	}
	for key, h := range s.keys {
		p.Keys[key] = h.id
	}
	page, err := s.List(t.Context(), store.Filter{}, store.Page{Limit: 1000})
	require.NoError(t, err)
	for _, j := range page.Jobs {
		detail, err := s.Get(t.Context(), j.ID)
		require.NoError(t, err)
		p.Jobs = append(p.Jobs, detail)
		p.Ended = append(p.Ended, s.jobs.get(j.ID).finishedBy)
	}
	p.Counts, err = s.Count(t.Context(), store.Filter{})
	require.NoError(t, err)
	p.Queues, err = s.Queues(t.Context())
	require.NoError(t, err)
	return p
}

// prepareLeases brings a store to where much can be rolled back, and returns the leases in force.
func prepareLeases(t *testing.T, s *Store) []store.Lease {
	t.Helper()
	enqueue(t, s, plain(unique("live", 0)), plain(unique("window", time.Hour)), plain(), plain(), plain(), plain(), plain())
	var leases []store.Lease
	for _, j := range claim(t, s, 6) {
		leases = append(leases, j.Lease())
	}
	return leases
}

func writeMuch(t *testing.T, w store.Writer, leases []store.Lease) {
	t.Helper()
	_, err := w.Ack(t.Context(), []store.Ack{{Lease: leases[0], Result: []byte(`1`)}, {Lease: leases[1]}})
	require.NoError(t, err)
	_, err = w.NAck(t.Context(), []store.NAck{
		{Lease: leases[2], Form: store.Fail, Error: "boom"},
		{Lease: leases[3], Form: store.Never},
		{Lease: leases[4], Form: store.Snooze, Delay: time.Hour},
		{Lease: leases[5], Form: store.Release},
	})
	require.NoError(t, err)
	_, err = w.Enqueue(t.Context(), store.EnqueueRequest{RequestKey: "request", Jobs: []store.NewJob{
		plain(), plain(unique("live", 0)), plain(unique("new window", time.Hour)), plain(unique("window", 0)),
		plain(func(n *store.NewJob) { n.Queue = "another" }),
	}})
	require.NoError(t, err)
}

func TestRollbackUndoesExactly(t *testing.T) {
	s, clk := newStore(t)
	leases := prepareLeases(t, s)
	before := pictureOf(t, s)

	tx := beginTx(t, s)
	writeMuch(t, s.InTx(tx), leases)
	require.NoError(t, tx.Rollback())

	assert.Equal(t, before, pictureOf(t, s))
	assert.Greater(t, enqueue(t, s, plain())[0].ID, int64(7+4), "ids that were drawn are not drawn again")

	clk.Add(time.Minute)
	recovered, err := s.RecoverExpiredLeases(t.Context(), store.RecoverRequest{Limit: 10})
	require.NoError(t, err)
	assert.Len(t, recovered, 6, "leases are in force again")
	assert.Len(t, claim(t, s, 10), 6+2, "jobs are in their lines again")
}

func TestCommitIsWhatTheCallsWouldBe(t *testing.T) {
	inTx, _ := newStore(t)
	leases := prepareLeases(t, inTx)
	tx := beginTx(t, inTx)
	writeMuch(t, inTx.InTx(tx), leases)
	require.NoError(t, tx.Commit())

	direct, _ := newStore(t)
	writeMuch(t, direct, prepareLeases(t, direct))
	assert.Equal(t, pictureOf(t, direct), pictureOf(t, inTx))
}

func TestFailedCallInTxHasNoEffect(t *testing.T) {
	s, _ := newStore(t)
	leases := prepareLeases(t, s)
	tx := beginTx(t, s)
	w := s.InTx(tx)
	enqueue(t, w, plain(unique("kept", 0)))

	stale := leases[2]
	stale.Token++
	_, err := w.Ack(t.Context(), []store.Ack{{Lease: leases[0]}, {Lease: leases[1]}, {Lease: stale}})
	assert.ErrorIs(t, err, store.ErrStaleLease)
	_, err = w.Ack(t.Context(), []store.Ack{{Lease: leases[0]}, {Lease: leases[0]}})
	assert.ErrorIs(t, err, store.ErrAlreadyFinished)
	_, err = w.NAck(t.Context(), []store.NAck{{Lease: leases[0], Form: store.Fail}, {Lease: store.Lease{ID: 99}, Form: store.Fail}})
	assert.ErrorIs(t, err, store.ErrNotFound)
	_, err = w.NAck(t.Context(), []store.NAck{{Lease: leases[0], Form: store.Fail}, {Lease: leases[1], Form: "?"}})
	invalid, ok := errors.AsType[*store.InvalidError](err)
	require.True(t, ok, "got %v", err)
	assert.Equal(t, 1, invalid.Item)
	_, err = w.Ack(t.Context(), []store.Ack{{Lease: leases[0]}, {Lease: leases[1], Result: []byte(`{`)}})
	assert.ErrorIs(t, err, store.ErrInvalid)
	require.NoError(t, tx.Commit())

	for _, l := range leases {
		detail, err := s.Get(t.Context(), l.ID)
		require.NoError(t, err)
		assert.Equal(t, store.InFlight, detail.State, "job %d", l.ID)
	}
	assert.Contains(t, s.keys, "kept")
	assert.Contains(t, s.keys, "live")
}

// A heartbeat that waits for a transaction extends from the time at which it comes through.
func TestExtendTakesNowWhenItsTurnComes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, clk := newStore(t)
		enqueue(t, s, plain())
		held := claim(t, s, 1)
		require.Len(t, held, 1)
		tx := beginTx(t, s)
		enqueue(t, s.InTx(tx), plain())
		var outcomes []store.Outcome
		var waiting error
		go func() { outcomes, waiting = s.Extend(t.Context(), []store.Lease{held[0].Lease()}, time.Minute) }()
		synctest.Wait()
		require.Nil(t, outcomes, "it does not wait: the test is about nothing")
		clk.Add(20 * time.Second)
		require.NoError(t, tx.Commit())
		synctest.Wait()
		require.NoError(t, waiting)
		assert.Equal(t, clk.Now().Add(time.Minute).UTC(), outcomes[0].Next)
	})
}

func TestOthersWaitForATransaction(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, _ := newStore(t)
		tx := beginTx(t, s)
		enqueue(t, s.InTx(tx), plain())

		var found store.JobDetail
		var waiting error
		go func() { found, waiting = s.Get(t.Context(), 1) }()
		synctest.Wait()
		assert.Empty(t, found, "not yet")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.Get(ctx, 1)
		assert.ErrorIs(t, err, store.ErrUnavailable)
		assert.ErrorIs(t, err, context.DeadlineExceeded)

		require.NoError(t, tx.Commit())
		synctest.Wait()
		assert.NoError(t, waiting)
		assert.Equal(t, int64(1), found.ID)
	})
}

func TestEndOfItsContextRollsATransactionBack(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, _ := newStore(t)
		ctx, cancel := context.WithCancel(t.Context())
		tx, err := s.DB().BeginTx(ctx, nil)
		require.NoError(t, err)
		enqueue(t, s.InTx(tx), plain())

		cancel()
		synctest.Wait()
		assert.Empty(t, claim(t, s, 1), "others go on, and see nothing of it")
		_, err = s.InTx(tx).Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{plain()}})
		assert.ErrorIs(t, err, store.ErrInvalid)
		assert.ErrorIs(t, tx.Commit(), sql.ErrTxDone)
	})
}

// TestRollbackOfAJobThatHasExpiredMeanwhile leaves it in no line.
func TestRollbackOfAJobThatHasExpiredMeanwhile(t *testing.T) {
	s, clk := newStore(t)
	expires := clk.Now().Add(time.Minute)
	id := enqueue(t, s, plain(unique("key", 0), func(n *store.NewJob) { n.ExpiresAt = expires }), plain())[0].ID
	tx := beginTx(t, s)
	replaced := enqueue(t, s.InTx(tx), plain(unique("key", 0), func(n *store.NewJob) { n.Replace = true }))
	require.True(t, replaced[0].Replaced)
	clk.Set(expires)
	enqueue(t, s.InTx(tx), plain())
	require.NoError(t, tx.Rollback())

	settled, err := s.Settle(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, settled, 1)
	assert.Equal(t, id, settled[0].ID)
	assert.Len(t, claim(t, s, 10), 1)
}

func TestWaitingInATransactionEndsWithIt(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, _ := newStore(t)
		first := beginTx(t, s)
		enqueue(t, s.InTx(first), plain())

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		second, err := s.DB().BeginTx(ctx, nil)
		require.NoError(t, err)
		_, err = s.InTx(second).Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{plain()}})
		assert.ErrorIs(t, err, store.ErrUnavailable)
		assert.ErrorIs(t, err, context.DeadlineExceeded)

		require.NoError(t, first.Commit())
		assert.Len(t, claim(t, s, 10), 1)
	})
}

// TestEndingATransactionEndsWaitingInIt ends a transaction while a call in it waits for another one.
func TestEndingATransactionEndsWaitingInIt(t *testing.T) {
	for name, end := range map[string]func(*sql.Tx) error{"Rollback": (*sql.Tx).Rollback, "Commit": (*sql.Tx).Commit} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s, _ := newStore(t)
				first := beginTx(t, s)
				enqueue(t, s.InTx(first), plain())
				wakeups, err := s.Subscribe(t.Context(), nil)
				require.NoError(t, err)
				second := beginTx(t, s)
				var answers []store.Enqueued
				go func() {
					answers, err = s.InTx(second).Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{plain()}})
				}()
				synctest.Wait()
				require.NoError(t, err, "it waits")

				var ending error
				over := make(chan struct{})
				go func() { ending = end(second); close(over) }()
				synctest.Wait()
				select {
				case <-over:
				default:
					require.NoError(t, first.Rollback()) // or the test hangs
					require.Fail(t, "its end waits for the first transaction")
				}
				assert.NoError(t, ending)
				assert.Empty(t, answers)
				assert.ErrorIs(t, err, store.ErrInvalid)
				assert.ErrorIs(t, err, sql.ErrTxDone)
				assert.Empty(t, wakeups, "the first goes on")
				require.NoError(t, first.Commit())
				assert.Len(t, wakeups, 1)
				assert.Len(t, claim(t, s, 10), 1)
			})
		})
	}
}

// TestTransactionsTakeTurns lets calls in several transactions wait for one; each goes on in its turn.
func TestTransactionsTakeTurns(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, _ := newStore(t)
		first := beginTx(t, s)
		enqueue(t, s.InTx(first), plain())
		failures := make(chan error, 3)
		for range cap(failures) {
			tx := beginTx(t, s)
			go func() {
				_, err := s.InTx(tx).Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{plain()}})
				failures <- errors.Join(err, tx.Commit())
			}()
		}
		synctest.Wait()
		assert.Empty(t, failures)
		require.NoError(t, first.Rollback())
		for range cap(failures) {
			assert.NoError(t, <-failures)
		}
		assert.Len(t, claim(t, s, 10), 3)
	})
}

func TestCloseRollsATransactionBack(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, _ := newStore(t)
		tx := beginTx(t, s)
		enqueue(t, s.InTx(tx), plain())
		other := beginTx(t, s)
		var waiting, waitingInTx error
		go func() { _, waiting = s.Get(t.Context(), 1) }()
		go func() {
			_, waitingInTx = s.InTx(other).Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{plain()}})
		}()
		synctest.Wait()

		require.NoError(t, s.Close())
		synctest.Wait()
		assert.ErrorIs(t, waiting, store.ErrClosed)
		assert.ErrorIs(t, waitingInTx, store.ErrClosed)
		_, err := s.InTx(tx).Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{plain()}})
		assert.ErrorIs(t, err, store.ErrClosed)
		assert.ErrorIs(t, tx.Commit(), store.ErrClosed)
		_, err = s.DB().BeginTx(t.Context(), nil)
		assert.Error(t, err)
	})
}

// around is a type of a caller's around what may be a transaction.
type around struct{ store.Tx }

func TestTransactionMustBeOfThisStore(t *testing.T) {
	s, _ := newStore(t)
	other, _ := newStore(t)
	foreign := sql.OpenDB(foreignDB{})
	t.Cleanup(func() { assert.NoError(t, foreign.Close()) })
	foreignTx, err := foreign.Begin()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, foreignTx.Rollback()) })
	ended := beginTx(t, s)
	require.NoError(t, ended.Commit())

	for name, tx := range map[string]store.Tx{
		"another store's": beginTx(t, other), "another database's": foreignTx, "no transaction": around{s.DB()},
	} {
		_, err := s.InTx(tx).Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{plain()}})
		assert.ErrorIs(t, err, store.ErrInvalid, name)
		assert.ErrorContains(t, err, "this store's DB()", name)
	}
	_, err = s.InTx(ended).Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{plain()}})
	assert.ErrorIs(t, err, store.ErrInvalid)
	assert.ErrorIs(t, err, sql.ErrTxDone)
	assert.Empty(t, claim(t, s, 10))
	assert.Empty(t, claim(t, other, 10))
}

func TestCallersStatementsDoNothing(t *testing.T) {
	s, _ := newStore(t)
	tx := beginTx(t, s)
	_, err := tx.ExecContext(t.Context(), "INSERT INTO orders (id, at, lines) VALUES ($1, $2, $3)", 1, time.Now(), []string{"a"})
	assert.NoError(t, err)
	prepared, err := tx.PrepareContext(t.Context(), "INSERT INTO orders (id) VALUES ($1)")
	require.NoError(t, err)
	_, err = prepared.ExecContext(t.Context(), 1)
	assert.NoError(t, err)
	_, err = prepared.QueryContext(t.Context(), 1)
	assert.ErrorIs(t, err, errNoSQL)
	_, err = tx.QueryContext(t.Context(), "SELECT id FROM orders")
	assert.ErrorIs(t, err, errNoSQL)
	assert.ErrorIs(t, tx.QueryRowContext(t.Context(), "SELECT id FROM orders").Scan(new(int)), errNoSQL)
	require.NoError(t, tx.Commit())
}

func TestWakeupsFollowTheCommit(t *testing.T) {
	s, _ := newStore(t)
	wakeups, err := s.Subscribe(t.Context(), []string{"q"})
	require.NoError(t, err)

	undone := beginTx(t, s)
	enqueue(t, s.InTx(undone), plain())
	require.NoError(t, undone.Rollback())
	require.Empty(t, claim(t, s, 1))
	done := beginTx(t, s)
	enqueue(t, s.InTx(done), plain(), plain())
	assert.Empty(t, wakeups)
	require.NoError(t, done.Commit())
	assert.Len(t, wakeups, 1)
}

// Only the end of a lease is told of, once for each queue and call.
func TestWakeupsFollowACancelInFlight(t *testing.T) {
	s, _ := newStore(t)
	enqueue(t, s, plain(), plain(), plain())
	wakeups, err := s.Subscribe(t.Context(), []string{"q"})
	require.NoError(t, err)
	cancel := func(ids ...int64) {
		_, err := s.Cancel(t.Context(), store.Filter{IDs: ids}, len(ids))
		require.NoError(t, err)
	}
	cancel(3)
	require.Len(t, claim(t, s, 2), 2)
	assert.Empty(t, wakeups)
	cancel(1, 2, 3)
	assert.Equal(t, store.Wakeup{Queue: "q", Cancelled: true}, <-wakeups)
	cancel(1, 2, 3)
	assert.Empty(t, wakeups)
}

// TestManyTransactions lets many finish one job each at once, half of them to be rolled back.
func TestManyTransactions(t *testing.T) {
	s, _ := newStore(t)
	const n = 40
	for range n {
		enqueue(t, s, plain())
	}
	jobs := claim(t, s, n)
	failures := make(chan error, n)
	for i, j := range jobs {
		go func() { failures <- finishInTx(t.Context(), s, j.Lease(), i%2 == 0) }()
	}
	for range n {
		assert.NoError(t, <-failures)
	}
	counts, err := s.Count(t.Context(), store.Filter{})
	require.NoError(t, err)
	assert.Equal(t, map[store.State]int64{store.Succeeded: n / 2, store.InFlight: n / 2}, counts.Queues[0].Jobs)
}

func finishInTx(ctx context.Context, s *Store, l store.Lease, commit bool) error {
	tx, err := s.DB().BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	outcomes, err := s.InTx(tx).Ack(ctx, []store.Ack{{Lease: l}})
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if outcomes[0].Status != store.StatusOK {
		return errors.Join(fmt.Errorf("got %v", outcomes[0]), tx.Rollback())
	}
	if commit {
		return tx.Commit()
	}
	return tx.Rollback()
}

// foreignDB is some other database, which executes everything.
type foreignDB struct{ idle }

func (f foreignDB) Connect(context.Context) (driver.Conn, error) { return f, nil }
func (f foreignDB) Driver() driver.Driver                        { return connector{} }
func (f foreignDB) Prepare(string) (driver.Stmt, error)          { return f.idle, nil }
func (f foreignDB) Begin() (driver.Tx, error)                    { return f, nil }
func (f foreignDB) Commit() error                                { return nil }
func (f foreignDB) Rollback() error                              { return nil }
