package sqlite

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// checkRuns asserts that the runs of groups have the jobs of these and no others, that no job is in two, and that none is empty.
func checkRuns(t testing.TB, s *Store) {
	t.Helper()
	for what, query := range map[string]string{
		"jobs that are not in one run of their group": `
			SELECT count(*)
			FROM jobs
			WHERE (SELECT count(*) FROM group_runs WHERE id BETWEEN first_id AND last_id) <> (group_name IS NOT NULL)
				OR group_name <> (SELECT name FROM group_runs WHERE id BETWEEN first_id AND last_id)`,
		"runs without jobs": `
			SELECT count(*)
			FROM group_runs
			WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE id BETWEEN first_id AND last_id)`,
	} {
		var wrong int
		require.NoError(t, s.readers.db.Get(&wrong, query))
		require.Zero(t, wrong, what)
	}
}

// runs is how many runs the store has.
func runs(t *testing.T, s *Store) (n int) {
	t.Helper()
	require.NoError(t, s.DB().Get(&n, `SELECT count(*) FROM group_runs`))
	return n
}

// members returns jobs in the groups.
func members(groups ...string) []store.NewJob {
	jobs := make([]store.NewJob, len(groups))
	for i, name := range groups {
		jobs[i] = newJob()
		jobs[i].Group = name
	}
	return jobs
}

// listed returns the ids of the jobs that match, read by pages of so many.
func listed(t *testing.T, s *Store, filter store.Filter, limit int) (ids []int64) {
	t.Helper()
	for page := (store.Page{Limit: limit}); ; {
		part, err := s.List(t.Context(), filter, page)
		require.NoError(t, err)
		for _, j := range part.Jobs {
			ids = append(ids, j.ID)
		}
		if page.Cursor = part.Next; page.Cursor == "" {
			return ids
		}
	}
}

// Whatever happens to the jobs of groups, each list has those of its group, in the order of the ids.
func TestRunsHaveTheJobsOfTheirGroups(t *testing.T) {
	s := newStore(t)
	random := rand.New(rand.NewPCG(1, 2))
	names := []string{"", "a", "b", `a "c" 'd'`}
	groupOf := map[int64]string{}
	for range 60 {
		var chosen []string
		for name := ""; len(chosen) < 1+random.IntN(20); chosen = append(chosen, name) {
			if random.IntN(3) == 0 {
				name = names[random.IntN(len(names))]
			}
		}
		added, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: members(chosen...)})
		require.NoError(t, err)
		for i, a := range added {
			groupOf[a.ID] = chosen[i]
		}
		var gone []int64
		for id := range groupOf {
			if random.IntN(4) == 0 {
				gone = append(gone, id)
			}
		}
		if len(gone) > 0 {
			_, err = s.Cancel(t.Context(), store.Filter{IDs: gone}, len(gone))
			require.NoError(t, err)
			_, err = s.Delete(t.Context(), store.Filter{IDs: gone}, len(gone))
			require.NoError(t, err)
		}
		for _, id := range gone {
			delete(groupOf, id)
		}
		checkRuns(t, s)
		checkLists(t, s, groupOf, names[1:], random)
	}
}

// checkLists asserts that the lists of groups have the jobs of these above an id.
func checkLists(t *testing.T, s *Store, groupOf map[int64]string, names []string, random *rand.Rand) {
	t.Helper()
	for _, name := range names {
		after := random.Int64N(200)
		var want []int64
		for id, group := range groupOf {
			if group == name && id > after {
				want = append(want, id)
			}
		}
		slices.Sort(want)
		slices.Reverse(want)
		filter := store.Filter{Group: name, After: after}
		require.Equal(t, want, listed(t, s, filter, 1+random.IntN(10)), "group %q above %d", name, after)
		counts, err := s.Count(t.Context(), filter)
		require.NoError(t, err)
		n := int64(0)
		for _, q := range counts.Queues {
			n += q.Jobs[store.Ready]
		}
		require.EqualValues(t, len(want), n)
		page, err := s.Groups(t.Context(), store.GroupFilter{Name: name}, store.Page{Limit: 1})
		require.NoError(t, err)
		require.Equal(t, slices.Contains(listedGroups(groupOf), name), len(page.Groups) == 1, "group %q exists while it has jobs", name)
	}
}

func listedGroups(groupOf map[int64]string) (names []string) {
	for _, name := range groupOf {
		names = append(names, name)
	}
	return names
}

// However jobs come into a group, a run is as long as it can be.
func TestRunsAreLong(t *testing.T) {
	s := newStore(t)
	add := func(groups ...string) {
		t.Helper()
		_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: members(groups...)})
		require.NoError(t, err)
	}
	add(slices.Repeat([]string{"a"}, 100)...)
	for range 3 {
		add("a")
	}
	assert.Equal(t, 1, runs(t, s), "jobs that follow the others of their group")
	add("b")
	add("a", "a", "b")
	assert.Equal(t, 4, runs(t, s), "jobs between which others lie")
	checkRuns(t, s)

	_, err := s.Cancel(t.Context(), store.Filter{Group: "a"}, 1000)
	require.NoError(t, err)
	_, err = s.Delete(t.Context(), store.Filter{Group: "a"}, 1000)
	require.NoError(t, err)
	assert.Equal(t, 2, runs(t, s), "those of the other group")
	var left []string
	require.NoError(t, s.DB().Select(&left, `SELECT name FROM groups`))
	assert.Equal(t, []string{"b"}, left)
}

// The step that makes runs of the jobs of groups leaves out ids that are gone.
func TestStepToRunsOfGroups(t *testing.T) {
	path := newPath(t)
	before := openAt(t, path, nil)
	added, err := before.Enqueue(t.Context(), store.EnqueueRequest{Jobs: members("a", "a", "b", "a", "", "b", "b", "b")})
	require.NoError(t, err)
	filter := store.Filter{IDs: []int64{added[6].ID}}
	for _, end := range []func() ([]store.Outcome, error){
		func() ([]store.Outcome, error) { return before.Cancel(t.Context(), filter, 1) },
		func() ([]store.Outcome, error) { return before.Delete(t.Context(), filter, 1) },
	} {
		_, err := end()
		require.NoError(t, err)
	}
	_, err = before.DB().Exec(`
		DROP TABLE group_runs;
		CREATE INDEX jobs_group ON jobs (group_name, id) WHERE group_name IS NOT NULL;
		DROP TABLE keys;
		DROP TABLE hints;
		DROP INDEX jobs_ready_by_key;
		DROP INDEX jobs_retrying_by_key;
		DROP INDEX jobs_in_flight_by_key;
		ALTER TABLE jobs DROP COLUMN limit_key;
		ALTER TABLE policies DROP COLUMN max_in_flight;
		ALTER TABLE policies DROP COLUMN max_per_key;
		DROP TABLE claims;
		ALTER TABLE policies DROP COLUMN rate_n;
		ALTER TABLE policies DROP COLUMN rate_per;
		ALTER TABLE policies DROP COLUMN owner;
		ALTER TABLE policies DROP COLUMN declared;
		ALTER TABLE policies DROP COLUMN fair;
		ALTER TABLE queues DROP COLUMN turns;
		DROP INDEX workers_beat_at;
		DROP TABLE ordered;
		ALTER TABLE policies DROP COLUMN ordered;
		DELETE FROM migrations WHERE name IN ('group_runs', 'limits', 'keys', 'rates', 'fair', 'silent', 'ordered', 'in_flight_by_key')`)
	require.NoError(t, err)
	require.NoError(t, before.Close())

	after := openAt(t, path, nil)
	checkRuns(t, after)
	assert.Equal(t, 5, runs(t, after))
	assert.Equal(t, []int64{added[7].ID, added[5].ID, added[2].ID}, listed(t, after, store.Filter{Group: "b"}, 2))
}

// A page of a group's jobs costs as much as it has jobs, wherever it lies, and whatever lies between the runs.
func TestListOfGroupReadsItsJobsAlone(t *testing.T) {
	s := openAt(t, newPath(t), &Options{Synchronous: Normal})
	var ids []int64
	for i := range 20 {
		added, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: members(slices.Repeat([]string{"g"}, 1000)...)})
		require.NoError(t, err)
		ids = append(ids, added[0].ID)
		if i%2 == 0 {
			crowd(t, s, 5000, store.Ready, 0, s.now.get().UnixMicro(), nil, nil)
		}
	}
	for i, id := range ids {
		visited := pages(t, s, func(tx *txn) error {
			page, err := tx.list(store.Filter{Group: "g"}, store.Page{Limit: 100, Cursor: "some"}, id+500)
			assert.Len(t, page.Jobs, 100)
			return err
		})
		assert.Less(t, visited, 300, "pages visited by a list in run %d", i)
		visited = pages(t, s, func(tx *txn) error {
			looked, err := operateMatching(tx, store.Filter{Group: "g", After: id + 499}, 100, `finished_at IS NULL`, look)
			assert.Len(t, looked, 100)
			return err
		})
		assert.Less(t, visited, 300, "pages visited by a change of many in run %d", i)
	}
}

// look changes nothing.
func look(*txn, *store.Record) (store.Outcome, error) { return store.Outcome{}, nil }
