package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
)

// keyed are n jobs for each of the keys.
func keyed(n int, keys ...string) store.EnqueueRequest {
	var req store.EnqueueRequest
	for _, key := range keys {
		jobs := benchJobs(n)
		for i := range jobs {
			jobs[i].LimitKey = key
		}
		req.Jobs = append(req.Jobs, jobs...)
	}
	return req
}

func enqueueKeyed(t *testing.T, w store.Writer, n int, keys ...string) (ids []int64) {
	t.Helper()
	added, err := w.Enqueue(t.Context(), keyed(n, keys...))
	require.NoError(t, err)
	for _, one := range added {
		ids = append(ids, one.ID)
	}
	return ids
}

// knowing lets the store look for keys no more: that leaves hints.
func knowing(t *testing.T, s *Store, queues ...string) {
	t.Helper()
	_, err := s.callers.ExecContext(t.Context(), s.sql(`UPDATE {schema}.queues SET keys_known = $1`), keysKnown)
	require.NoError(t, err)
	for _, queue := range append(queues, "q") {
		eventually(t, "nobody looks for keys", func() bool { return !s.limits.counts(keysOf(queue, 0)) && !s.limits.counts(keysOf(queue, 1)) })
	}
}

// The first claim after a burst reads a hint for each job, and writes a row for each key. The server knows nothing of either table by then.
func TestFirstClaimAfterABurst(t *testing.T) {
	t.Parallel()
	rows := func(keys int) int {
		s := openStore(t, Options{})
		limitTo(t, s, store.Policy{MaxPerKey: 1})
		knowing(t, s)
		names := make([]string, keys)
		for i := range names {
			names[i] = fmt.Sprint("key ", i)
		}
		for some := range slices.Chunk(names, store.MaxItems) {
			enqueueKeyed(t, s, 1, some...)
		}
		require.Equal(t, keys, number(t, s, `SELECT count(*) FROM {schema}.hints`))
		m := metered(t, s)
		visited := m.of(func() error {
			jobs, err := s.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: "q", Limit: 10, Worker: "w", TTL: time.Minute})
			assert.Len(t, jobs, 10)
			return err
		}).rows
		require.Equal(t, keys, number(t, s, `SELECT count(*) FROM {schema}.keys`))
		return visited
	}
	few, many := rows(500), rows(2000)
	assert.Less(t, many, 8*few, "four times as many keys")
}

// Claims begin behind the hints that are gone, whose entries stay in the index until the table is vacuumed.
func TestClaimsPassHintsThatAreGone(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	limitTo(t, s, store.Policy{MaxPerKey: 1})
	knowing(t, s)
	_, err := s.callers.ExecContext(t.Context(), s.sql(`ALTER TABLE {schema}.hints SET (autovacuum_enabled = FALSE)`))
	require.NoError(t, err)
	next := func() error {
		enqueueKeyed(t, s, 1, "a")
		jobs := claimN(t, s, 1)
		require.Len(t, jobs, 1)
		_, err := s.Ack(t.Context(), acksOf(jobs))
		return err
	}
	m := metered(t, s)
	require.NoError(t, next())
	usual := m.of(next).pages
	for range 5 { // a claim reads as many
		_, err = s.callers.ExecContext(t.Context(), s.sql(`
			INSERT INTO {schema}.hints (queue, limit_key)
			SELECT 'q', 'a'
			FROM generate_series(1, $1)`),
			keysAtOnce-1)
		require.NoError(t, err)
		require.Empty(t, claimN(t, s, 1))
		require.Zero(t, number(t, s, `SELECT count(*) FROM {schema}.hints`))
	}
	eventually(t, "claims cost what they did", func() bool { return m.of(next).pages < usual+50 })
}

// A hint that is committed late has a smaller number than others that are gone, and is read by the next claim.
func TestHintsThatAreCommittedLateAreRead(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	limitTo(t, s, store.Policy{MaxPerKey: 1})
	knowing(t, s)
	next := func(key string) {
		enqueueKeyed(t, s, 1, key)
		jobs := claimN(t, s, 1)
		require.Len(t, jobs, 1)
		_, err := s.Ack(t.Context(), acksOf(jobs))
		require.NoError(t, err)
	}
	mark := func() int64 { return s.cursors.Plan("q").FirstRow() }
	for range 20 {
		next("a")
		tx, err := s.DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		late := enqueueKeyed(t, s.InTx(tx), 1, "late")
		for range 4 {
			next("a")
		}
		before := mark()
		require.NoError(t, tx.Commit())
		jobs := claimN(t, s, 1)
		require.Equal(t, late, jobIDs(jobs), "the mark was %d", before)
		_, err = s.Ack(t.Context(), acksOf(jobs))
		require.NoError(t, err)
	}
	eventually(t, "claims have begun behind the head", func() bool { next("a"); return mark() > 1 })
}

// Many jobs of a key leave one hint, unless an earlier one comes after a later one, or the hint is undone.
func TestJobsOfAKeyShareAHint(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	limitTo(t, s, store.Policy{MaxPerKey: store.MaxKeyLimit})
	knowing(t, s)
	enqueue := func(w store.Writer, key string, priority int, delays ...time.Duration) (hints int) {
		before := number(t, s, `SELECT coalesce(max(number), 0) FROM {schema}.hints`)
		req := keyed(len(delays), key)
		for i, delay := range delays {
			req.Jobs[i].Delay, req.Jobs[i].Priority = delay, priority
		}
		_, err := w.Enqueue(t.Context(), req)
		require.NoError(t, err)
		return number(t, s, `SELECT count(*) FROM {schema}.hints WHERE number > $1`, before)
	}
	assert.Equal(t, 1, enqueue(s, "a", 0, 0, 0, time.Second, 0))
	assert.Equal(t, 1, enqueue(s, "a", 0, 0), "another transaction leaves its own")
	assert.Equal(t, 2, enqueue(s, "a", 0, time.Second, time.Second, 0))
	assert.Equal(t, 1, enqueue(s, "a", 1, 0))

	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), `SAVEPOINT undone`)
	require.NoError(t, err)
	enqueue(s.InTx(tx), "b", 0, 0)
	_, err = tx.ExecContext(t.Context(), `ROLLBACK TO undone`)
	require.NoError(t, err)
	enqueue(s.InTx(tx), "b", 0, 0)
	require.NoError(t, tx.Commit())
	assert.Equal(t, 1, number(t, s, `SELECT count(*) FROM {schema}.hints WHERE limit_key = 'b'`))
	waiting := number(t, s, `SELECT count(*) FROM {schema}.jobs WHERE run_at <= now()`)
	assert.Len(t, claimN(t, s, 100), waiting)
}

// A transaction has enqueued a job before the queue limited its keys, and commits long after. Nobody waits for it, and its job is found.
func TestJobsOlderThanTheLimitOfKeysAreFound(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	late := enqueueKeyed(t, s.InTx(tx), 1, "late")
	limitTo(t, s, store.Policy{MaxPerKey: 1})
	others := enqueueKeyed(t, s, 1, "a", "b")
	jobs := claimN(t, s, 5)
	require.Len(t, jobs, 2, "claims wait for the open transaction")
	require.Equal(t, others, jobIDs(jobs))
	eventually(t, "the store waits for the transaction", func() bool { return s.limits.counts(keysOf("q", 0)) })
	require.Empty(t, claimN(t, s, 5))
	require.Zero(t, number(t, s, `SELECT keys_known FROM {schema}.queues`), "not all keys are known while the transaction is open")
	limitTo(t, s, store.Policy{MaxPerKey: 2})
	require.Equal(t, enqueueKeyed(t, s, 1, "a"), jobIDs(claimN(t, s, 5)), "a new limit does not wait for it either")
	require.NoError(t, tx.Commit())
	eventually(t, "the job is found", func() bool {
		found := claimN(t, s, 5)
		return len(found) == 1 && found[0].ID == late[0]
	})
	eventually(t, "those keys are known", func() bool {
		claimN(t, s, 1)
		return number(t, s, `SELECT keys_known FROM {schema}.queues`) > 0
	})
}

// isolated returns a transaction that goes on seeing the database as it is now.
func isolated(t *testing.T, s *Store) *sql.Tx {
	t.Helper()
	tx, err := s.DB().BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), s.sql(`SELECT count(*) FROM {schema}.queues`))
	require.NoError(t, err)
	return tx
}

// Transactions that see the database as it was before the queue limited its keys enqueue a job, and finish one. The job is found, and so is the room.
func TestIsolatedTransactionsOlderThanTheLimitOfKeys(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), ownServer(t, pgtest.Options{}).DSN, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	ids := enqueueKeyed(t, s, 2, "a")
	held := claimN(t, s, 1)
	adds, ends := isolated(t, s), isolated(t, s)
	limitTo(t, s, store.Policy{MaxPerKey: 1})
	require.Empty(t, claimN(t, s, 5))
	eventually(t, "those that have changed jobs are waited for", func() bool {
		claimN(t, s, 1)
		return number(t, s, `SELECT keys_known FROM {schema}.queues`) == 1
	})
	late := enqueueKeyed(t, s.InTx(adds), 1, "late")
	require.NoError(t, adds.Commit())
	_, err = s.InTx(ends).Ack(t.Context(), acksOf(held))
	require.NoError(t, err)
	require.Empty(t, claimN(t, s, 5), "no hint was left")
	require.NoError(t, ends.Commit())
	var found []int64
	eventually(t, "the jobs are found", func() bool {
		found = append(found, jobIDs(claimN(t, s, 5))...)
		return len(found) == 2
	})
	assert.ElementsMatch(t, []int64{ids[1], late[0]}, found)
}

// Somebody has locked the first job of a key. A claim of one job takes another one in its place.
func TestLockedJobOfAKeyHidesNoOther(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	limitTo(t, s, store.Policy{MaxPerKey: 1})
	ids := enqueueKeyed(t, s, 2, "a", "b")
	tx, err := s.callers.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), s.sql(`SELECT FROM {schema}.jobs WHERE id = $1 FOR UPDATE`), ids[0])
	require.NoError(t, err)
	assert.Equal(t, ids[1:2], jobIDs(claimN(t, s, 1)), "the next job of the same key")
	assert.Equal(t, ids[2:3], jobIDs(claimN(t, s, 1)), "the first one of the other key")
	require.NoError(t, tx.Rollback())
	_, err = s.Cancel(t.Context(), store.Filter{IDs: ids[1:2]}, 1)
	require.NoError(t, err)
	assert.Equal(t, ids[:1], jobIDs(claimN(t, s, 1)), "and then it")
}

// Another store limits the keys of a queue, and ceases to. A store that believes the opposite finds every job, and keeps to the limit.
func TestKeysLimitedByAnotherStore(t *testing.T) {
	t.Parallel()
	o := Options{Schema: pgtest.Schema(t, pgtest.DSN(t))}
	s, other := openStore(t, o), openStore(t, o)
	for round := range 3 {
		first := enqueueKeyed(t, s, 3, "a", "b")
		plain := enqueue(t, s, 3)
		limitTo(t, other, store.Policy{MaxPerKey: 2})
		want := []int64{first[0], first[1], first[3], first[4], plain[0], plain[1], plain[2]}
		require.Equal(t, want, jobIDs(claimN(t, s, 20)), "round %d, limited", round)
		limitTo(t, other, store.Policy{MaxPerKey: 0})
		require.Equal(t, []int64{first[2], first[5]}, jobIDs(claimN(t, s, 20)), "round %d, not limited any more", round)
		for _, id := range append(want, first[2], first[5]) {
			_, err := s.Cancel(t.Context(), store.Filter{IDs: []int64{id}}, 1)
			require.NoError(t, err)
		}
	}
}

func jobIDs(jobs []store.Job) (ids []int64) {
	for _, j := range jobs {
		ids = append(ids, j.ID)
	}
	return ids
}

// A claim that finds nothing but keys that another claim has locked waits for that, so it does not come back empty.
func TestClaimWaitsForALockedKey(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	limitTo(t, s, store.Policy{MaxPerKey: 5})
	ids := enqueueKeyed(t, s, 3, "a")
	require.Equal(t, ids[:1], jobIDs(claimN(t, s, 1)))
	tx, err := s.callers.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), s.sql(`SELECT FROM {schema}.keys FOR UPDATE`))
	require.NoError(t, err)
	claimed := make(chan []store.Job, 1)
	go func() {
		jobs, err := s.FetchAndClaim(context.Background(), claimOf(1))
		assert.NoError(t, err)
		claimed <- jobs
	}()
	eventually(t, "the claim waits for the key", func() bool {
		return number(t, s, `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%fresh_level%'`) > 0
	})
	_, err = s.Enqueue(t.Context(), keyed(1, "a"))
	require.NoError(t, err, "an enqueue waits for nobody")
	require.NoError(t, tx.Rollback())
	assert.Equal(t, ids[1:2], jobIDs(<-claimed))
}

// While somebody has locked a key, claims read hints of it, and leave them to those who come when the key is free.
func TestHintsOfALockedKeyStay(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	limitTo(t, s, store.Policy{MaxPerKey: 1})
	knowing(t, s)
	ids := enqueueKeyed(t, s, 2, "a")
	jobs := claimN(t, s, 2)
	require.Equal(t, ids[:1], jobIDs(jobs), "the key is full")
	tx, err := s.callers.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), s.sql(`SELECT FROM {schema}.keys WHERE limit_key = 'a' FOR UPDATE`))
	require.NoError(t, err)
	_, err = s.Ack(t.Context(), acksOf(jobs))
	require.NoError(t, err)
	other := enqueueKeyed(t, s, 1, "b")
	require.Equal(t, other, jobIDs(claimN(t, s, 2)))
	assert.Zero(t, number(t, s, `SELECT count(*) FROM {schema}.hints WHERE limit_key = 'b'`), "the claim has read the hints")
	assert.Equal(t, 1, number(t, s, `SELECT count(*) FROM {schema}.hints WHERE limit_key = 'a'`))
	require.NoError(t, tx.Rollback())
	assert.Equal(t, ids[1:], jobIDs(claimN(t, s, 2)))
}

// A claim has locked a key, for which a hint changes nothing, and comes back empty: it does not wait for another key, which somebody has locked. The two
// could wait for each other.
func TestClaimThatHoldsAKeyDoesNotWait(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	limitTo(t, s, store.Policy{MaxPerKey: 2})
	knowing(t, s)
	later := keyed(2, "a")
	later.Jobs[1].Delay = time.Hour
	_, err := s.Enqueue(t.Context(), later)
	require.NoError(t, err)
	enqueueKeyed(t, s, 1, "b")
	jobs := claimN(t, s, 1)
	require.Len(t, jobs, 1)
	require.Equal(t, "a", jobs[0].LimitKey())
	_, err = s.Ack(t.Context(), acksOf(jobs))
	require.NoError(t, err)
	require.Equal(t, 1, number(t, s, `SELECT count(*) FROM {schema}.keys, {schema}.hints
		WHERE keys.limit_key = 'a' AND look_at IS NOT NULL AND fresh_level IS NULL AND hints.limit_key = 'a' AND due_at IS NULL`))
	tx, err := s.callers.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), s.sql(`SELECT FROM {schema}.keys WHERE limit_key = 'b' AND fresh_level IS NOT NULL FOR UPDATE`))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	jobs, err = s.FetchAndClaim(ctx, claimOf(1))
	require.NoError(t, err, "the claim waits")
	assert.Empty(t, jobs)
	require.NoError(t, tx.Rollback())
	assert.Len(t, claimN(t, s, 1), 1, "of the other key")
}

// Many keys stand in front of others although their first jobs do not wait any more. They hide nothing, and nothing is left of them.
func TestKeysThatStandTooFarInFront(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	limitTo(t, s, store.Policy{MaxPerKey: 1})
	knowing(t, s)
	var names []string
	for i := range 50 {
		names = append(names, fmt.Sprint("gone-", i))
	}
	gone := enqueueKeyed(t, s, 1, names...)
	first := enqueueKeyed(t, s, 1, "first")
	last := enqueueKeyed(t, s, 1, "last")
	require.Equal(t, gone[:1], jobIDs(claimN(t, s, 1)), "now all keys stand")
	_, err := s.Cancel(t.Context(), store.Filter{IDs: gone}, len(gone))
	require.NoError(t, err)
	assert.Equal(t, first, jobIDs(claimN(t, s, 1)))
	assert.Equal(t, last, jobIDs(claimN(t, s, 3)))
	assert.Equal(t, 2, number(t, s, `SELECT count(*) FROM {schema}.keys`), "rows of keys without jobs are deleted")
	assert.Zero(t, number(t, s, `SELECT count(*) FROM {schema}.hints`))
}

// Jobs with keys cost a queue without a limit for them no rows, and jobs without keys none in a queue that has one.
func TestHintsAreForKeysThatAreLimited(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	hints := func() int { return number(t, s, `SELECT count(*) FROM {schema}.hints`) }
	enqueueKeyed(t, s, 2, "a", "b")
	_, err := s.Ack(t.Context(), acksOf(claimN(t, s, 4)))
	require.NoError(t, err)
	assert.Zero(t, hints())
	limitTo(t, s, store.Policy{MaxPerKey: 1})
	knowing(t, s)
	enqueue(t, s, 3)
	_, err = s.Ack(t.Context(), acksOf(claimN(t, s, 3)))
	require.NoError(t, err)
	assert.Zero(t, hints())
	enqueueKeyed(t, s, 1, "a")
	assert.Equal(t, 1, hints())
	jobs := claimN(t, s, 1)
	assert.Zero(t, hints(), "the claim has read it")
	_, err = s.Extend(t.Context(), []store.Lease{jobs[0].Lease()}, time.Minute)
	require.NoError(t, err)
	assert.Zero(t, hints(), "the lease goes on")
	_, err = s.Ack(t.Context(), acksOf(jobs))
	require.NoError(t, err)
	assert.Equal(t, 1, hints(), "the lease has ended")
}

// A statement changes jobs of several queues in turn. Each of them leaves the hints that its own queue needs, also if it moves to another one, and after a
// part of the transaction was undone.
func TestHintsOfSeveralQueues(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	for name, p := range map[string]store.Policy{"limited": {MaxPerKey: 2}, "fair": {Fair: true}, "ordered": {Ordered: true}} {
		_, err := s.SetPolicy(t.Context(), name, p)
		require.NoError(t, err)
	}
	knowing(t, s, "limited", "fair", "ordered")
	queues := []string{"plain", "limited", "plain", "fair", "limited", "ordered", "plain", "ordered", "fair"}
	var leases []store.Lease
	for i, queue := range queues {
		enqueueTo(t, s, queue, fmt.Sprint("old-", i))
		jobs, err := s.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: queue, Limit: 1, Worker: "w", TTL: time.Minute})
		require.NoError(t, err)
		require.Len(t, jobs, 1)
		leases = append(leases, jobs[0].Lease())
	}
	require.Zero(t, number(t, s, `SELECT count(*) FROM {schema}.hints`), "claims have read all")
	tx, err := s.callers.BeginTxx(t.Context(), nil)
	require.NoError(t, err)
	do := func(statement string, args ...any) {
		_, err := tx.ExecContext(t.Context(), s.sql(statement), args...)
		require.NoError(t, err)
	}
	var last int64
	left := func() (hints []string) {
		require.NoError(t, tx.Select(&hints, s.sql(`SELECT queue || ' ' || limit_key FROM {schema}.hints WHERE number > $1 ORDER BY number`), last))
		require.NoError(t, tx.Get(&last, s.sql(`SELECT coalesce(max(number), 0) FROM {schema}.hints`)))
		return hints
	}
	var added store.EnqueueRequest
	for i, queue := range queues {
		one := keyed(1, fmt.Sprint("new-", i)).Jobs[0]
		one.Queue = queue
		added.Jobs = append(added.Jobs, one)
	}
	_, err = s.InTx(tx.Tx).Enqueue(t.Context(), added)
	require.NoError(t, err)
	assert.Equal(t, []string{"limited new-1", "fair new-3", "limited new-4", "ordered new-5", "ordered new-7", "fair new-8"}, left())
	acks := make([]store.Ack, len(leases))
	for i, l := range leases {
		acks[i].Lease = l
	}
	_, err = s.InTx(tx.Tx).Ack(t.Context(), acks)
	require.NoError(t, err)
	assert.Equal(t, []string{"limited old-1", "limited old-4", "ordered old-5", "ordered old-7"}, left())
	do(`SAVEPOINT undone`)
	enqueueTo(t, s.InTx(tx.Tx), "limited", "undone")
	do(`ROLLBACK TO undone`)
	last = 0
	left()
	enqueueTo(t, s.InTx(tx.Tx), "plain", "after")
	enqueueTo(t, s.InTx(tx.Tx), "limited", "after")
	assert.Equal(t, []string{"limited after"}, left())
	for _, move := range [][2]string{{"plain", "limited"}, {"ordered", "plain"}, {"limited", "ordered"}, {"fair", "fair"}} {
		do(`UPDATE {schema}.jobs SET queue = $2, limit_key = limit_key || '-moved' WHERE id = (
			SELECT id FROM {schema}.jobs WHERE queue = $1 AND limit_key LIKE 'new-_' ORDER BY id LIMIT 1)`, move[0], move[1])
	}
	assert.Equal(t, []string{"limited new-0-moved", "ordered new-5", "ordered new-1-moved", "fair new-3-moved"}, left())
	require.NoError(t, tx.Rollback())
}

// enqueueTo adds a job with a key to a queue.
func enqueueTo(t *testing.T, w store.Writer, queue, key string) {
	t.Helper()
	req := keyed(1, key)
	req.Jobs[0].Queue = queue
	_, err := w.Enqueue(t.Context(), req)
	require.NoError(t, err)
}
