package postgres

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
)

// limitTo sets the limits of the queue.
func limitTo(t testing.TB, s *Store, p store.Policy) {
	t.Helper()
	before, err := s.Policy(t.Context(), "q")
	require.NoError(t, err)
	p.Version = before.Version
	_, err = s.SetPolicy(t.Context(), "q", p)
	require.NoError(t, err)
}

// number is the answer to a query for one.
func number(t *testing.T, s *Store, query string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, s.callers.Get(&n, s.sql(query), args...))
	return n
}

func inFlight(t *testing.T, s *Store) int {
	t.Helper()
	return number(t, s, `SELECT count(*) FROM {schema}.jobs WHERE lease_expires_at IS NOT NULL`)
}

// eventually polls what must become true soon.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, 20*time.Second, time.Millisecond, what)
}

// A claim asks whether its queue is limited, finds that it is not any more, and is held up. Then another store sets a limit again: the claim has to
// find that one too.
func TestClaimFindsALimitThatCameBack(t *testing.T) {
	t.Parallel()
	o := Options{Schema: pgtest.Schema(t, pgtest.DSN(t))}
	stale, other := openStore(t, o), openStore(t, o)
	enqueue(t, stale, 10)
	limitTo(t, stale, store.Policy{MaxInFlight: 1})
	limitTo(t, other, store.Policy{MaxInFlight: 0})
	require.True(t, stale.limits.has("q"), "it has not heard that the limit was lifted")
	tx, err := other.callers.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), other.sql(`LOCK TABLE {schema}.jobs IN ACCESS EXCLUSIVE MODE`))
	require.NoError(t, err)
	claimed := make(chan []store.Job, 1)
	go func() {
		jobs, err := stale.FetchAndClaim(context.Background(), claimOf(10))
		assert.NoError(t, err)
		claimed <- jobs
	}()
	eventually(t, "the claim has asked, and waits for jobs", func() bool {
		return number(t, other, `SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = $1::text::regclass`, other.schema+".jobs") > 0
	})
	p, err := other.Policy(t.Context(), "q")
	require.NoError(t, err)
	set := make(chan struct{})
	go func() {
		defer close(set)
		_, err := other.SetPolicy(context.Background(), "q", store.Policy{MaxInFlight: 1, Version: p.Version})
		assert.NoError(t, err)
	}()
	eventually(t, "the limit is set", func() bool {
		return number(t, other, `SELECT count(*) FROM {schema}.queues WHERE max_in_flight = 1`) == 1
	})
	require.NoError(t, tx.Rollback())
	<-claimed
	<-set
	assert.LessOrEqual(t, inFlight(t, other), 1)
}

// Whoever has waited for the claims that did not see one limit has not waited for those that did not see the next one.
func TestCountOfALimitIsNotThatOfTheNext(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	enqueue(t, s, 4)
	count := func(version int64) { require.NoError(t, s.countNow(t.Context(), "q", version)) }
	uncount := func() int64 {
		_, err := s.callers.ExecContext(t.Context(), s.sql(`UPDATE {schema}.queues SET counted = FALSE`))
		require.NoError(t, err)
		version, found, err := s.toCount(t.Context(), "q")
		require.NoError(t, err)
		require.True(t, found)
		return version
	}
	limitTo(t, s, store.Policy{MaxInFlight: 2})
	first := uncount()
	limitTo(t, s, store.Policy{MaxInFlight: 0})
	limitTo(t, s, store.Policy{MaxInFlight: 2})
	second := uncount()
	count(first)
	_, found, err := s.toCount(t.Context(), "q")
	require.NoError(t, err)
	assert.True(t, found, "the count of the first limit has ended that of the second")
	assert.Empty(t, claimN(t, s, 1), "claimed before the jobs in flight are counted")
	eventually(t, "a claim that finds the queue uncounted has it counted", func() bool { return len(claimN(t, s, 1)) == 1 })
	assert.NotEqual(t, first, second)
}

// Claims take nothing from a queue that can not be counted, so somebody must be told.
func TestACountThatFailsIsLogged(t *testing.T) {
	t.Parallel()
	var told bytes.Buffer
	s := openStore(t, Options{LockTimeout: 50 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&told, nil))})
	enqueue(t, s, 1)
	limitTo(t, s, store.Policy{MaxInFlight: 1})
	_, err := s.callers.ExecContext(t.Context(), s.sql(`UPDATE {schema}.queues SET counted = FALSE`))
	require.NoError(t, err)
	tx, err := s.callers.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(t.Context(), s.sql(`LOCK TABLE {schema}.slots IN SHARE MODE`))
	require.NoError(t, err)
	assert.Empty(t, claimN(t, s, 1))
	s.running.Wait()
	assert.Contains(t, told.String(), "queue=q")
	assert.Contains(t, told.String(), "lock timeout")
}

// Claims that wait for the row of a queue hold no connections that other calls need.
func TestClaimsOfAHeldQueueLeaveConnections(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	enqueue(t, s, 10)
	limitTo(t, s, store.Policy{MaxInFlight: 5})
	jobs := claimN(t, s, 1)
	tx, err := s.callers.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(t.Context(), s.sql(`SELECT FROM {schema}.queues FOR UPDATE`))
	require.NoError(t, err)
	const claims = 20
	done := make(chan struct{}, claims)
	ctx, cancel := context.WithCancel(t.Context())
	for range claims {
		go func() {
			_, _ = s.FetchAndClaim(ctx, claimOf(1))
			done <- struct{}{}
		}()
	}
	eventually(t, "a claim waits for the row", func() bool {
		return number(t, s, `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%max_in_flight%'`) > 0
	})
	_, err = s.Ack(t.Context(), acksOf(jobs))
	require.NoError(t, err)
	assert.Empty(t, done, "claims that were not held up: the Ack may have waited for them")
	cancel()
	for range claims {
		<-done
	}
}

// A claim stays within the limit and uses all of its room, whether or not it has looked which jobs are still in flight, and slots are few.
func TestRoomIsUsed(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	const most = 3 * fewSlots
	limitTo(t, s, store.Policy{MaxInFlight: most})
	seed := rand.Uint64()
	dice := rand.New(rand.NewPCG(seed, 0))
	t.Log("seed", seed)
	long := enqueue(t, s, 1)
	require.Len(t, claimN(t, s, 1), 1, "which stays in flight")
	var held []store.Job
	full := 0
	for range 150 {
		enqueue(t, s, 60)
		asked := 1 + dice.IntN(60)
		jobs := claimN(t, s, asked)
		held = append(held, jobs...)
		n := inFlight(t, s)
		require.LessOrEqual(t, n, most)
		if len(jobs) < asked {
			full++
			require.Equal(t, most, n, "a claim got %d of %d jobs", len(jobs), asked)
		}
		dice.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
		ends := min(len(held), dice.IntN(40))
		_, err := s.Ack(t.Context(), acksOf(held[:ends]))
		require.NoError(t, err)
		held = held[ends:]
	}
	assert.Positive(t, full, "claims that the limit has cut short")
	_, err := s.Ack(t.Context(), acksOf(held))
	require.NoError(t, err)
	for range 40 { // claims of a queue that is nearly idle, beside one long job
		enqueue(t, s, 60)
		_, err := s.Ack(t.Context(), acksOf(claimN(t, s, 60)))
		require.NoError(t, err)
	}
	slots := number(t, s, `SELECT count(*) FROM {schema}.slots`)
	assert.LessOrEqual(t, slots, fewSlots+2*60, "slots of one job in flight")
	span := number(t, s, `SELECT max(number) - (SELECT first_slot FROM {schema}.queues) FROM {schema}.slots`)
	assert.LessOrEqual(t, span, mostSlots+most*4+fewSlots, "numbers that a claim passes")
	assert.Positive(t, number(t, s, `SELECT first_slot FROM {schema}.queues`), "deleted slots before the first are not passed any more, although job %d has been in flight all the time", long)
}

// The rows of a queue and of its policy can disagree only until the policy is set again.
func TestSettingALimitAgainMendsIt(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	enqueue(t, s, 10)
	limitTo(t, s, store.Policy{MaxInFlight: 2})
	require.Len(t, claimN(t, s, 5), 2)
	_, err := s.callers.ExecContext(t.Context(), s.sql(`DELETE FROM {schema}.queues`))
	require.NoError(t, err)
	limitTo(t, s, store.Policy{MaxInFlight: 2})
	assert.Empty(t, claimN(t, s, 5), "the row of the queue was deleted")

	_, err = s.callers.ExecContext(t.Context(), s.sql(`DELETE FROM {schema}.policies`))
	require.NoError(t, err)
	limitTo(t, s, store.Policy{MaxInFlight: 0})
	assert.Len(t, claimN(t, s, 5), 5, "the row of the policy was deleted")
}
