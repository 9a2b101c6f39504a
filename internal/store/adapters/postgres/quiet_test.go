package postgres

import (
	"context"
	"database/sql/driver"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// What a worker sends that has nothing to do, message by message: P10 allows it two a second.
func TestWhatIsDoneForNothingIsFewMessages(t *testing.T) {
	t.Parallel()
	shown := newClock()
	s := warm(t, Options{Clock: shown})
	s.sweeper.pace(never)
	w := store.Worker{Name: "w", Host: "h", StaleAfter: time.Minute}
	beat := func() { require.NoError(t, s.Beat(t.Context(), w)) }
	recovered := func(want int) func() {
		return func() {
			list, err := s.RecoverExpiredLeases(t.Context(), store.RecoverRequest{Limit: 10})
			require.NoError(t, err)
			require.Len(t, list, want)
		}
	}
	settled := func(want int) func() {
		return func() {
			list, err := s.Settle(t.Context(), 10)
			require.NoError(t, err)
			require.Len(t, list, want)
		}
	}
	expiring := func() {
		job := store.NewJob{Queue: "q", Kind: "k", Payload: []byte(`1`), Delay: time.Minute, ExpiresAt: shown.Now().Add(time.Hour)}
		_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{job}})
		require.NoError(t, err)
	}
	activity := func() {
		items := []store.Activity{{Queue: "q", Kind: "it's", Succeeded: 2, Waited: store.Histogram{3: 1}}, {Queue: "q", Stale: 1}}
		require.NoError(t, s.AddActivity(t.Context(), items))
	}
	for range 3 {
		activity()
		settled(0)()
		beat()
		enqueue(t, s, 1)
		claimN(t, s, 1)
		shown.Add(time.Hour)
		recovered(1)()
		recovered(0)()
	}
	looks := func() { s.now.present.Looked(0) }
	for _, call := range []struct {
		name   string
		before func()
		call   func()
		want   int64
	}{
		{"activity", nil, activity, 3},
		{"activity, a day after the one before", func() { shown.Add(26 * time.Hour) }, activity, 3},
		{"no activity", nil, func() { require.NoError(t, s.AddActivity(t.Context(), nil)) }, 2},
		{"a heartbeat", nil, beat, 3},
		{"of a worker with queues", func() { w.Queues = []string{"q", "it's"} }, beat, 3},
		{"a recovery where nothing is in flight", looks, recovered(0), 1},
		{"where a lease is in flight", func() {
			shown.Add(time.Hour)
			require.Len(t, claimN(t, s, 1), 1)
			looks()
		}, recovered(0), 1},
		{"where it has expired", func() { shown.Add(time.Hour); looks() }, recovered(1), 9},
		{"a settle where no job expires", nil, settled(0), 1},
		{"where one expires later", expiring, settled(0), 1},
		{"where it has expired", func() { shown.Add(time.Hour) }, settled(1), 5},
	} {
		if call.before != nil {
			call.before()
		}
		assert.Equal(t, call.want, spentBy(t, s, call.call)["round trips"], call.name)
	}
	workers, err := store.AllWorkers(t.Context(), s)
	require.NoError(t, err)
	require.Len(t, workers, 1)
	assert.Equal(t, w.Queues, workers[0].Queues)
}

// spied calls look before each statement of the store that has the text.
func spied(t *testing.T, s *Store, text string, look func(query string)) {
	t.Helper()
	wrapped(t, s, func(c Conn) Conn { return &spy{c, text, look} })
}

type spy struct {
	Conn
	text string
	look func(query string)
}

// QueryContext is part of driver.QueryerContext.
func (s *spy) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if strings.Contains(query, s.text) {
		s.look(query)
	}
	return s.Conn.QueryContext(ctx, query, args)
}

// ExecContext is part of driver.ExecerContext.
func (s *spy) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if strings.Contains(query, s.text) {
		s.look(query)
	}
	return s.Conn.ExecContext(ctx, query, args)
}

// A transaction that learns so late that the clock was set back learns it no more: by then another may have seen a later time.
func TestTheHorizonLearnsFromAnOpeningBeforeAnyOtherMessage(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	var latest []time.Time
	spied(t, s, "pg_control_system", func(string) {
		latest = append(latest, s.cursors.Latest())
	})
	s.server.mu.Lock()
	s.server.since = time.Time{} // so that it asks
	s.server.mu.Unlock()
	claimN(t, s, 1)
	require.NotEmpty(t, latest, "the server was not asked: the test is about nothing")
	assert.False(t, slices.ContainsFunc(latest, time.Time.IsZero), "a server was asked before it was noted what its opening said")
}
