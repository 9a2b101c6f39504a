package postgres

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// holdReadings begins more readings than the store has connections, as List does. Those that have one keep it until they are let go.
func holdReadings(t *testing.T, s *Store) (letGo func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	inside, with := make(chan struct{}, 100), s.with.page
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			_, _ = once(ctx, s, with, func(*txn) (struct{}, error) {
				inside <- struct{}{}
				<-ctx.Done()
				return struct{}{}, nil
			})
		})
	}
	for range s.pool.slowest {
		select {
		case <-inside:
		case <-time.After(time.Minute):
			require.Fail(t, "the readings do not begin")
		}
	}
	require.Eventually(t, func() bool { _, waiting := busy(s); return waiting == 50-s.pool.slowest }, time.Minute, time.Millisecond, "others wait")
	return func() {
		cancel()
		all.Wait()
	}
}

// D19: fifty people who filtered by tag took all connections of the store, and an enqueue waited for six seconds.
func TestReadersDoNotStarveWriters(t *testing.T) {
	for name, o := range map[string]Options{"direct": {}, "pooled": {Pooled: true}} {
		t.Run(name, func(t *testing.T) {
			o.ReadTimeout = time.Minute
			s := openStore(t, o)
			defer holdReadings(t, s)()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			job := store.NewJob{Queue: "q", Kind: "k", Payload: []byte(`{}`)}
			added, err := s.Enqueue(ctx, store.EnqueueRequest{Jobs: []store.NewJob{job, job}})
			require.NoError(t, err)
			jobs, err := s.FetchAndClaim(ctx, claimOf(2))
			require.NoError(t, err)
			require.Len(t, jobs, 2)
			extended, err := s.Extend(ctx, []store.Lease{jobs[0].Lease()}, time.Minute)
			require.NoError(t, err)
			assert.Equal(t, store.StatusOK, extended[0].Status)
			_, err = s.Ack(ctx, acksOf(jobs[:1]))
			require.NoError(t, err)
			_, err = s.RecoverExpiredLeases(ctx, store.RecoverRequest{Limit: 1})
			require.NoError(t, err)
			require.NoError(t, s.Beat(ctx, store.Worker{Name: "w", StaleAfter: time.Minute}))
			_, err = s.Cancel(ctx, store.Filter{Queue: "q"}, 10)
			require.NoError(t, err)

			_, err = s.Get(ctx, added[0].ID)
			require.NoError(t, err, "what is read quickly waits neither")
			_, err = s.Queues(ctx)
			require.NoError(t, err)
			_, err = s.OldestDue(ctx)
			require.NoError(t, err)
			require.NoError(t, s.Ping(ctx))
		})
	}
}

// Who waits for its turn for too long is told so, and one that is let in is ended by the server.
func TestReadingsHaveATimeLimit(t *testing.T) {
	for name, o := range map[string]Options{"direct": {}, "pooled": {Pooled: true}} {
		t.Run(name, func(t *testing.T) {
			o.ReadTimeout = time.Minute // for those that hold the connections, which are made for them
			s := openStore(t, o)
			limit := func(d time.Duration) {
				s.options.ReadTimeout = d
				s.with = s.openings(s.options)
			}
			letGo := holdReadings(t, s)
			const limited = 50 * time.Millisecond
			limit(limited)
			_, err := s.List(t.Context(), store.Filter{}, store.Page{Limit: 1})
			assert.Equal(t, &store.OverlongError{Limit: limited, Waited: true}, err)
			require.ErrorIs(t, err, store.ErrUnavailable)
			letGo()
			limit(time.Minute)
			_, err = s.List(t.Context(), store.Filter{}, store.Page{Limit: 1}) // opens a connection, which may take longer than the limit
			require.NoError(t, err)
			limit(limited)

			tx, err := s.DB().BeginTx(t.Context(), nil)
			require.NoError(t, err)
			defer func() { _ = tx.Rollback() }()
			_, err = tx.Exec(s.sql(`LOCK TABLE {schema}.jobs IN ACCESS EXCLUSIVE MODE`))
			require.NoError(t, err)
			overlong := &store.OverlongError{Limit: limited}
			_, err = s.List(t.Context(), store.Filter{}, store.Page{Limit: 1})
			assert.Equal(t, overlong, err)
			_, err = s.Count(t.Context(), store.Filter{})
			assert.Equal(t, overlong, err)
			assert.ErrorContains(t, err, "narrow its filter")
			require.NoError(t, s.Ping(t.Context()), "it waits for no lock of the jobs")
			require.NoError(t, tx.Rollback())
			limit(time.Minute)
			_, err = s.List(t.Context(), store.Filter{}, store.Page{Limit: 1})
			require.NoError(t, err, "the connections go on")
		})
	}
}

// A context of the caller's own that ends is no limit of the store's.
func TestAReadingThatItsCallerEndsIsNotOverlong(t *testing.T) {
	s := openStore(t, Options{ReadTimeout: time.Minute})
	letGo := holdReadings(t, s)
	defer letGo()
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
	s := openStore(t, Options{})
	run := func(text string) {
		t.Helper()
		_, err := s.callers.ExecContext(t.Context(), s.sql(text))
		require.NoError(t, err)
	}
	require.NoError(t, s.Ping(t.Context()))
	run(`INSERT INTO {schema}.migrations (version, name, least) VALUES (1000, 'from the future', 1)`)
	require.NoError(t, s.Ping(t.Context()))
	run(`UPDATE {schema}.migrations SET least = 1000 WHERE version = 1000`)
	require.ErrorIs(t, s.Ping(t.Context()), store.ErrUnavailable)
	run(`DELETE FROM {schema}.migrations WHERE version > 1`)
	require.ErrorIs(t, s.Ping(t.Context()), store.ErrUnavailable)
	run(`DROP TABLE {schema}.migrations`)
	require.ErrorIs(t, s.Ping(t.Context()), store.ErrUnavailable)
}
