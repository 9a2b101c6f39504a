package sqlite

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/race"
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

func enqueueKeyed(t *testing.T, s *Store, keys ...string) (ids []int64) {
	t.Helper()
	for some := range slices.Chunk(keys, store.MaxItems) {
		var req store.EnqueueRequest
		for _, key := range some {
			req.Jobs = append(req.Jobs, store.NewJob{Queue: "q", Kind: "k", Payload: []byte(`{}`), LimitKey: key})
		}
		added, err := s.Enqueue(t.Context(), req)
		require.NoError(t, err)
		for _, one := range added {
			ids = append(ids, one.ID)
		}
	}
	return ids
}

// claimed are the ids of the jobs that a claim takes.
func claimed(t *testing.T, s *Store, limit int) (ids []int64) {
	t.Helper()
	jobs, err := s.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: "q", Limit: limit, Worker: "w", TTL: time.Minute})
	require.NoError(t, err)
	for _, j := range jobs {
		ids = append(ids, j.ID)
	}
	return ids
}

func count(t *testing.T, s *Store, query string) (n int) {
	t.Helper()
	require.NoError(t, s.DB().Get(&n, query))
	return n
}

// Only a file with a queue that limits its keys has triggers for that: they make each change of a job slower.
func TestTriggersOfKeysGoWithTheLastLimit(t *testing.T) {
	t.Parallel()
	s := openAt(t, newPath(t), nil)
	triggers := func() int { return count(t, s, `SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'`) }
	enqueueKeyed(t, s, "a", "a", "")
	require.Zero(t, triggers())
	limitTo(t, s, store.Policy{MaxPerKey: 1})
	require.Equal(t, len(keyTriggers), triggers())
	enqueueKeyed(t, s, "b", "b", "")
	assert.Equal(t, []int64{1, 3, 4, 6}, claimed(t, s, 10))
	limitTo(t, s, store.Policy{MaxPerKey: 0})
	assert.Zero(t, triggers())
	assert.Zero(t, count(t, s, `SELECT (SELECT count(*) FROM keys) + (SELECT count(*) FROM hints)`))
	assert.Equal(t, []int64{2, 5}, claimed(t, s, 10))
	limitTo(t, s, store.Policy{MaxPerKey: 2})
	assert.Empty(t, claimed(t, s, 10))
	enqueueKeyed(t, s, "a", "c", "")
	assert.Equal(t, []int64{8, 9}, claimed(t, s, 10), "two of key a are in flight from before")
}

// A file of the schema before names in the rows of keys what claims have taken, and has a trigger that writes this. Its limits are kept.
func TestStepToCountedKeys(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	before := openAt(t, path, nil)
	limitTo(t, before, store.Policy{MaxPerKey: 2})
	ids := enqueueKeyed(t, before, "a", "a", "a", "b")
	require.Equal(t, []int64{ids[0], ids[1], ids[3]}, claimed(t, before, 4))
	_, err := before.DB().Exec(`
		UPDATE keys SET state = json_set(state, '$.taken', json_array(1, 2)) WHERE limit_key = 'a';
		UPDATE keys SET state = json_set(state, '$.taken', json_array(4)) WHERE limit_key = 'b';
		CREATE TRIGGER ordered_in_flight AFTER UPDATE OF queue ON jobs BEGIN INSERT INTO keys (queue) VALUES (NULL); END;
		DROP INDEX jobs_in_flight_by_key;
		DELETE FROM migrations WHERE name = 'in_flight_by_key'`)
	require.NoError(t, err)
	require.NoError(t, before.Close())

	after := openAt(t, path, &Options{MigrateForce: true})
	more := enqueueKeyed(t, after, "b", "b")
	assert.Equal(t, more[:1], claimed(t, after, 4), "two of key a are in flight, and one of key b")
	finish(t, after, ids[0])
	assert.Equal(t, ids[2:3], claimed(t, after, 4))
	finish(t, after, ids[1], ids[2], ids[3], more[0])
	assert.Equal(t, more[1:], claimed(t, after, 4))
	finish(t, after, more[1])
	assert.Empty(t, claimed(t, after, 4))
	assert.Equal(t, [2]int{}, rowsOf(t, after))
	_, err = after.DB().Exec(`UPDATE jobs SET queue = 'elsewhere'`)
	require.NoError(t, err, "nothing writes rows of keys any more")
}

// Somebody gives a job in flight to another key or queue, or lets it wait there: its key has room again. Claims are counted as they are.
func TestKeyedJobsInFlightChangedByHand(t *testing.T) {
	t.Parallel()
	for name, query := range map[string]string{
		"to another key":            `UPDATE jobs SET limit_key = 'b' WHERE id = ?`,
		"to no key":                 `UPDATE jobs SET limit_key = NULL WHERE id = ?`,
		"to another queue":          `UPDATE jobs SET queue = 'elsewhere' WHERE id = ?`,
		"to another key, and waits": `UPDATE jobs SET state = 'ready', lease_expires_at = NULL, limit_key = 'b', run_at = 1 << 60 WHERE id = ?`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openAt(t, newPath(t), nil)
			limitTo(t, s, store.Policy{MaxPerKey: 1})
			ids := enqueueKeyed(t, s, "a", "a")
			require.Equal(t, ids[:1], claimed(t, s, 10))
			byHand(t, s, query, ids[0])
			assert.Equal(t, ids[1:], claimed(t, s, 10))
			byHand(t, s, `UPDATE jobs SET limit_key = 'c' WHERE id = ?`, ids[1])
			enqueueKeyed(t, s, "c", "c")
			assert.Empty(t, claimed(t, s, 10), "one of key c is in flight")
		})
	}
}

// Rows of keys go when their last job has ended, and a claim reads no hint twice.
func TestRowsOfKeysAreDeleted(t *testing.T) {
	t.Parallel()
	s := openAt(t, newPath(t), nil)
	limitTo(t, s, store.Policy{MaxPerKey: 1})
	rows := func() int { return count(t, s, `SELECT count(*) FROM keys`) }
	ids := enqueueKeyed(t, s, "a", "b", "c", "a")
	require.Equal(t, 3, count(t, s, `SELECT count(*) FROM hints`))
	require.Equal(t, ids[:3], claimed(t, s, 4))
	require.Equal(t, 3, rows())
	finish(t, s, ids[:2]...)
	require.Equal(t, ids[3:], claimed(t, s, 10))
	assert.Equal(t, 2, rows())
	_, err := s.Cancel(t.Context(), store.Filter{IDs: ids}, 4)
	require.NoError(t, err)
	require.Empty(t, claimed(t, s, 10))
	assert.Zero(t, rows())
	assert.Zero(t, count(t, s, `SELECT count(*) FROM hints`))
}

// More keys have hints than a claim reads at once. Claims find all jobs all the same, and so do those after a new limit.
func TestMoreHintsThanAClaimReads(t *testing.T) {
	if race.Enabled {
		t.Skip("left to the pass without the race detector, since one call at a time has no race")
	}
	t.Parallel()
	const keys = hintsAtOnce + 500
	s := openAt(t, newPath(t), &Options{Synchronous: Normal})
	limitTo(t, s, store.Policy{MaxPerKey: 1})
	var names []string
	for i := range keys {
		names = append(names, fmt.Sprintf("%05d", i))
	}
	all := func() (found []int64) {
		for range 2 * keys / store.MaxItems {
			found = append(found, claimed(t, s, store.MaxItems)...)
		}
		slices.Sort(found)
		return found
	}
	first := enqueueKeyed(t, s, names...)
	require.Equal(t, first, all())
	second := enqueueKeyed(t, s, names...)
	require.Empty(t, claimed(t, s, store.MaxItems))
	limitTo(t, s, store.Policy{MaxPerKey: 2})
	require.Zero(t, count(t, s, `SELECT count(*) FROM hints`), "a new limit has read them all")
	assert.Equal(t, second, all())
}

// Some jobs without a key have waited since the queue limited its keys before, and others came since.
func TestJobsWithoutAKeyAreFoundUnderANewLimit(t *testing.T) {
	t.Parallel()
	s := openAt(t, newPath(t), nil)
	limitTo(t, s, store.Policy{MaxPerKey: 1})
	before := enqueueKeyed(t, s, "", "")
	limitTo(t, s, store.Policy{MaxPerKey: 0})
	since := enqueueKeyed(t, s, "", "")
	limitTo(t, s, store.Policy{MaxPerKey: 1})
	assert.Equal(t, slices.Concat(before, since), claimed(t, s, 5))
}
