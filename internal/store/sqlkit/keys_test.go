package sqlkit

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// table has the waiting jobs of keys, all of one lane and priority, with ids that rise.
type table map[string][]int64

// claim chooses among the jobs of all keys, as a claim does that can not lock some of them, and returns the ids and the rows.
func (jobs table) claim(t *testing.T, most, limit int, locked ...int64) (ids []int64, rows []KeyRow) {
	t.Helper()
	k := NewKeys(most, time.UnixMicro(1_000_000))
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
		chosen, enough := k.Choose(limit, 0, nil)
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
