package postgres

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
)

// TestSearchFindsTheFirst compares pages and bulk calls with a look at every job, over all ways that a search can go.
func TestSearchFindsTheFirst(t *testing.T) {
	s := openStore(t, Options{Timeout: time.Minute}) // a look at every job takes long under the race detector on a busy machine
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var sorts []crowd
	for _, queue := range []string{"a", "b", "c"} {
		sorts = append(sorts, sought(queue)...)
		sorts = append(sorts, crowd{queue: queue, state: store.Succeeded, due: longAgo, finished: lately})
	}
	for range 100 { // in a different mixture everywhere, and with more than are sorted by age
		sorts[random.IntN(len(sorts))].add(t, s, 1+random.IntN(300))
	}
	sorts[3].add(t, s, 2*fewOld)
	_, err := s.db.ExecContext(t.Context(), s.sql(`
		UPDATE {schema}.jobs
		SET kind = CASE WHEN id % 5 = 0 THEN 'rare' ELSE 'k' END,
			worker = CASE WHEN id % 7 = 0 THEN 'w' ELSE '' END,
			tags = CASE WHEN id % 3 = 0 THEN '["x", "y"]' END,
			unique_key = CASE WHEN id % 11 = 0 THEN 'key' ELSE '' END`))
	require.NoError(t, err)
	within := func(f func(tn *txn)) {
		_, err := once(t.Context(), s, s.with.bulk, func(tn *txn) (struct{}, error) {
			f(tn)
			return struct{}{}, nil
		})
		require.NoError(t, err)
	}
	var all []*store.Record
	within(func(tn *txn) {
		all, err = tn.records(`SELECT` + columns + ` FROM {schema}.jobs ORDER BY id`)
		require.NoError(t, err)
	})
	t.Logf("%d jobs", len(all))
	filters := 150
	if race.Enabled {
		filters = 30
	}
	for range filters {
		f, limit := anyFilter(random, all), 1+random.IntN(300)
		within(func(tn *txn) {
			for _, can := range []condition{ifAny, ifLive, ifWaiting, ifTerminal} {
				found, err := tn.lock(tn.find(f, limit, can, cursor.Position{}))
				require.NoError(t, err)
				require.Equal(t, firstOf(all, f, tn.now, limit, can), idsOf(found), "jobs of %+v, %q, at most %d", f, can, limit)
			}
		})
		pages := []int64{}
		page := store.Page{Limit: limit}
		for n := 0; n == 0 || n < 3 && page.Cursor != ""; n++ {
			got, err := s.List(t.Context(), f, page)
			require.NoError(t, err)
			for _, j := range got.Jobs {
				pages = append(pages, j.ID)
			}
			page.Cursor = got.Next
		}
		within(func(tn *txn) {
			want := firstOf(all, f, tn.now, len(all), ifAny)
			slices.Reverse(want)
			require.Equal(t, want[:min(len(want), 3*limit)], pages, "jobs on pages of %d of %+v", limit, f)
			require.Equal(t, len(want) > 3*limit, page.Cursor != "", "whether there is a fourth page of %d of %+v", limit, f)
		})
	}
}

// TestBulkGoesOnBehindOthers lets another session delete the first jobs while a call waits for them: the first ones are
// others then.
func TestBulkGoesOnBehindOthers(t *testing.T) {
	s := openStore(t, Options{})
	crowd{queue: "q", state: store.Succeeded, due: longAgo, finished: longAgo}.add(t, s, 100)
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), s.sql(`DELETE FROM {schema}.jobs WHERE id IN (SELECT id FROM {schema}.jobs ORDER BY id LIMIT 10)`))
	require.NoError(t, err)
	var deleted []store.Outcome
	var failed error
	var call sync.WaitGroup
	call.Go(func() { deleted, failed = s.Delete(t.Context(), store.Filter{Queue: "q"}, 15) })
	waits := func() bool {
		var n int
		require.NoError(t, s.callers.Get(&n, `
			SELECT count(*)
			FROM pg_stat_activity
			WHERE application_name = $1 AND wait_event_type = 'Lock'`, s.options.Schema))
		return n > 0
	}
	for end := time.Now().Add(4 * time.Second); !waits() && time.Now().Before(end); {
		runtime.Gosched()
	}
	require.NoError(t, tx.Commit())
	call.Wait()
	require.NoError(t, failed)
	require.Len(t, deleted, 15)
	assert.EqualValues(t, 11, deleted[0].ID)
	assert.EqualValues(t, 25, deleted[14].ID)
}

// anyFilter has some of its fields set.
func anyFilter(random *rand.Rand, all []*store.Record) store.Filter {
	var f store.Filter
	some := func(n int) bool { return random.IntN(n) == 0 }
	if some(2) {
		f.Queue = []string{"a", "b", "c", "none"}[random.IntN(4)]
	}
	for some(4) {
		f.Queues = append(f.Queues, []string{"a", "a*", "b*", "b", "*", "_", "%*", "none*"}[random.IntN(8)])
	}
	for some(2) {
		states := append([]store.State{store.Failed}, store.Phases...)
		f.States = append(f.States, states[random.IntN(len(states))])
	}
	if some(3) {
		f.FinishedFor = []time.Duration{time.Hour, 24 * time.Hour, 100 * 24 * time.Hour}[random.IntN(3)]
	}
	if some(4) {
		f.After = all[random.IntN(len(all))].ID
	}
	if some(6) {
		f.Kind = "rare"
	}
	if some(6) {
		f.Worker = "w"
	}
	if some(6) {
		f.Tag = "y"
	}
	if some(8) {
		f.UniqueKey = "key"
	}
	if some(10) {
		for range 100 {
			f.IDs = append(f.IDs, all[random.IntN(len(all))].ID)
		}
	}
	return f
}

// firstOf are the ids of the first jobs that match and can be changed.
func firstOf(all []*store.Record, f store.Filter, now time.Time, limit int, can condition) []int64 {
	ids := []int64{}
	for _, e := range all {
		possible := can == ifAny || e.Terminal() == (can == ifTerminal) && (can != ifWaiting || e.State != store.InFlight && e.State != store.Blocked)
		if possible && f.Matches(e.Job, now) && len(ids) < limit {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

func idsOf(records []*store.Record) []int64 {
	ids := []int64{}
	for _, e := range records {
		ids = append(ids, e.ID)
	}
	return ids
}
