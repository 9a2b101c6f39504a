package sqlite

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// hold keeps the writer from beginning, as any transaction of a caller does.
func hold(t *testing.T, s *Store) *sqlx.Tx {
	t.Helper()
	tx, err := s.DB().BeginTxx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func (w *writer) inLine() int {
	w.queue.mu.Lock()
	defer w.queue.mu.Unlock()
	return len(w.queue.lines[0]) + len(w.queue.lines[1])
}

func (t *turn) taken() bool { return t.short.Load() || t.lock.Locked() }

// A heartbeat that waits for a transaction extends from the time at which it comes through.
func TestExtendTakesNowInItsTransaction(t *testing.T) {
	clk := newClock()
	s := openAt(t, newPath(t), &Options{Clock: clk, BusyTimeout: time.Minute})
	enqueue(t, s, 1)
	held, err := s.FetchAndClaim(t.Context(), claimOf(1))
	require.NoError(t, err)
	tx := hold(t, s)
	var outcomes []store.Outcome
	waits := make(chan error)
	go func() {
		var err error
		outcomes, err = s.Extend(t.Context(), []store.Lease{held[0].Lease()}, time.Minute)
		waits <- err
	}()
	until(t, "the heartbeat is in line", func() bool { return s.writer.inLine() == 1 })
	until(t, "the writer waits for the transaction", s.turn.taken)
	clk.Add(20 * time.Second)
	require.NoError(t, tx.Rollback())
	require.NoError(t, <-waits)
	assert.Equal(t, clk.Now().Add(time.Minute), outcomes[0].Next)
}

// Who finds nobody writing writes in its own goroutine, with the lock file that is open already.
func TestLoneCallIsWrittenByItsCaller(t *testing.T) {
	s := newStore(t)
	enqueue(t, s, 1) // by the writer's goroutine, which connects
	until(t, "the writer's goroutine is done", func() bool {
		free := s.writer.busy.TryLock()
		if free {
			s.writer.busy.Unlock()
		}
		return free
	})
	err := s.writer.do(t.Context(), load{items: 1}, func(tx *txn) error {
		assert.Contains(t, string(debug.Stack()), "turnAtOnce")
		assert.True(t, s.turn.short.Load(), "the turn was taken by the open file")
		return add(1)(tx)
	})
	require.NoError(t, err)
	assert.Equal(t, int64(2), countIn(t, s, store.Ready))
}

func TestConcurrentCallsShareOneCommit(t *testing.T) {
	const callers = 100
	s := newStore(t)
	tx := hold(t, s)
	var all sync.WaitGroup
	for range callers {
		all.Go(func() { enqueue(t, s, 1) })
	}
	until(t, "all callers wait", func() bool { return s.writer.inLine() == callers })
	before := s.writer.commits.Load()
	require.NoError(t, tx.Rollback())
	all.Wait()
	assert.Equal(t, int64(1), s.writer.commits.Load()-before, "commits for %d callers", callers)
	assert.Equal(t, int64(callers), countIn(t, s, store.Ready))
}

func TestWithdrawnCallIsNotApplied(t *testing.T) {
	s := newStore(t)
	tx := hold(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := s.Enqueue(ctx, newJobs(1))
		failed <- err
	}()
	until(t, "the call waits", func() bool { return s.writer.inLine() == 1 })
	cancel()
	err := <-failed
	assert.ErrorIs(t, err, store.ErrUnavailable)
	assert.ErrorIs(t, err, context.Canceled)
	require.NoError(t, tx.Rollback())
	enqueue(t, s, 1)
	assert.Equal(t, int64(1), countIn(t, s, store.Ready), "jobs after one call was withdrawn and one was not")
}

func TestCloseFailsWhatWaits(t *testing.T) {
	s := newStore(t)
	tx := hold(t, s)
	failed := make(chan error)
	go func() {
		_, err := s.Enqueue(t.Context(), newJobs(1))
		failed <- err
	}()
	until(t, "the call waits", func() bool { return s.writer.inLine() == 1 })
	closed := make(chan error)
	go func() { closed <- s.writer.close() }()
	assert.ErrorIs(t, <-failed, store.ErrClosed)
	assert.NoError(t, <-closed)
	require.NoError(t, tx.Rollback())
	s.closing.Do(func() { close(s.closed); s.hub.Close(); _, _ = s.reading.Close(), s.callers.Close() })
}

// together runs the calls in one shared transaction and returns their errors.
func together(t *testing.T, s *Store, calls ...func(*txn) error) []error {
	t.Helper()
	tx := hold(t, s)
	errs := make([]error, len(calls))
	var all sync.WaitGroup
	for i, run := range calls {
		all.Go(func() { errs[i] = s.writer.do(t.Context(), load{items: 1}, run) })
		until(t, "the call waits", func() bool { return s.writer.inLine() == i+1 })
	}
	require.NoError(t, tx.Rollback())
	all.Wait()
	return errs
}

func add(n int) func(*txn) error {
	return func(t *txn) error {
		_, err := t.enqueue(newJobs(n))
		return err
	}
}

func TestBadCallSparesItsNeighbours(t *testing.T) {
	boom := func(t *txn) error {
		if err := add(7)(t); err != nil {
			return err
		}
		return errors.New("boom")
	}
	panics := func(t *txn) error {
		if err := add(7)(t); err != nil {
			return err
		}
		panic("boom")
	}
	// SQLite itself ends the transaction of all when, for one, the disk is full.
	lost := func(t *txn) error {
		if _, err := t.exec(`ROLLBACK`); err != nil {
			return err
		}
		return errors.New("boom")
	}
	goesOn := func(t *txn) error {
		_, _ = t.exec(`boom`)
		_ = add(7)(t)
		return nil
	}
	for name, bad := range map[string]func(*txn) error{"Error": boom, "Panic": panics, "LostTransaction": lost, "GoesOn": goesOn} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			errs := together(t, s, add(1), bad, add(2))
			assert.NoError(t, errs[0])
			assert.ErrorIs(t, errs[1], store.ErrUnavailable)
			assert.ErrorContains(t, errs[1], "boom")
			assert.NoError(t, errs[2])
			assert.Equal(t, int64(3), countIn(t, s, store.Ready), "jobs of the two good calls")
			enqueue(t, s, 1)
			intact(t, s)
		})
	}
}

func TestHeartbeatsGoFirstAndBatchesAreBounded(t *testing.T) {
	q := newQueue()
	for range 5 {
		require.True(t, q.put(&call{load: load{items: store.MaxItems}}))
	}
	require.True(t, q.put(&call{load: load{items: 1, bytes: store.MaxCallBytes}}))
	beat := &call{load: load{items: 10, urgent: true}}
	require.True(t, q.put(beat))
	var sizes []int
	for batch := q.take(); len(batch) > 0; batch = q.take() {
		if len(sizes) == 0 {
			assert.Same(t, beat, batch[0], "the heartbeat is the first of the first batch")
		}
		sizes = append(sizes, len(batch))
	}
	assert.Equal(t, []int{2, 2, 2, 1}, sizes)
}

func TestFullDiskIsUnavailableAndPasses(t *testing.T) {
	s := newStore(t)
	enqueue(t, s, 1)
	limit := func(pages string) {
		t.Helper()
		require.NoError(t, s.writer.do(t.Context(), load{}, func(t *txn) error {
			_, err := t.exec(`PRAGMA max_page_count = ` + pages)
			return err
		}))
	}
	limit("1") // which means: no more than there are
	big := newJobs(1000)
	_, err := s.Enqueue(t.Context(), big)
	require.ErrorIs(t, err, store.ErrUnavailable)
	assert.ErrorContains(t, err, "the disk is full")
	assert.Equal(t, int64(1), countIn(t, s, store.Ready))
	limit("1000000")
	_, err = s.Enqueue(t.Context(), big)
	require.NoError(t, err)
	assert.Equal(t, int64(1001), countIn(t, s, store.Ready))
	intact(t, s)
}
