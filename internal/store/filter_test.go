package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFilterMatchesEveryFieldThatIsSet(t *testing.T) {
	job := Job{
		ID: 7, Queue: "q", Kind: "k", Tags: []string{"a", "b"}, Worker: "w", UniqueKey: "u",
		State: Failed, FinishedAt: noon,
	}
	for _, f := range []Filter{
		{}, {IDs: []int64{1, 7}}, {After: 6}, {Queue: "q"}, {Kind: "k"}, {Tag: "b"}, {Worker: "w"}, {UniqueKey: "u"},
		{States: []State{Ready, Dead}}, {States: []State{Failed}}, {FinishedFor: time.Hour},
	} {
		assert.True(t, f.Matches(job, noon.Add(time.Hour)), "%+v", f)
	}
	for _, f := range []Filter{
		{IDs: []int64{1}}, {After: 7}, {Queue: "x"}, {Kind: "x"}, {Tag: "x"}, {Worker: "x"}, {UniqueKey: "x"},
		{States: []State{Retrying}}, {States: []State{Ready}}, {FinishedFor: time.Hour + Resolution}, {Queue: "q", Kind: "x"},
	} {
		assert.False(t, f.Matches(job, noon.Add(time.Hour)), "%+v", f)
	}
	assert.False(t, Filter{FinishedFor: 1}.Matches(Job{State: Ready}, noon), "only terminal jobs are finished")
}

func TestFilterIsEmptyWithAfterAlone(t *testing.T) {
	assert.True(t, Filter{After: 5}.Empty())
	assert.False(t, Filter{FinishedFor: 1}.Empty())
	assert.ErrorIs(t, Filter{After: 5}.CheckBulk(1), ErrInvalid)
	assert.NoError(t, Filter{IDs: []int64{1}}.CheckBulk(1))
	assert.ErrorIs(t, Filter{States: []State{"lost"}}.Check(), ErrInvalid)
}

func TestCursorsBelongToTheirFilter(t *testing.T) {
	one, other := Filter{Queue: "q"}, Filter{Kind: "q"}
	id, err := one.Position(one.Cursor(42))
	require.NoError(t, err)
	assert.Equal(t, int64(42), id)
	none, empty := Filter{}, Filter{IDs: []int64{}, States: []State{}}
	assert.Equal(t, none.Cursor(1), empty.Cursor(1), "empty is not set")
	for _, cursor := range []string{other.Cursor(42), "", "!", "AAAA", one.Cursor(42) + "AA"} {
		_, err := one.Position(cursor)
		assert.ErrorIs(t, err, ErrInvalid, "%q", cursor)
	}
}

func FuzzCursor(f *testing.F) {
	f.Add(Filter{}.Cursor(1))
	f.Add("")
	f.Fuzz(func(t *testing.T, cursor string) {
		filter := Filter{}
		if id, err := filter.Position(cursor); err == nil {
			assert.Equal(t, filter.Cursor(id), cursor, "one position has one cursor")
		}
	})
}
