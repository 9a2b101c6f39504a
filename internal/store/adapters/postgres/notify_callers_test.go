package postgres

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
)

// A listener hears what stores of a schema are notified of.
type listener struct {
	*testing.T
	s     *Store
	heard <-chan *pq.Notification
}

func listenBeside(t *testing.T, s *Store, dsn string) listener {
	t.Helper()
	l := pq.NewListener(dsn, time.Second, time.Second, nil)
	t.Cleanup(func() { assert.NoError(t, l.Close()) })
	require.NoError(t, l.Listen(s.channel()))
	return listener{t, s, l.NotificationChannel()}
}

// sofar returns the queues of all notifications that were sent so far.
func (l listener) sofar() (queues []string) {
	l.Helper()
	_, err := l.s.db.ExecContext(l.Context(), `SELECT pg_notify($1, '/last')`, l.s.channel())
	require.NoError(l, err)
	for late := time.After(time.Minute); ; {
		select {
		case n := <-l.heard:
			_, w := heard(n.Extra)
			if w.Queue == "last" {
				return queues
			}
			queues = append(queues, w.Queue)
		case <-late:
			require.Fail(l, "no notification came")
		}
	}
}

// seldom is a store that looks only when a test says so.
func seldom(t *testing.T) (*Store, listener) {
	t.Helper()
	dsn := pgtest.DSN(t)
	s := openStore(t, Options{Schema: spares.Take(t, dsn), NotifyEvery: time.Hour})
	return s, listenBeside(t, s, dsn)
}

// adds begins a transaction that adds a job in the queue q.
func adds(t *testing.T, s *Store) *sql.Tx {
	t.Helper()
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	enqueue(t, s.InTx(tx), 1)
	return tx
}

func TestTransactionsOfCallersShareNotifications(t *testing.T) {
	t.Parallel()
	s, beside := seldom(t)
	require.NoError(t, adds(t, s).Commit())
	assert.Equal(t, []string{"q"}, beside.sofar(), "the first notifies by itself")

	var open []*sql.Tx
	for range 5 {
		open = append(open, adds(t, s))
	}
	for _, tx := range open[:3] {
		require.NoError(t, tx.Commit())
	}
	require.NoError(t, open[3].Rollback())
	assert.Empty(t, beside.sofar())
	s.callerLimiter.look(t.Context())
	assert.Equal(t, []string{"q"}, beside.sofar(), "once for those that were committed")
	s.callerLimiter.look(t.Context())
	assert.Empty(t, beside.sofar())

	require.NoError(t, open[4].Commit())
	s.callerLimiter.look(t.Context())
	assert.Equal(t, []string{"q"}, beside.sofar(), "for the one that stayed open")
	assert.Empty(t, s.callerLimiter.all())
}

// It is all the same to listeners whether a transaction has notified by itself or the store for it.
func TestTransactionsShareNotificationsOfTheStoreToo(t *testing.T) {
	t.Parallel()
	s, beside := seldom(t)
	q := []store.Wakeup{{Queue: "q"}}
	tx := adds(t, s)
	s.callerLimiter.unsent(q)
	var number int64
	require.NoError(t, tx.QueryRow(`SELECT pg_current_xact_id()::text::bigint`).Scan(&number))
	s.callerLimiter.put(number, q)
	require.NoError(t, tx.Commit())
	s.callerLimiter.look(t.Context())
	require.Equal(t, []string{"q", "q"}, beside.sofar(), "from the transaction, and for it")
	require.NoError(t, adds(t, s).Commit())
	assert.Empty(t, beside.sofar())
}

func TestWhatIsRolledBackNotifiesNobody(t *testing.T) {
	t.Parallel()
	s, beside := seldom(t)
	require.NoError(t, adds(t, s).Commit())
	require.NoError(t, adds(t, s).Rollback())
	require.Len(t, s.callerLimiter.all(), 1)
	require.Equal(t, []string{"q"}, beside.sofar())
	s.callerLimiter.look(t.Context())
	assert.Empty(t, beside.sofar())
	assert.Empty(t, s.callerLimiter.all())
}

// Without a test's help, each transaction is told of soon, and so are the store's own listeners.
func TestTransactionsOfCallersAreToldOf(t *testing.T) {
	t.Parallel()
	o := Options{Schema: spares.Take(t, pgtest.DSN(t)), NotifyEvery: 100 * time.Millisecond}
	own, other := openStore(t, o), openStore(t, o)
	var hear []<-chan store.Wakeup
	for _, s := range []*Store{own, other} {
		wakeups, err := s.Subscribe(t.Context(), []string{"q"})
		require.NoError(t, err)
		hear = append(hear, wakeups)
	}
	const tries = 20
	shared := 0
	for i := range tries {
		if i%2 == 1 { // as if one had just notified, however slow the machine is
			own.callerLimiter.mu.Lock()
			own.callerLimiter.latest[store.Wakeup{Queue: "q"}] = time.Now().Add(time.Hour)
			own.callerLimiter.mu.Unlock()
		}
		tx := adds(t, own)
		shared += len(own.callerLimiter.all())
		for _, wakeups := range hear { // of transactions before
			for len(wakeups) > 0 {
				<-wakeups
			}
		}
		require.NoError(t, tx.Commit())
		for i, wakeups := range hear {
			select {
			case <-wakeups:
			case <-time.After(time.Minute):
				require.Fail(t, "no wake-up came", "to store %d", i)
			}
		}
	}
	assert.GreaterOrEqual(t, shared, tries/2, "transactions for which the store looked")
}

func TestInsertsThatFailLeaveTheNotificationToTheNext(t *testing.T) {
	t.Parallel()
	s, beside := seldom(t)
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.Exec(`SET LOCAL default_transaction_read_only = on; SET LOCAL transaction_read_only = on`)
	require.NoError(t, err)
	_, err = s.InTx(tx).Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
	require.Error(t, err)
	require.NoError(t, tx.Rollback())
	require.NoError(t, adds(t, s).Commit())
	assert.Equal(t, []string{"q"}, beside.sofar())
}

// A server that was restored, or another one, has not given the number yet.
func TestUnknownNumbersAreToldOf(t *testing.T) {
	t.Parallel()
	s, beside := seldom(t)
	wakeups, err := s.Subscribe(t.Context(), []string{"q"}) // in which there are no jobs, so that nothing else wakes
	require.NoError(t, err)
	given := number(t, s, `SELECT pg_current_xact_id()::text::bigint`)
	s.callerLimiter.put(int64(given)+1_000_000, []store.Wakeup{{Queue: "q"}})
	s.callerLimiter.look(t.Context())
	for late, got := time.After(time.Minute), (store.Wakeup{}); got != (store.Wakeup{Queue: "q"}); {
		select {
		case got = <-wakeups:
		case <-late:
			require.Fail(t, "no wake-up came")
		}
	}
	assert.Empty(t, s.callerLimiter.all())
	s.limiter.mu.Lock()
	defer s.limiter.mu.Unlock()
	assert.Contains(t, s.limiter.pending, store.Wakeup{Queue: "q"}, "others are told as of the store's own commits")
	assert.Empty(t, beside.sofar(), "which is in an hour")
}

// A look may find no connection, or no server.
func TestALookThatFailsIsRepeated(t *testing.T) {
	t.Parallel()
	s, beside := seldom(t)
	require.NoError(t, adds(t, s).Commit())
	require.NoError(t, adds(t, s).Commit())
	require.Equal(t, []string{"q"}, beside.sofar())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	s.callerLimiter.look(ended)
	require.Len(t, s.callerLimiter.all(), 1)
	s.callerLimiter.look(t.Context())
	assert.Empty(t, s.callerLimiter.all())
	assert.Equal(t, []string{"q"}, beside.sofar())
}

// A look finds out what others see: a commit that waits for a standby is none yet.
func TestCommitsThatWaitForAStandbyAreNotToldOf(t *testing.T) {
	t.Parallel()
	primary, standby := replicated(t)
	s, err := Open(t.Context(), primary.DSN, &Options{NotifyEvery: time.Hour})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	require.NoError(t, adds(t, s).Commit())
	tx := adds(t, s)
	var pid int
	require.NoError(t, tx.QueryRow(`SELECT pg_backend_pid()`).Scan(&pid))
	untold := s.callerLimiter.all()
	require.Len(t, untold, 1)
	admin, err := sql.Open("postgres", primary.DSN+" synchronous_commit=local")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, admin.Close()) })

	require.NoError(t, standby.Detach(t.Context()))
	ended := behind(t, func(context.Context) (any, error) { return nil, tx.Commit() })
	var status string
	require.Eventually(t, func() bool {
		err := admin.QueryRowContext(t.Context(), `
			SELECT pg_xact_status($1::text::xid8)
			WHERE EXISTS (SELECT 1 FROM pg_stat_activity WHERE pid = $2 AND wait_event = 'SyncRep')`, untold[0].number, pid).Scan(&status)
		return err == nil
	}, time.Minute, time.Millisecond, "no commit waits")
	require.Equal(t, "in progress", status)
	s.callerLimiter.look(t.Context())
	assert.Equal(t, untold, s.callerLimiter.all())

	require.NoError(t, standby.Attach(t.Context()))
	require.NoError(t, (<-ended).err)
	s.callerLimiter.look(t.Context())
	assert.Empty(t, s.callerLimiter.all())
}

func TestCloseTellsOfWhatCallersHaveCommitted(t *testing.T) {
	t.Parallel()
	s, beside := seldom(t)
	other := openStore(t, Options{Schema: s.options.Schema})
	beside.s = other
	require.NoError(t, adds(t, s).Commit())
	require.NoError(t, adds(t, s).Commit())
	require.Equal(t, []string{"q"}, beside.sofar())
	require.NoError(t, s.Close())
	assert.Equal(t, []string{"q"}, beside.sofar())
}

// What stays open is looked for less and less often.
func TestLooksBecomeRare(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	l := s.callerLimiter
	require.NoError(t, adds(t, s).Commit())
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	var number int64
	require.NoError(t, tx.QueryRow(`SELECT pg_current_xact_id()::text::bigint`).Scan(&number))
	l.put(number, []store.Wakeup{{Queue: "q"}})
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.pause == longestPause
	}, time.Minute, time.Millisecond)
	require.NoError(t, tx.Commit())
	require.Eventually(t, func() bool { return len(l.all()) == 0 }, time.Minute, time.Millisecond)
}

func TestALookIsSoonForTheNextTransaction(t *testing.T) {
	t.Parallel()
	l := newCallerLimiter(&Store{options: Options{NotifyEvery: time.Hour}})
	late := time.AfterFunc(2*time.Hour, func() {})
	l.looks, l.timer, l.pause = true, late, 2*time.Hour
	l.put(1, []store.Wakeup{{Queue: "q"}})
	assert.False(t, late.Stop(), "it was stopped before")
	assert.NotSame(t, late, l.timer)
	assert.Equal(t, time.Hour, l.pause)
	assert.True(t, l.looks)
	l.timer.Stop()
}

func TestTooManyOpenTransactionsNotifyByThemselves(t *testing.T) {
	t.Parallel()
	l := newCallerLimiter(&Store{options: Options{NotifyEvery: time.Hour}})
	q := []store.Wakeup{{Queue: "q"}}
	sorted := func() (now, later []store.Wakeup) { return l.sort(q) }
	now, later := sorted()
	assert.Equal(t, q, now)
	assert.Empty(t, later)
	for n := range int64(mostUntold) {
		now, later = sorted()
		require.Empty(t, now)
		l.put(n, later)
	}
	now, later = sorted()
	assert.Equal(t, q, now)
	assert.Empty(t, later)
	l.timer.Stop()
}
