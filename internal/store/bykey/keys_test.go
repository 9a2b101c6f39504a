package bykey

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// table has the waiting jobs of keys, all of one lane and priority, with ids that rise.
type table map[string][]int64

// claim chooses among the jobs of all keys, as a claim does that can not lock some of them, and returns the ids and the rows.
func (jobs table) claim(t *testing.T, most, limit int, locked ...int64) (ids []int64, rows []Row) {
	t.Helper()
	k := NewKeys(store.Policy{MaxPerKey: most}, time.UnixMicro(1_000_000))
	for name := range jobs {
		require.NoError(t, k.Add(name, ""))
		k.Hint(Line{Key: name, At: 1})
	}
	read := func() {
		for _, l := range k.Unread(limit) {
			for _, id := range jobs[l.Key][:min(l.Want, len(jobs[l.Key]))] {
				l.Read(Waiting{At: id, ID: id})
			}
		}
	}
	for range 100 {
		read()
		chosen, enough := k.Choose(limit, 0)
		if !enough {
			continue
		}
		var skipped []Waiting
		for _, w := range chosen {
			for _, id := range locked {
				if w.ID == id {
					skipped = append(skipped, w)
				}
			}
		}
		if k.Skip(skipped); len(skipped) > 0 {
			continue
		}
		for _, w := range chosen {
			ids = append(ids, w.ID)
		}
		rows, err := k.Rows(chosen)
		require.NoError(t, err)
		return ids, rows
	}
	t.Fatal("the claim reads the same jobs again and again")
	return nil, nil
}

// A claim that knows too few jobs of a key reads more, until it has all that it may take.
func TestClaimReadsJobsOfKeysUntilItHasEnough(t *testing.T) {
	t.Parallel()
	jobs := table{}
	for id := range int64(50) {
		jobs["a"] = append(jobs["a"], id+1)
	}
	for i := range int64(28) {
		jobs[fmt.Sprint("b", i)] = []int64{1000 + i}
	}
	ids, _ := jobs.claim(t, 10, 100)
	assert.Len(t, ids, 38)
	assert.Equal(t, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1000}, ids[:11])
}

// Jobs that somebody else has locked are replaced by others, and their key stands with them as before.
func TestLockedJobsAreReplaced(t *testing.T) {
	t.Parallel()
	jobs := table{"a": {1, 2, 3, 4, 5, 6, 7, 8, 9}, "b": {10, 11}}
	ids, rows := jobs.claim(t, 2, 3, 1, 2, 3, 4, 5, 6)
	assert.Equal(t, []int64{7, 8, 10}, ids)
	require.Len(t, rows, 2)
	assert.Nil(t, rows[0].Fresh, "it is full")
	assert.JSONEq(t, `{"taken":[7,8],"lines":[{"at":1,"id":1}]}`, rows[0].State)
	assert.Equal(t, &Place{Level: 9, At: 11, ID: 11}, rows[1].Fresh)
}

// A rotation is a fair queue whose jobs are those of a table, and whose keys keep their rows from one claim to the next.
type rotation struct {
	jobs   table
	rows   map[string]Row
	claims int64
}

// claim reads the keys that stand in pages, as the stores do.
func (r *rotation) claim(t *testing.T, limit int) (ids []int64) {
	t.Helper()
	r.claims++
	k := NewKeys(store.Policy{Fair: true}, time.UnixMicro(1_000_000))
	k.Number(r.claims)
	for name, jobs := range r.jobs {
		if _, known := r.rows[name]; !known && len(jobs) > 0 {
			require.NoError(t, k.Add(name, ""))
			k.Hint(Line{Key: name, At: 1})
		}
	}
	var chosen []Waiting
	for reads := 0; k.More(limit, 0, chosen); reads++ {
		require.Less(t, reads, 100)
		from, _, n := k.From()
		for _, row := range r.standing(from, n) {
			k.Stands(false, *row.Fresh)
			require.NoError(t, k.Add(row.Name, row.State))
		}
		k.Stood()
		for enough := false; !enough; {
			for _, l := range k.Unread(limit) {
				for _, id := range r.jobs[l.Key][:min(l.Want, len(r.jobs[l.Key]))] {
					l.Read(Waiting{At: id, ID: id})
				}
			}
			chosen, enough = k.Choose(limit, 0)
		}
	}
	rows, err := k.Rows(chosen)
	require.NoError(t, err)
	for _, row := range rows {
		if r.rows[row.Name] = row; row.State == "" {
			delete(r.rows, row.Name)
		}
	}
	for _, w := range chosen {
		ids = append(ids, w.ID)
		for name, jobs := range r.jobs {
			r.jobs[name] = slices.DeleteFunc(jobs, func(id int64) bool { return id == w.ID })
		}
	}
	return ids
}

// standing returns the next n rows that stand behind a place.
func (r *rotation) standing(from Place, n int) []Row {
	var rows []Row
	for _, row := range r.rows {
		if row.Fresh != nil && row.Fresh.compare(from) > 0 {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b Row) int { return a.Fresh.compare(*b.Fresh) })
	return rows[:min(n, len(rows))]
}

// Keys take turns, whether a claim takes one job or many.
func TestKeysTakeTurns(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 2, 3, 5, 100} {
		r := &rotation{table{"a": {1, 2, 3, 4, 5, 6}, "b": {10, 11, 12}, "c": {20}}, map[string]Row{}, 0}
		var all []int64
		for range 10 {
			all = append(all, r.claim(t, limit)...)
		}
		assert.Equal(t, []int64{1, 10, 20, 2, 11, 3, 12, 4, 5, 6}, all, "claims of %d", limit)
		assert.Empty(t, r.rows, "no key is left")
	}
}

// A key that comes later has its turn behind the others, and before any of them has two.
func TestNewKeyComesBehindTheOthers(t *testing.T) {
	t.Parallel()
	r := &rotation{table{"a": {11, 12, 13, 14}, "b": {21, 22, 23, 24}}, map[string]Row{}, 0}
	assert.Equal(t, []int64{11, 21, 12}, r.claim(t, 3))
	r.jobs["c"] = []int64{1, 2}
	assert.Equal(t, []int64{22, 13, 1, 23, 14}, r.claim(t, 5))
	assert.Equal(t, []int64{2, 24}, r.claim(t, 5))
}

// Jobs that somebody else has locked do not end the turn of their key.
func TestLockedJobsEndNoTurn(t *testing.T) {
	t.Parallel()
	k := NewKeys(store.Policy{Fair: true}, time.UnixMicro(1_000_000))
	k.Number(1)
	for _, name := range []string{"a", "b"} {
		require.NoError(t, k.Add(name, ""))
		k.Hint(Line{Key: name, At: 1})
	}
	jobs := table{"a": {1, 2, 3, 4}, "b": {10, 11}}
	choose := func() (ids []int64, chosen []Waiting) {
		for enough := false; !enough; {
			for _, l := range k.Unread(4) {
				for _, id := range jobs[l.Key][:min(l.Want, len(jobs[l.Key]))] {
					l.Read(Waiting{At: id, ID: id})
				}
			}
			chosen, enough = k.Choose(4, 0)
		}
		for _, w := range chosen {
			ids = append(ids, w.ID)
		}
		return ids, chosen
	}
	ids, chosen := choose()
	assert.Equal(t, []int64{1, 10, 2, 11}, ids)
	k.Skip(chosen[:1])
	ids, _ = choose()
	assert.Equal(t, []int64{2, 10, 3, 11}, ids)
}

// Jobs without a key that are not found by key have turns as those of a key, and keep those of a priority when none of it was found.
func TestOthersTakeTurns(t *testing.T) {
	t.Parallel()
	state := ""
	claim := func(number, turnOfA int64, others ...Waiting) (ids []int64) {
		k := NewKeys(store.Policy{Fair: true}, time.UnixMicro(1_000_000))
		k.Number(number)
		require.NoError(t, k.Add("", state))
		require.NoError(t, k.Add("a", fmt.Sprintf(`{"lines":[{"at":10,"id":10,"turn":%d}]}`, turnOfA)))
		k.AddOthers(others)
		for _, l := range k.Unread(10) {
			for id := range int64(2) {
				l.Read(Waiting{At: 10 + id, ID: 10 + id})
			}
		}
		chosen, enough := k.Choose(2, 0)
		require.True(t, enough)
		for _, w := range chosen {
			ids = append(ids, w.ID)
		}
		rows, err := k.Rows(chosen)
		require.NoError(t, err)
		require.Empty(t, rows[0].Name)
		require.Nil(t, rows[0].Fresh, "they stand nowhere")
		state = rows[0].State
		return ids
	}
	low, high := []Waiting{{At: 2, ID: 2}, {At: 1, ID: 1}, {At: 3, ID: 3}}, []Waiting{{At: 4, ID: 4, Priority: 5}, {At: 5, ID: 5, Priority: 5}}
	const ofClaim2 = 2*TurnsOfClaim + 1
	assert.Equal(t, []int64{10, 1}, claim(1, 1, low...))
	assert.Equal(t, []int64{4, 5}, claim(3, ofClaim2, high...))
	assert.Equal(t, []int64{1, 10}, claim(4, ofClaim2, low...), "the turn of claim 1 comes first")
	assert.Equal(t, []int64{10, 1}, claim(5, ofClaim2, low...), "that of claim 4 does not")
}

// Keys are read from place to place, so no two may stand in the same one: not at the job behind the last one that a claim has taken, nor where a hint says
// that a job waited which does not.
func TestNoTwoKeysStandInOnePlace(t *testing.T) {
	t.Parallel()
	k := NewKeys(store.Policy{MaxPerKey: 9}, time.UnixMicro(1_000_000))
	for name, ids := range map[string][]int64{"a": {1, 2, 3}, "b": {4, 5, 6}} {
		require.NoError(t, k.Add(name, ""))
		k.Hint(Line{Key: name, At: 1})
		for _, l := range k.Unread(2) {
			for _, id := range ids[:l.Want] {
				l.Read(Waiting{At: 7, ID: id})
			}
		}
	}
	chosen, enough := k.Choose(3, 0)
	require.True(t, enough)
	require.Len(t, chosen, 3)
	rows, err := k.Rows(chosen)
	require.NoError(t, err)
	require.Len(t, rows, 2)
	assert.Equal(t, []Place{placeOf(0, 7, 3), placeOf(0, 7, 4)}, []Place{*rows[0].Fresh, *rows[1].Fresh}, "a has no more jobs, as far as is known")

	k = NewKeys(store.Policy{Fair: true}, time.UnixMicro(1_000_000))
	require.NoError(t, k.Add("a", ""))
	k.Hint(Line{Key: "a", At: 1})
	require.Len(t, k.Unread(1), 1)
	rows, err = k.Rows(nil)
	require.NoError(t, err)
	assert.Equal(t, []Row{{Name: "a"}}, rows, "a key without jobs")
}
