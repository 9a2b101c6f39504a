package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
)

// What a store adds it tells its own listeners of at once. To hear of it once more from the server would cost a claim that finds
// nothing, for every job.
func TestAStoreDoesNotListenToItself(t *testing.T) {
	t.Parallel()
	o := Options{Schema: spares.Take(t, pgtest.DSN(t))}
	own, other := openStore(t, o), openStore(t, o)

	add := func(s *Store, queue string) {
		_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{{Queue: queue, Kind: "k", Payload: []byte(`1`)}}})
		require.NoError(t, err)
	}
	wakeups, err := own.Subscribe(t.Context(), []string{"first", "own/queue", "last"})
	require.NoError(t, err)
	var heard []string
	until := func(queue string) {
		for heard = nil; len(heard) == 0 || heard[len(heard)-1] != queue; {
			select {
			case w, open := <-wakeups:
				require.True(t, open)
				heard = append(heard, w.Queue)
			case <-time.After(time.Minute):
				require.Fail(t, "no wake-up came", "for %s", queue)
			}
		}
	}
	add(other, "first")
	until("first") // from here on the server is heard in the order of the commits

	add(own, "own/queue")
	until("own/queue")
	add(other, "last")
	until("last")
	assert.NotContains(t, heard, "own/queue")

	add(other, "own/queue")
	until("own/queue")
}

// A transaction of its own, for a wake-up that a later commit has brought already, would cost a sync for nothing.
func TestCommitsTellOfWhatWaits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		told, waiting time.Duration // so long ago
		due, waits    bool
	}{
		{"nothing since", 3 * time.Hour, 2 * time.Hour, true, false},
		{"told since", 2 * time.Hour, 3 * time.Hour, false, false},
		{"told since, just now", -time.Hour, 3 * time.Hour, false, false},
		{"told of a part, just now", -time.Hour, -2 * time.Hour, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newNotifyLimiter(&Store{closed: make(chan struct{}), options: Options{NotifyEvery: 10 * time.Millisecond}})
			close(h.s.closed) // it sends nothing
			q := store.Wakeup{Queue: "q"}
			told := time.Now().Add(-c.told)
			h.latest[q], h.pending[q] = told, time.Now().Add(-c.waiting)
			assert.Equal(t, c.due, h.due(q))
			h.mu.Lock()
			defer h.mu.Unlock()
			assert.Equal(t, c.waits, !h.pending[q].IsZero())
			assert.Equal(t, c.due, !h.latest[q].Equal(told))
			delete(h.pending, q) // nothing is to come after the test
		})
	}
}

// How often new jobs are told of is the user's choice. Cancellations are told of as soon as usual.
func TestNotifyEveryIsForNewJobs(t *testing.T) {
	t.Parallel()
	l := newNotifyLimiter(&Store{options: Options{NotifyEvery: time.Hour}})
	enqueued, cancelled := store.Wakeup{Queue: "q"}, store.Wakeup{Queue: "q", Cancelled: true}
	both := []store.Wakeup{enqueued, cancelled}
	now, later := l.sort(both)
	assert.Equal(t, both, now)
	assert.Empty(t, later)
	for _, w := range both {
		l.latest[w] = time.Now().Add(-time.Minute)
	}
	now, later = l.sort(both)
	assert.Equal(t, []store.Wakeup{cancelled}, now)
	assert.Equal(t, []store.Wakeup{enqueued}, later)

	_, err := unprepared("host=localhost", &Options{NotifyEvery: -1})
	assert.ErrorContains(t, err, "notify every")
}

// A commit that comes too soon after another to be told of by itself is told of a little later, although no other follows.
func TestGatheredWakeUpsAreSent(t *testing.T) {
	t.Parallel()
	const tries = 20
	o := Options{Schema: spares.Take(t, pgtest.DSN(t)), NotifyEvery: 100 * time.Millisecond}
	own, other := openStore(t, o), openStore(t, o)
	queues := make([]string, tries)
	for i := range queues {
		queues[i] = fmt.Sprint("queue ", i)
	}
	wakeups, err := other.Subscribe(t.Context(), queues)
	require.NoError(t, err)
	toldOf := func(queue string) time.Time {
		own.limiter.mu.Lock()
		defer own.limiter.mu.Unlock()
		return own.limiter.latest[store.Wakeup{Queue: queue}]
	}
	add := func(queue string) time.Time {
		_, err := own.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{{Queue: queue, Kind: "k", Payload: []byte(`1`)}}})
		require.NoError(t, err)
		told := toldOf(queue)
		for late := time.After(time.Minute); ; {
			select {
			case w := <-wakeups:
				if w.Queue == queue { // who begins to listen is told once more of what is there
					return told
				}
			case <-late:
				require.Fail(t, "no wake-up came", "for %s", queue)
			}
		}
	}
	gathered := 0
	for _, queue := range queues {
		if first := add(queue); add(queue).Equal(first) {
			gathered++
		}
	}
	assert.Positive(t, gathered, "no second commit came within %v of the first", o.NotifyEvery)
}

// A commit that fails has told nobody of what earlier ones have left to it.
func TestFailedCommitsLeaveNobodyUntold(t *testing.T) {
	t.Parallel()
	o := Options{Schema: spares.Take(t, pgtest.DSN(t))}
	own, other := openStore(t, o), openStore(t, o)
	wakeups, err := other.Subscribe(t.Context(), []string{"q"})
	require.NoError(t, err)

	_, err = once(t.Context(), own, own.with.write, func(tx *txn) (any, error) {
		tx.woken = []store.Wakeup{{Queue: "q"}}
		var pid int
		if err := tx.each(func(rows *sql.Rows) error { return rows.Scan(&pid) }, `SELECT pg_backend_pid()`); err != nil {
			return nil, err
		}
		_, err := own.db.Exec(`SELECT pg_terminate_backend($1, 5000)`, pid)
		return nil, err
	})
	require.Error(t, err)
	select {
	case <-wakeups:
	case <-time.After(time.Minute):
		require.Fail(t, "no wake-up came")
	}
}

// A program from before cancellations, and what is to settle, were told of reads the queue of a notification as it is, and so does this one read theirs.
func TestNotificationsOfOtherVersions(t *testing.T) {
	t.Parallel()
	const by = "ABC234"
	for _, queue := range []string{"q", "!", "a/b", "ABC234!/q", ""} {
		for _, w := range []store.Wakeup{{Queue: queue}, {Queue: queue, Cancelled: true}, {Queue: queue, Settle: true}} {
			sender, got := heard(told(by, w))
			assert.Equal(t, by, sender)
			assert.Equal(t, w, got)
			_, before, _ := strings.Cut(told(by, w), "/")
			assert.Equal(t, queue, before, "as an earlier program reads it")
		}
		sender, got := heard(by + "/" + queue)
		assert.Equal(t, by, sender)
		assert.Equal(t, store.Wakeup{Queue: queue}, got, "as an earlier program writes it")
	}
}

// Another store hears of a Cancel that ended a lease, and jobs that wait cost no notification.
func TestCancellationsAreToldOf(t *testing.T) {
	t.Parallel()
	o := Options{Schema: spares.Take(t, pgtest.DSN(t))}
	own, other := openStore(t, o), openStore(t, o)
	enqueue(t, own, 30)
	wakeups, err := other.Subscribe(t.Context(), []string{"q"})
	require.NoError(t, err)
	cancelled := store.Wakeup{Queue: "q", Cancelled: true}
	await := func(what string) {
		t.Helper()
		for late, got := time.After(time.Minute), (store.Wakeup{}); got != cancelled; {
			select {
			case got = <-wakeups:
			case <-late:
				require.Fail(t, "no wake-up came", what)
			}
		}
	}
	await("for those that were missed before the store listened")
	notified := func() time.Time {
		own.limiter.mu.Lock()
		defer own.limiter.mu.Unlock()
		return own.limiter.latest[cancelled]
	}
	cancel := func(id int64) {
		t.Helper()
		_, err := own.Cancel(t.Context(), store.Filter{IDs: []int64{id}}, 1)
		require.NoError(t, err)
	}
	jobs := claimN(t, own, 20)
	cancel(jobs[len(jobs)-1].ID + 1)
	require.Zero(t, notified(), "the job waited")
	for _, j := range jobs { // some come too soon after others to be told of by themselves
		cancel(j.ID)
	}
	await("from the other store")
	assert.NotZero(t, notified())
}

// Every store hears that a call, or what follows from a caller's transaction, has left something to settle.
func TestWhatIsLeftIsToldOf(t *testing.T) {
	t.Parallel()
	o := Options{Schema: spares.Take(t, pgtest.DSN(t))}
	own, other := openStore(t, o), openStore(t, o)
	var hear []<-chan store.Wakeup
	for _, s := range []*Store{own, other} {
		wakeups, err := s.Subscribe(t.Context(), []string{"elsewhere"})
		require.NoError(t, err)
		hear = append(hear, wakeups)
	}
	for _, in := range []string{"a call", "a caller's transaction"} {
		enqueue(t, own, 1)
		root := claimN(t, own, 1)[0]
		waiting := store.NewJob{Queue: "waiting", Kind: "k", Payload: []byte(`1`), After: []store.Wait{{ID: root.ID}}}
		for _, n := range []int{store.SettledByCall, 1} {
			_, err := own.Enqueue(t.Context(), store.EnqueueRequest{Jobs: slices.Repeat([]store.NewJob{waiting}, n)})
			require.NoError(t, err)
		}
		acks := []store.Ack{{Lease: root.Lease()}}
		if in == "a call" {
			_, err := own.Ack(t.Context(), acks)
			require.NoError(t, err)
		} else {
			tx, err := own.db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			_, err = own.InTx(tx).Ack(t.Context(), acks)
			require.NoError(t, err)
			require.NoError(t, tx.Commit())
		}
		for i, wakeups := range hear {
			for late, got := time.After(time.Minute), (store.Wakeup{}); got != (store.Wakeup{Settle: true}); {
				select {
				case got = <-wakeups:
				case <-late:
					require.Fail(t, "no wake-up came", "after %s, to store %d", in, i)
				}
			}
		}
		settle(t, own)
	}
}

// A standby refuses to listen, and may be promoted. The listener has reached it before it is told to listen.
func TestAServerThatRefusesToListenIsAskedAgain(t *testing.T) {
	t.Parallel()
	primary := ownServer(t, lasting)
	standby := standbyOf(t, primary)
	opened := make(chan struct{}, 100)
	listen := listenBy(func(d pq.Dialer) *pq.Listener {
		there := make(chan struct{}, 1)
		l := pq.NewDialListener(d, standby.DSN, time.Millisecond, time.Millisecond, func(e pq.ListenerEventType, _ error) {
			if e == pq.ListenerEventConnected {
				close(there)
			}
		})
		<-there
		opened <- struct{}{}
		return l
	})
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	connected, over := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(over)
		listen(ctx, "c", func() { connected <- struct{}{} }, func(string) {})
	}()
	<-opened
	require.NoError(t, standby.Promote(t.Context()))
	select {
	case <-connected:
	case <-over:
		t.Fatal("the store listens no more")
	case <-time.After(time.Minute):
		t.Fatal("the store does not listen after the promotion")
	}
	cancel()
	<-over
}
