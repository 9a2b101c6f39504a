package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
)

// A jam lets nobody add a job until it is over, and has as many calls under way as are committed at once.
type jam struct {
	*Store
	t    *testing.T
	lock *sql.Tx
	done []chan error
}

func jammed(t *testing.T) *jam {
	t.Helper()
	dsn := pgtest.DSN(t)
	s, err := Open(t.Context(), dsn, &Options{Schema: spares.Take(t, dsn), Timeout: time.Minute, LockTimeout: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	j := &jam{Store: s, t: t}
	j.lock, err = s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = j.lock.Rollback() })
	_, err = j.lock.ExecContext(t.Context(), s.sql(`LOCK TABLE {schema}.jobs IN SHARE MODE`))
	require.NoError(t, err)
	for i := range commitsAtOnce {
		j.call(t.Context(), fmt.Sprint("first ", i))
	}
	j.until(func() bool { return s.group.commits == commitsAtOnce })
	return j
}

// call enqueues a job of the kind.
func (j *jam) call(ctx context.Context, kind string) {
	done := make(chan error, 1)
	j.done = append(j.done, done)
	go func() {
		_, err := j.Enqueue(ctx, store.EnqueueRequest{Jobs: []store.NewJob{{Queue: "q", Kind: kind, Payload: []byte(`1`)}}})
		done <- err
	}()
}

// until waits for what is so under the lock of the group commit.
func (j *jam) until(holds func() bool) {
	j.t.Helper()
	require.Eventually(j.t, func() bool {
		j.group.mu.Lock()
		defer j.group.mu.Unlock()
		return holds()
	}, time.Minute, time.Millisecond)
}

// kinds are those of the jobs that are there, and transactions how many of them added one.
func (j *jam) kinds() (kinds []string, transactions int) {
	require.NoError(j.t, j.DB().SelectContext(j.t.Context(), &kinds, j.sql(`SELECT kind FROM {schema}.jobs ORDER BY kind`)))
	require.NoError(j.t, j.DB().GetContext(j.t.Context(), &transactions, j.sql(`SELECT count(DISTINCT xmin::text) FROM {schema}.jobs`)))
	return kinds, transactions
}

func TestThoseWhoComeDuringACommitShareTheNext(t *testing.T) {
	t.Parallel()
	j := jammed(t)
	for i := range 20 {
		j.call(t.Context(), fmt.Sprintf("later %02d", i))
	}
	j.until(func() bool { return len(j.group.waiting) == 20 })
	require.NoError(t, j.lock.Rollback())
	for _, done := range j.done {
		assert.NoError(t, <-done)
	}
	kinds, transactions := j.kinds()
	assert.Len(t, kinds, commitsAtOnce+20)
	assert.Equal(t, commitsAtOnce+1, transactions)
	j.until(func() bool { return j.group.commits == 0 })
}

func TestWhoLeavesTheGatheringAddsNothing(t *testing.T) {
	t.Parallel()
	j := jammed(t)
	ctx, leave := context.WithCancelCause(t.Context())
	j.call(ctx, "left")
	j.call(t.Context(), "stayed")
	j.until(func() bool { return len(j.group.waiting) == 2 })
	leave(errors.New("changed my mind"))
	err := <-j.done[commitsAtOnce]
	require.ErrorIs(t, err, store.ErrUnavailable)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, j.lock.Rollback())
	require.NoError(t, <-j.done[commitsAtOnce+1])
	kinds, _ := j.kinds()
	assert.NotContains(t, kinds, "left")
	assert.Contains(t, kinds, "stayed")
}

// Who left in doubt may write something else where its jobs were, which are still to be added.
func TestWhoLeavesInDoubtMayUseItsSlicesAgain(t *testing.T) {
	t.Parallel()
	s := alone(t)
	s.group.commits = commitsAtOnce
	only, err := s.db.Connx(t.Context())
	require.NoError(t, err)

	jobs := []store.NewJob{{Queue: "q", Kind: "k", Payload: []byte(`"mine"`), Tags: []string{"mine"}}}
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := s.Enqueue(ctx, store.EnqueueRequest{Jobs: jobs})
		done <- err
	}()
	waiting := func() int {
		s.group.mu.Lock()
		defer s.group.mu.Unlock()
		return len(s.group.waiting)
	}
	require.Eventually(t, func() bool { return waiting() == 1 }, time.Minute, time.Millisecond)
	s.commitWaiting()
	require.Eventually(t, func() bool { return waiting() == 0 }, time.Minute, time.Millisecond)
	leave()
	require.ErrorIs(t, <-done, store.ErrInDoubt)
	copy(jobs[0].Payload, `yours{`)
	jobs[0].Tags[0], jobs[0].Kind = "yours", "yours"
	require.NoError(t, only.Close())
	s.running.Wait()

	page, err := s.List(t.Context(), store.Filter{}, store.Page{Limit: 10})
	require.NoError(t, err)
	require.Len(t, page.Jobs, 1)
	assert.Equal(t, "k", page.Jobs[0].Kind)
	assert.Equal(t, `"mine"`, string(page.Jobs[0].Payload))
	assert.Equal(t, []string{"mine"}, page.Jobs[0].Tags)
}

// The database refuses one of those who share: the others are not to suffer.
func TestWhatIsRefusedTogetherIsTriedAlone(t *testing.T) {
	t.Parallel()
	j := jammed(t)
	for _, kind := range []string{"good", "bad", "fine"} {
		j.call(t.Context(), kind)
	}
	j.until(func() bool { return len(j.group.waiting) == 3 })
	_, err := j.lock.ExecContext(t.Context(), j.sql(`ALTER TABLE {schema}.jobs ADD CHECK (kind <> 'bad')`))
	require.NoError(t, err)
	require.NoError(t, j.lock.Commit())
	for i, done := range j.done {
		if err := <-done; i == commitsAtOnce+1 {
			assert.ErrorIs(t, err, store.ErrUnavailable)
		} else {
			assert.NoError(t, err)
		}
	}
	kinds, _ := j.kinds()
	assert.Equal(t, []string{"fine", "first 0", "first 1", "good"}, kinds)
}

func TestClosedStoreLetsNobodyWaitForACommit(t *testing.T) {
	t.Parallel()
	j := jammed(t)
	j.call(t.Context(), "late")
	j.until(func() bool { return len(j.group.waiting) == 1 })
	closed := make(chan error, 1)
	go func() { closed <- j.Close() }()
	assert.ErrorIs(t, <-j.done[commitsAtOnce], store.ErrClosed)
	require.NoError(t, j.lock.Rollback())
	require.NoError(t, <-closed)
}

// Many who migrate at once wait for each other, and a large table takes its time, whatever the limits of a call are.
func TestAMigrationIsGivenItsTime(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	schema := spares.Take(t, dsn)
	s, err := Open(t.Context(), dsn, &Options{Schema: schema})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	lock, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = lock.ExecContext(t.Context(), `SELECT pg_advisory_xact_lock(hashtextextended('jq ' || $1, 0))`, schema)
	require.NoError(t, err)
	opened := make(chan error, 1)
	go func() {
		other, err := Open(t.Context(), dsn, &Options{Schema: schema, LockTimeout: time.Millisecond})
		if err == nil {
			err = other.Close()
		}
		opened <- err
	}()
	require.Eventually(t, func() bool {
		var waiting int
		err := s.DB().GetContext(t.Context(), &waiting, `
			SELECT count(*)
			FROM pg_stat_activity
			WHERE application_name = $1 AND wait_event_type = 'Lock' AND now() - state_change > interval '10 ms'`, schema)
		return err == nil && waiting == 1 || len(opened) > 0
	}, time.Minute, time.Millisecond)
	require.NoError(t, lock.Rollback())
	require.NoError(t, <-opened)
}
