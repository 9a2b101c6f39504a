package sqlite

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// holdReadings begins more readings than can run at once, as List does. Those that run do so until they are let go.
func holdReadings(t *testing.T, s *Store) (letGo func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	inside := make(chan struct{}, 100)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			_ = s.readers.do(ctx, func(context.Context, store.Tx) error {
				inside <- struct{}{}
				<-ctx.Done()
				return nil
			})
		})
	}
	until(t, "all places are taken", func() bool { return len(inside) == cap(s.readers.free) })
	return func() {
		cancel()
		all.Wait()
	}
}

// takeReaders takes all places of List and Count.
func takeReaders(s *Store) (giveBack func()) {
	var taken []*prepared
	for range cap(s.readers.free) {
		taken = append(taken, <-s.readers.free)
	}
	return func() {
		for _, kept := range taken {
			s.readers.free <- kept
		}
	}
}

// D19: while fifty people filtered by tag, nobody learned for seven seconds whether the store was there.
func TestReadersDoNotStarveWriters(t *testing.T) {
	s := openAt(t, newPath(t), &Options{ReadTimeout: time.Minute})
	defer holdReadings(t, s)()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	added, err := s.Enqueue(ctx, newJobs(2))
	require.NoError(t, err)
	jobs, err := s.FetchAndClaim(ctx, claimOf(2))
	require.NoError(t, err)
	require.Len(t, jobs, 2)
	_, err = s.Extend(ctx, []store.Lease{jobs[0].Lease()}, time.Minute)
	require.NoError(t, err)
	_, err = s.Ack(ctx, []store.Ack{{Lease: jobs[0].Lease()}})
	require.NoError(t, err)
	require.NoError(t, s.Beat(ctx, store.Worker{Name: "w", StaleAfter: time.Minute}))
	_, err = s.Get(ctx, added[0].ID)
	require.NoError(t, err, "what is read quickly waits neither")
	_, err = s.Queues(ctx)
	require.NoError(t, err)
	_, err = s.OldestDue(ctx)
	require.NoError(t, err)
	require.NoError(t, s.Ping(ctx))
}

// Who waits for its turn for too long is told so, and one that runs is ended.
func TestReadingsHaveATimeLimit(t *testing.T) {
	s := openAt(t, newPath(t), &Options{ReadTimeout: 50 * time.Millisecond})
	letGo := holdReadings(t, s)
	_, err := s.List(t.Context(), store.Filter{}, store.Page{Limit: 1})
	assert.Equal(t, &store.OverlongError{Limit: 50 * time.Millisecond, Waited: true}, err)
	require.ErrorIs(t, err, store.ErrUnavailable)
	letGo()

	_, err = readOn(t.Context(), s, s.readers, nil, func(tx *txn) (struct{}, error) {
		return struct{}{}, tx.each(func(*sql.Rows) error { return nil }, `
			WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers)
			SELECT max(n) FROM numbers`)
	})
	assert.Equal(t, &store.OverlongError{Limit: 50 * time.Millisecond}, err, "a statement without an end")
	assert.ErrorContains(t, err, "narrow its filter")
	until(t, "the connections go on", func() bool {
		_, err := s.List(t.Context(), store.Filter{}, store.Page{Limit: 1})
		return err == nil
	})
}

// A context of the caller's own that ends is no limit of the store's.
func TestAReadingThatItsCallerEndsIsNotOverlong(t *testing.T) {
	s := openAt(t, newPath(t), &Options{ReadTimeout: time.Minute})
	defer holdReadings(t, s)()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := s.Count(ctx, store.Filter{})
	require.ErrorIs(t, err, store.ErrUnavailable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	var overlong *store.OverlongError
	assert.NotErrorAs(t, err, &overlong)
}

// Ping says whether the schema is there, and goes on with that of a newer program if it is compatible.
func TestPingSeesTheSchema(t *testing.T) {
	s := openAt(t, newPath(t), nil)
	run := func(text string) {
		t.Helper()
		_, err := s.DB().ExecContext(t.Context(), text)
		require.NoError(t, err)
	}
	require.NoError(t, s.Ping(t.Context()))
	run(`INSERT INTO migrations (version, name, least) VALUES (1000, 'from the future', 1)`)
	require.NoError(t, s.Ping(t.Context()))
	run(`UPDATE migrations SET least = 1000 WHERE version = 1000`)
	require.ErrorIs(t, s.Ping(t.Context()), store.ErrUnavailable)
	run(`DELETE FROM migrations WHERE version > 1`)
	require.ErrorIs(t, s.Ping(t.Context()), store.ErrUnavailable)
	run(`DROP TABLE migrations`)
	require.ErrorIs(t, s.Ping(t.Context()), store.ErrUnavailable)
}
