package postgres

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/internal/store"
)

// assertCounted compares what is counted of groups with their jobs.
func assertCounted(t *testing.T, s *Store) {
	t.Helper()
	type group struct {
		Name      string
		Live, Run int // live jobs, and jobs in runs of ids
	}
	groups := func(query string) (found []group) {
		require.NoError(t, s.callers.Select(&found, s.sql(query)))
		return found
	}
	assert.Equal(t, groups(`
		SELECT group_name AS name, count(*) FILTER (WHERE finished_at IS NULL) AS live, count(*) AS run
		FROM {schema}.jobs
		WHERE group_name IS NOT NULL
		GROUP BY group_name
		ORDER BY group_name`), groups(`
		SELECT name,
			coalesce((SELECT live FROM {schema}.group_counts WHERE group_counts.name = names.name), 0)
				+ coalesce((SELECT sum(live) FROM {schema}.ends WHERE ends.group_name = names.name), 0) AS live,
			(
				SELECT count(*)
				FROM {schema}.group_runs
				JOIN {schema}.jobs ON jobs.id BETWEEN first_id AND last_id AND jobs.group_name = group_runs.name
				WHERE group_runs.name = names.name
			) AS run
		FROM (
			SELECT name FROM {schema}.group_runs
			UNION
			SELECT name FROM {schema}.group_counts WHERE live <> 0
			UNION
			SELECT group_name FROM {schema}.ends WHERE group_name IS NOT NULL AND live <> 0
		) AS names (name)
		ORDER BY name`))
}

// Whatever happens to jobs of groups, and in whatever order it is committed, their counts and runs of ids are right.
func TestGroupsAreCountedRight(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var all sync.WaitGroup
	for w := range uint64(4) {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, w))
			for range 60 {
				doSomethingWithGroups(ctx, t, s, r)
			}
		})
	}
	all.Wait()
	assertCounted(t, s)
	settle(t, s)
	assertCounted(t, s)
	for _, cancels := range []bool{true, false} {
		for more := true; more; {
			remove := s.Delete
			if cancels {
				remove = s.Cancel
			}
			done, err := remove(ctx, store.Filter{Queues: []string{"*"}}, 100)
			require.NoError(t, err)
			more = len(done) > 0
		}
		assertCounted(t, s)
	}
	settle(t, s)
	for _, table := range []string{"group_runs", "group_counts", "ends", "looks", "spoils"} {
		assert.Zero(t, left(t, s, table), table)
	}
}

// doSomethingWithGroups does something with some jobs, sometimes in a caller's transaction, which sometimes is rolled back.
func doSomethingWithGroups(ctx context.Context, t *testing.T, s *Store, r *rand.Rand) {
	group := func() string { return []string{"", "a", "b", "c"}[r.IntN(4)] }
	filter := store.Filter{Queues: []string{"*"}, Group: group(), After: 1 + int64(r.IntN(300))}
	var w store.Writer = s
	end := func(bool) {}
	if r.IntN(3) == 0 {
		tx, err := s.DB().BeginTxx(ctx, nil)
		if !assert.NoError(t, err) {
			return
		}
		w = s.InTx(tx)
		end = func(commit bool) {
			finish := tx.Rollback
			if commit {
				finish = tx.Commit
			}
			assert.NoError(t, finish())
		}
	}
	var err error
	switch r.IntN(10) {
	case 0, 1, 2:
		jobs := make([]store.NewJob, 1+r.IntN(6))
		for i := range jobs {
			if jobs[i] = member(group()); r.IntN(4) == 0 {
				jobs[i].After = []store.Wait{{Group: group() + "x"}, {Group: "a"}}
				jobs[i].Group = "d"
			}
			if r.IntN(4) == 0 {
				jobs[i].UniqueKey = "k" + group()
			}
		}
		_, err = w.Enqueue(ctx, store.EnqueueRequest{Jobs: jobs})
	case 3, 4, 5:
		var claimed []store.Job
		claimed, err = s.FetchAndClaim(ctx, store.ClaimRequest{Queue: "first", Limit: 1 + r.IntN(5), Worker: "w", TTL: time.Minute})
		if len(claimed) > 0 && r.IntN(4) == 0 {
			_, err = w.NAck(ctx, []store.NAck{{Lease: claimed[0].Lease(), Form: store.Never}})
			claimed = claimed[1:]
		}
		if err == nil {
			_, err = w.Ack(ctx, acksOf(claimed))
		}
	case 6:
		_, err = s.Cancel(ctx, filter, 1+r.IntN(3))
	case 7:
		_, err = s.Requeue(ctx, filter, 1+r.IntN(3))
	case 8:
		_, err = s.Delete(ctx, filter, 1+r.IntN(3))
	case 9:
		_, err = s.Settle(ctx, 1+r.IntN(10))
	}
	stale := errors.Is(err, store.ErrStaleLease) // another call has cancelled the job
	if !stale {
		assert.NoError(t, err)
	}
	end(!stale && r.IntN(3) > 0)
}

// Jobs of groups are found in their order, however their ids lie among those of others.
func TestJobsOfGroupsLieAmongOthers(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	want := map[string][]int64{}
	for call := range 8 {
		jobs := make([]store.NewJob, 50)
		for i := range jobs {
			jobs[i] = member([]string{"", "a", "b"}[min(i*call/40, (i+call)%3)])
		}
		added, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: jobs})
		require.NoError(t, err)
		for i, a := range added {
			want[jobs[i].Group] = append(want[jobs[i].Group], a.ID)
		}
	}
	_, err := s.Cancel(t.Context(), store.Filter{IDs: want["a"][10:20]}, 10)
	require.NoError(t, err)
	assertCounted(t, s)
	for _, group := range []string{"a", "b"} {
		var listed []int64
		for page := (store.Page{Limit: 7}); ; {
			found, err := s.List(t.Context(), store.Filter{Group: group}, page)
			require.NoError(t, err)
			for _, j := range found.Jobs {
				listed = append(listed, j.ID)
			}
			if page.Cursor = found.Next; page.Cursor == "" {
				break
			}
		}
		slices.Reverse(listed)
		assert.Equal(t, want[group], listed)
		counts, err := s.Count(t.Context(), store.Filter{Group: group})
		require.NoError(t, err)
		var n int64
		for _, some := range counts.Queues[0].Jobs {
			n += some
		}
		assert.EqualValues(t, len(listed), n)
	}
	cancelled, err := s.List(t.Context(), store.Filter{Group: "a", States: []store.State{store.Cancelled}}, store.Page{Limit: 100})
	require.NoError(t, err)
	assert.Len(t, cancelled.Jobs, 10)
}

// Two calls delete the last two jobs of a run of ids at the same time. The second one deletes the run.
func TestLastJobsOfARunAreDeletedAtOnce(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	added, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{member("g"), member("g")}})
	require.NoError(t, err)
	ids := []int64{added[0].ID, added[1].ID}
	_, err = s.Cancel(t.Context(), store.Filter{IDs: ids}, 2)
	require.NoError(t, err)
	settle(t, s)
	first, err := s.begin(t.Context(), s.with.bulk)
	require.NoError(t, err)
	_, err = first.operate(store.Filter{IDs: ids[:1]}, 1, ifTerminal, &deleting{})
	require.NoError(t, err)
	second := make(chan error, 1)
	go func() {
		_, err := s.Delete(context.WithoutCancel(t.Context()), store.Filter{IDs: ids[1:]}, 1)
		second <- err
	}()
	require.Eventually(t, func() bool {
		var blocked bool
		err := s.callers.Get(&blocked, `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND pid IN (SELECT pid FROM pg_stat_activity WHERE query LIKE '%'||$1||'%.group_runs%FOR UPDATE%'))`,
			s.options.Schema)
		return err == nil && blocked
	}, time.Minute, time.Millisecond, "the second call does not wait for the first")
	require.NoError(t, first.commit())
	first.end(nil)
	require.NoError(t, <-second)
	assert.Zero(t, left(t, s, "group_runs"))
	assertCounted(t, s)
}

// The question after an Ack, whether its group is done, visits as much as before if a snapshot keeps what was counted.
func TestGroupsUnderAHeldSnapshot(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{member("g"), ofGroup("g")}})
	require.NoError(t, err)
	settle(t, s)
	t.Cleanup(holdSnapshot(t, s))
	m := metered(t, s)
	ask := func() cost {
		return m.of(func() error {
			_, bits, err := s.exist(t.Context(), existToTell, arrayOfTexts([]string{"g"}), int64(math.MaxInt64))
			assert.Zero(t, bits)
			return err
		})
	}
	before := ask()
	const calls = 30_000
	_, err = s.callers.ExecContext(t.Context(), s.sql(`
		INSERT INTO {schema}.ends (job_id, token, ended_as, group_name)
		SELECT 0, 0, '', 'g'
		FROM generate_series(1, $1)`), calls)
	require.NoError(t, err)
	settle(t, s)
	require.Zero(t, left(t, s, "ends"))
	after := ask()
	all := m.of(func() error {
		_, err := read(t.Context(), s, nil, func(t *txn) (map[string]store.GroupStatus, error) { return t.statuses([]string{"g"}) })
		return err
	})
	figures.Print(t, "The question whether a group is done visits %d pages at first, and %d after %d calls under a held snapshot; to read all rows, it would be %d",
		before.pages, after.pages, calls, all.pages)
	assert.Greater(t, all.pages, 300, "what was counted is kept by the snapshot")
	assert.Less(t, after.pages, 60)
	assertCounted(t, s)
}

// A schema 11 has groups of which nothing is counted, and changes that nobody has been told of.
func TestSchema11IsCounted(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	jobs := []store.NewJob{ofGroup("a")}
	for i := range 30 {
		jobs = append(jobs, member([]string{"", "a", "b"}[i/2%3]))
	}
	added, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: jobs})
	require.NoError(t, err)
	_, err = s.Cancel(t.Context(), store.Filter{Group: "b"}, 3)
	require.NoError(t, err)
	_, err = s.Delete(t.Context(), store.Filter{Group: "b"}, 2)
	require.NoError(t, err)
	_, err = s.Ack(t.Context(), claimFirst(t, s, 10))
	require.NoError(t, err)
	require.NotZero(t, left(t, s, "ends"))
	for _, statement := range []string{
		`DROP TABLE {schema}.group_runs, {schema}.group_counts`,
		`DROP INDEX {schema}.jobs_group_dead`,
		`ALTER TABLE {schema}.ends DROP COLUMN live`,
		`DROP INDEX {schema}.ends_group`,
		`CREATE INDEX jobs_group ON {schema}.jobs (group_name, unleased_state, (CASE WHEN finished_at IS NULL THEN 1 ELSE 0 END), id)
			WHERE group_name IS NOT NULL`,
		`DROP FUNCTION {schema}.hint(), {schema}.next_slot CASCADE`,
		`DROP SEQUENCE {schema}.turns`,
		`DROP TABLE {schema}.slots, {schema}.keys, {schema}.hints, {schema}.ordered, {schema}.claims`,
		`ALTER TABLE {schema}.jobs DROP COLUMN limit_key`,
		`ALTER TABLE {schema}.queues DROP COLUMN max_in_flight, DROP COLUMN limit_version, DROP COLUMN counted, DROP COLUMN first_slot,
			DROP COLUMN max_per_key, DROP COLUMN keys_known, DROP COLUMN rate_n, DROP COLUMN rate_per, DROP COLUMN fair, DROP COLUMN ordered`,
		`ALTER TABLE {schema}.policies DROP COLUMN max_in_flight, DROP COLUMN max_per_key, DROP COLUMN rate_n, DROP COLUMN rate_per,
				DROP COLUMN owner, DROP COLUMN declared, DROP COLUMN fair, DROP COLUMN ordered`,
		`DELETE FROM {schema}.migrations WHERE name IN ('group_runs', 'limits', 'keys', 'rates', 'fair', 'ordered', 'triggers', 'next_slot', 'policy_once', 'lz4')`,
	} {
		_, err := s.DB().ExecContext(t.Context(), s.sql(statement))
		require.NoError(t, err)
	}
	s = openStore(t, Options{Schema: s.options.Schema})
	assertCounted(t, s)
	settle(t, s)
	assertCounted(t, s)
	in(t, s, store.Blocked, "while a job of its group lives", added[0].ID)
	_, err = s.Ack(t.Context(), claimFirst(t, s, 17))
	require.NoError(t, err)
	in(t, s, store.Ready, "after all jobs of its group", added[0].ID)
	assertCounted(t, s)
}

// A transaction ends the last job of a group, and many calls note changes of it and are counted before it commits. It still sees that the group
// is done.
func TestASlowTransactionEndsTheLastJob(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	added, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{member("g"), ofGroup("g")}})
	require.NoError(t, err)
	settle(t, s)
	slow, err := s.begin(t.Context(), s.with.write)
	require.NoError(t, err)
	_, err = slow.ack(claimFirst(t, s, 1))
	require.NoError(t, err)
	_, err = s.callers.ExecContext(t.Context(), s.sql(`
		INSERT INTO {schema}.ends (job_id, token, ended_as, group_name)
		SELECT 0, 0, '', 'g'
		FROM generate_series(1, $1)`), 2*nearNumbers)
	require.NoError(t, err)
	settle(t, s)
	require.NoError(t, slow.commit())
	slow.end(nil)
	require.Equal(t, 1, left(t, s, "ends"))
	s.followGroups(t.Context(), slow.left, math.MaxInt64)
	in(t, s, store.Blocked, "of the group, if the row is overlooked", added[1].ID)
	s.followGroups(t.Context(), slow.left, slow.leftFrom)
	in(t, s, store.Ready, "of the group that is done", added[1].ID)
}

// A page of a large group, a call that changes some of its jobs, and the count of a small one visit few rows, whatever the server knows of the
// tables.
func TestGroupsAreFoundByTheirRuns(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	crowd{queue: "q", state: store.Ready, due: longAgo}.add(t, s, 100_000)
	_, err := s.callers.ExecContext(t.Context(), s.sql(`
		UPDATE {schema}.jobs SET group_name = CASE WHEN id % 5000 < 4000 THEN 'large' WHEN id BETWEEN 54100 AND 54119 THEN 'small' END;
		INSERT INTO {schema}.group_runs (name, first_id, last_id)
		SELECT group_name, min(id), max(id)
		FROM {schema}.jobs
		WHERE group_name IS NOT NULL
		GROUP BY group_name, id / 500`))
	require.NoError(t, err)
	m := metered(t, s)
	for _, known := range []string{`SELECT`, `ANALYZE {schema}.jobs, {schema}.group_runs`} {
		_, err := s.callers.ExecContext(t.Context(), s.sql(known))
		require.NoError(t, err)
		large := store.Filter{Group: "large"}
		for what, call := range map[string]func() error{
			"a page": func() error {
				large.States = []store.State{store.Ready}
				page, err := s.List(t.Context(), large, store.Page{Limit: 10, Cursor: large.Cursor(45_001)})
				assert.Len(t, page.Jobs, 10)
				return err
			},
			"a change": func() error {
				done, err := s.Reschedule(t.Context(), store.Filter{Group: "large", After: 43_900}, time.Now(), 10)
				assert.Len(t, done, 10)
				return err
			},
			"a count": func() error {
				counts, err := s.Count(t.Context(), store.Filter{Group: "small"})
				assert.EqualValues(t, 20, counts.Queues[0].Jobs[store.Ready])
				return err
			},
		} {
			visited := m.of(call)
			t.Logf("%s, after %s: %v", what, known, visited)
			assert.Less(t, visited.rows, 1000, "rows visited by %s, after %s", what, known)
		}
	}
}
