package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
)

// holdQueue locks the row of the queue. What it returns runs statements there, commits, and says when that was.
func holdQueue(t *testing.T, s *Store) (release func(query string) time.Time) {
	t.Helper()
	tx, err := s.callers.BeginTxx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	_, err = tx.ExecContext(t.Context(), s.sql(`SELECT FROM {schema}.queues WHERE name = 'q' FOR UPDATE`))
	require.NoError(t, err)
	return func(query string) (at time.Time) {
		require.NoError(t, tx.Get(&at, s.sql(query)))
		require.NoError(t, tx.Commit())
		return at
	}
}

// waitsForQueue polls until a call on the queue waits for its row, and then until the database's clock has moved on.
func waitsForQueue(t *testing.T, s *Store) {
	t.Helper()
	eventually(t, "a call waits for the row of the queue", func() bool {
		return number(t, s, `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%'||$1||'%rate_n%'`, s.options.Schema) > 0
	})
	var before time.Time
	require.NoError(t, s.callers.Get(&before, `SELECT clock_timestamp()`))
	eventually(t, "the clock moves on", func() bool {
		var now time.Time
		require.NoError(t, s.callers.Get(&now, `SELECT clock_timestamp()`))
		return now.Sub(before) > 20*time.Millisecond
	})
}

// A claim that has waited for the queue is one of the time at which it has it, so no claim comes before another one that it has waited for.
func TestRatedClaimIsOfTheTimeAtWhichItHasTheQueue(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	enqueue(t, s, 10)
	limitTo(t, s, store.Policy{Rate: store.Rate{N: 5, Per: time.Minute}})
	release := holdQueue(t, s)
	claimed := make(chan []store.Job, 1)
	go func() {
		jobs, err := s.FetchAndClaim(context.Background(), claimOf(3))
		assert.NoError(t, err)
		claimed <- jobs
	}()
	waitsForQueue(t, s)
	released := release(`SELECT clock_timestamp()`)
	jobs := <-claimed
	require.Len(t, jobs, 3)
	assert.False(t, jobs[0].ClaimedAt.Before(store.Truncate(released)), "claimed at %v, released at %v", jobs[0].ClaimedAt, released)
	assert.Equal(t, 1, number(t, s, `SELECT count(*) FROM {schema}.claims WHERE jobs = 3 AND claimed_at = $1`, jobs[0].ClaimedAt))
}

// A policy that has waited for a claim knows that claim's time, and does not take it for that of a clock that was ahead.
func TestAnotherRateLeavesTheClaimForWhichItHasWaited(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	enqueue(t, s, 10)
	limitTo(t, s, store.Policy{Rate: store.Rate{N: 5, Per: time.Minute}})
	release := holdQueue(t, s)
	set := make(chan struct{})
	go func() {
		defer close(set)
		_, err := s.SetPolicy(context.Background(), "q", store.Policy{Rate: store.Rate{N: 6, Per: time.Hour}, Version: 1})
		assert.NoError(t, err)
	}()
	waitsForQueue(t, s)
	claimed := release(`INSERT INTO {schema}.claims (queue, claimed_at, jobs) VALUES ('q', clock_timestamp(), 4) RETURNING claimed_at`)
	<-set
	var at time.Time
	require.NoError(t, s.callers.Get(&at, s.sql(`SELECT claimed_at FROM {schema}.claims WHERE jobs = 4`)))
	assert.Equal(t, claimed, at, "when the claim counts")
	assert.Len(t, claimN(t, s, 5), 2)
}

// Claims that count no more are deleted, and all of them when the queue has no rate any more.
func TestClaimsThatCountNoMoreAreDeleted(t *testing.T) {
	t.Parallel()
	clk := newClock()
	s := openStore(t, Options{Clock: clk})
	enqueue(t, s, 100)
	limitTo(t, s, store.Policy{Rate: store.Rate{N: 3, Per: time.Second}})
	for range 20 {
		require.Len(t, claimN(t, s, 5), 3)
		clk.Add(time.Second)
	}
	assert.Equal(t, 1, number(t, s, `SELECT count(*) FROM {schema}.claims`))
	limitTo(t, s, store.Policy{Rate: store.Rate{}})
	assert.Zero(t, number(t, s, `SELECT count(*) FROM {schema}.claims`))
}

// The rows of a queue and of its policy can disagree only until the policy is set again.
func TestSettingARateAgainMendsIt(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{Schema: spares.Take(t, pgtest.DSN(t))})
	enqueue(t, s, 10)
	limitTo(t, s, store.Policy{Rate: store.Rate{N: 3, Per: time.Hour}})
	require.Len(t, claimN(t, s, 2), 2)
	_, err := s.callers.ExecContext(t.Context(), s.sql(`DELETE FROM {schema}.queues`))
	require.NoError(t, err)
	limitTo(t, s, store.Policy{Rate: store.Rate{N: 3, Per: time.Hour}})
	assert.Len(t, claimN(t, s, 5), 1, "the row of the queue was deleted")
}

// A policy without a rate lifts one that only the row of the queue has, as when the policy's row was restored.
func TestPolicyWithoutARateLiftsAStrayOne(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	enqueue(t, s, 10)
	limitTo(t, s, store.Policy{Rate: store.Rate{N: 3, Per: time.Hour}})
	_, err := s.callers.ExecContext(t.Context(), s.sql(`DELETE FROM {schema}.policies`))
	require.NoError(t, err)
	_, err = s.SetPolicy(t.Context(), "q", store.Policy{RetainDead: time.Hour})
	require.NoError(t, err)
	assert.Len(t, claimN(t, s, 10), 10)
}

// The end of a lease makes no room under a rate, so nobody is woken for it.
func TestEndsOfLeasesWakeNobodyUnderARate(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	enqueue(t, s, 2)
	limitTo(t, s, store.Policy{Rate: store.Rate{N: 2, Per: time.Hour}})
	claimN(t, s, 2)
	assert.True(t, s.limits.has("q"))
	assert.False(t, s.limits.of("q").ends)
	limitTo(t, s, store.Policy{MaxInFlight: 2})
	assert.True(t, s.limits.of("q").ends)
}

// A claim passes only those deleted claims that the claim before has not passed: with an old snapshot, no vacuum can remove them.
func TestClaimsPassDeletedOnesOnce(t *testing.T) {
	t.Parallel()
	clk := newClock()
	s := openStore(t, Options{Clock: clk})
	enqueue(t, s, 10)
	limitTo(t, s, store.Policy{Rate: store.Rate{N: 3, Per: time.Second}})
	require.Len(t, claimN(t, s, 1), 1)
	_, err := s.callers.ExecContext(t.Context(), s.sql(`
		INSERT INTO {schema}.claims (queue, claimed_at, jobs)
		VALUES ('q', $1, 1)`),
		clk.Now().Add(-time.Hour))
	require.NoError(t, err)
	clk.Add(2 * time.Second)
	require.Len(t, claimN(t, s, 1), 1)
	assert.Equal(t, 2, number(t, s, `SELECT count(*) FROM {schema}.claims`), "the one that just ceased to count is deleted, and the old one is not looked at")
}

// Two processes differ about the time, after the clock was set back by a little: one keeps the time that it has seen. Together they keep to the rate,
// however often they take turns, and both go on when it is time.
func TestRateOfClocksThatDifferALittle(t *testing.T) {
	t.Parallel()
	clk := newClock()
	o := Options{Schema: spares.Take(t, pgtest.DSN(t)), Clock: clk}
	ahead, behind := openStore(t, o), openStore(t, o)
	enqueue(t, ahead, 100)
	limitTo(t, ahead, store.Policy{Rate: store.Rate{N: 5, Per: time.Second}})
	clk.Add(time.Minute)
	require.Len(t, claimN(t, ahead, 3), 3)
	clk.Add(-3 * time.Second)
	claimed := 3
	for range 5 {
		claimed += len(claimN(t, behind, 9)) + len(claimN(t, ahead, 9))
	}
	assert.Equal(t, 5, claimed)
	clk.Add(4 * time.Second)
	for range 5 {
		claimed += len(claimN(t, behind, 9)) + len(claimN(t, ahead, 9))
	}
	assert.Equal(t, 10, claimed)
}
