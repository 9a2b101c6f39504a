package postgres

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
	"github.com/seed-ed332417/jq/internal/store/bykey"
)

// keysInTurn are the keys of so many jobs.
func keysInTurn(jobs, keys int) []string {
	names := make([]string, jobs)
	for i := range names {
		names[i] = strconv.Itoa(i % keys)
	}
	return names
}

// crossing returns a store with these jobs, of which claims may take so many for each key, and the ids of those that it has not claimed until it knows all keys. often is
// how often its claims find jobs by key besides.
func crossing(t *testing.T, often bykey.Often, most int, keys ...string) (s *Store, ids []int64) {
	t.Helper()
	s = acquainted(t, openStore(t, Options{NotifyEvery: time.Hour})) // it tells nobody meanwhile
	s.limits.often = often
	return s, crossingOf(t, s, most, keys...)
}

// crossingOf is crossing for a store.
func crossingOf(t *testing.T, s *Store, most int, keys ...string) (ids []int64) {
	t.Helper()
	limitTo(t, s, store.Policy{MaxPerKey: most})
	knowing(t, s)
	for some := range slices.Chunk(keys, store.MaxItems) {
		ids = append(ids, enqueueKeyed(t, s, 1, some...)...)
	}
	for range 2 { // the first one finds no rows of keys, and the next one does not try
		jobs := claimN(t, s, 1)
		require.Len(t, jobs, 1)
		require.Equal(t, ids[0], jobs[0].ID)
		ids = ids[1:]
		finish(t, s, jobs)
	}
	return ids
}

// crossed is where claims across keys have come.
func crossed(s *Store) cursor.Position {
	return s.cursors.Get(cursor.AcrossKeys("q")).Lanes[cursor.Fresh].Cursor[cursor.LevelOf(0)]
}

// claimInOne are the ids of the jobs that a claim takes by one message. If the marks are looked for, it is two.
func claimInOne(t *testing.T, s *Store, limit int) (ids []int64, one bool) {
	t.Helper()
	lively(s)
	look := s.cursors.Get(cursor.AcrossKeys("q")).Looked
	var jobs []store.Job
	messages := spentBy(t, s, func() { jobs = claimN(t, s, limit) })["round trips"]
	if s.cursors.Get(cursor.AcrossKeys("q")).Looked.After(look) {
		messages--
	}
	for _, j := range jobs {
		ids = append(ids, j.ID)
	}
	return ids, messages == 1
}

// While a limit does not bind, a claim is one statement, which only writes what it takes of a key. It begins again by key where one may have no room, or where there
// are fewer jobs.
func TestClaimsAcrossKeys(t *testing.T) {
	t.Parallel()
	s, ids := crossing(t, bykey.Often{}, 3, "a", "b", "", "a", "b", "", "a", "b", "", "a", "b", "", "c", "c")
	text := func(what string) (text string) {
		require.NoError(t, s.callers.Get(&text, s.sql(`SELECT `+what+` FROM {schema}.keys WHERE limit_key = 'a'`)))
		return text
	}
	stood := text(`fresh_id`)

	jobs, one := claimInOne(t, s, 5)
	assert.Equal(t, ids[:5], jobs)
	assert.True(t, one)
	assert.Equal(t, fmt.Sprintf("[%d, %d, %d]", ids[0]-2, ids[1], ids[4]), text(`state::jsonb -> 'taken'`), "the first job has ended, and counts")
	assert.Equal(t, stood, text(`fresh_id`), "it stands where it stood")

	_, err := s.check(t.Context())
	require.NoError(t, err, "sweeps know the queue by its name")

	jobs, one = claimInOne(t, s, 4)
	assert.Equal(t, ids[5:9], jobs, "of key a too, as its first job has ended")
	assert.False(t, one)
	jobs, one = claimInOne(t, s, 4)
	assert.Equal(t, ids[9:], jobs, "fewer jobs")
	assert.False(t, one)
}

// Claims of several stores on the same keys never take more than there is room for, and some are one statement. The server is the test's own: where a
// transaction of somebody else is open, cursors do not move.
func TestManyClaimsAcrossKeysKeepToTheLimit(t *testing.T) {
	t.Parallel()
	const most, keys, all, batches = 3, 45, 3000, 3
	dsn := ownServer(t, pgtest.Options{}).DSN
	stores := make([]*Store, 2)
	for i := range stores {
		s, err := Open(t.Context(), dsn, &Options{NotifyEvery: time.Hour})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, s.Close()) })
		s.sweeper.pace(never)
		stores[i] = acquainted(t, s)
	}
	ids := crossingOf(t, stores[0], most, keysInTurn(all, keys)...)
	for _, s := range stores {
		awaitHorizon(t, s, time.Now()) // so that cursors move
	}
	var mu sync.Mutex // guards what follows
	held, left := map[string]int{}, len(ids)
	took := func(jobs []store.Job) (done bool) {
		mu.Lock()
		defer mu.Unlock()
		for _, j := range jobs {
			held[j.LimitKey()]++
			assert.LessOrEqual(t, held[j.LimitKey()], most)
		}
		left -= len(jobs)
		return left == 0
	}
	ends := func(s *Store, jobs []store.Job) {
		mu.Lock()
		for _, j := range jobs {
			held[j.LimitKey()]--
		}
		mu.Unlock()
		finish(t, s, jobs)
	}
	var work sync.WaitGroup
	for i := range 6 {
		work.Go(func() {
			s := stores[i%2]
			var mine [][]store.Job
			for began, done := time.Now(), false; !done && time.Since(began) < time.Minute; {
				jobs, err := s.FetchAndClaim(t.Context(), claimOf(5))
				if !assert.NoError(t, err) {
					return
				}
				done = took(jobs)
				if mine = append(mine, jobs); len(mine) > batches || len(jobs) == 0 {
					ends(s, mine[0])
					mine = mine[1:]
				}
			}
			for _, jobs := range mine {
				ends(s, jobs)
			}
		})
	}
	work.Wait()
	assert.Zero(t, left)
	assert.True(t, slices.ContainsFunc(stores, func(s *Store) bool { return crossed(s) != cursor.Position{} }), "none has claimed across keys")
}

// A job that is committed late is found by the first claim that looks from the marks.
func TestLateCommitIsFoundAcrossKeys(t *testing.T) {
	t.Parallel()
	s, _ := crossing(t, newLimits().often, store.MaxKeyLimit, keysInTurn(100, 10)...)
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	late := enqueueKeyed(t, s.InTx(tx), 1, "late")[0]
	name := cursor.AcrossKeys("q")
	for began := time.Now(); crossed(s).ID <= late; {
		require.Less(t, time.Since(began), time.Minute, "no claim has passed it")
		enqueueKeyed(t, s, 1, keysInTurn(20, 10)...)
		finish(t, s, claimN(t, s, 10))
	}
	require.NoError(t, tx.Commit())
	for {
		before := s.cursors.Get(name).Looked
		jobs := claimN(t, s, 10)
		finish(t, s, jobs)
		if slices.ContainsFunc(jobs, func(j store.Job) bool { return j.ID == late }) {
			break
		}
		require.False(t, s.cursors.Get(name).Looked.After(before), "a claim has looked, and the job stayed hidden")
		enqueueKeyed(t, s, 1, keysInTurn(10, 10)...)
	}
}

// Jobs that appear before the marks, since a clock was set back or rows were changed by hand, are found by the next claim by key. It moves the
// marks back, so that the next ones find the rest.
func TestJobsBeforeTheMarksAreFoundAcrossKeys(t *testing.T) {
	t.Parallel()
	s, ids := crossing(t, bykey.Often{Jobs: 300}, store.MaxKeyLimit, keysInTurn(1000, 1000)...)
	awaitHorizon(t, s, time.Now())
	marked := func() bool {
		return s.cursors.Get(cursor.AcrossKeys("q")).Lanes[cursor.Fresh].Mark[cursor.LevelOf(0)] != cursor.Position{}
	}
	for began := time.Now(); crossed(s) == (cursor.Position{}) || !marked(); {
		require.Less(t, time.Since(began), time.Minute, "no claim was across keys and has moved the marks")
		s.cursors.Plan(cursor.AcrossKeys("q")).Failed() // the next claim looks
		finish(t, s, claimN(t, s, 1))
	}
	const late, size = 40, 10
	_, err := s.DB().ExecContext(t.Context(), s.sql(`UPDATE {schema}.jobs SET run_at = run_at - interval '1 hour' WHERE id > $1`), ids[len(ids)-1]-late)
	require.NoError(t, err)
	isLate := func(j store.Job) bool { return j.ID > ids[len(ids)-1]-late }
	for missed := late; missed > 0; {
		jobs := claimN(t, s, size)
		require.Len(t, jobs, size)
		if missed == late && !slices.ContainsFunc(jobs, isLate) {
			continue // across keys, from where the claim before has ended
		}
		for _, j := range jobs {
			require.True(t, isLate(j), "they come before all others")
		}
		missed -= size
	}
}

// Whoever claims from a queue without jobs, or with a key that is full, is not woken to claim again.
func TestAClaimInVainWakesNobodyForNothing(t *testing.T) {
	t.Parallel()
	s, _ := crossing(t, bykey.Often{}, 1, "a", "a", "a", "a")
	require.Len(t, claimN(t, s, 10), 1)
	wakeups, err := s.Subscribe(t.Context(), []string{"q"})
	require.NoError(t, err)
	told := 0
	for range 200 {
		require.Empty(t, claimN(t, s, 10))
		for len(wakeups) > 0 {
			<-wakeups
			told++
		}
	}
	assert.LessOrEqual(t, told, 2, "that the store listens now, and once because the key still stood")
}

// A claim looks for each of its keys, also where the server knows of many jobs, but of few keys.
func TestClaimsAcrossKeysPassNoOthers(t *testing.T) {
	t.Parallel()
	const keys = 500
	s, _ := crossing(t, bykey.Often{}, 3, "first", "first")
	exec := func(query string) {
		_, err := s.callers.ExecContext(t.Context(), s.sql(query))
		require.NoError(t, err)
	}
	exec(`ALTER TABLE {schema}.jobs SET (autovacuum_enabled = FALSE)`)
	exec(`ALTER TABLE {schema}.keys SET (autovacuum_enabled = FALSE)`)
	exec(`ANALYZE {schema}.keys`)
	for some := range slices.Chunk(keysInTurn(10*keys, keys), store.MaxItems) {
		enqueueKeyed(t, s, 1, some...)
	}
	exec(`ANALYZE {schema}.jobs`)
	require.Len(t, claimN(t, s, 10), 10) // it makes the rows
	require.Equal(t, keys, number(t, s, `SELECT count(*) FROM {schema}.keys`))
	m := metered(t, s)
	var visited cost
	for tries, one := 0, false; !one; tries++ {
		require.Less(t, tries, 10, "no claim is across keys")
		visited = m.of(func() error {
			_, one = claimInOne(t, s, 10)
			return nil
		})
	}
	assert.Less(t, visited.rows, keys, "it visited %s", visited)
}

func finish(t *testing.T, s *Store, jobs []store.Job) {
	t.Helper()
	_, err := s.Ack(t.Context(), acksOf(jobs))
	assert.NoError(t, err)
}
