package store

import (
	"context"
	"math"
	"strings"
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
	id, err := one.Position(Page{Limit: 1, Cursor: one.Cursor(42)})
	require.NoError(t, err)
	assert.Equal(t, int64(42), id)
	none, empty := Filter{}, Filter{IDs: []int64{}, States: []State{}}
	assert.Equal(t, none.Cursor(1), empty.Cursor(1), "empty is not set")
	forGroup, inGroup := Filter{WaitsForGroup: "g"}, Filter{Group: "g"}
	assert.NotEqual(t, inGroup.Cursor(1), forGroup.Cursor(1))
	assert.NotEqual(t, none.Cursor(1), forGroup.Cursor(1))
	assert.Equal(t, "qkyuQmMKi_MAAAAAAAAAAQ", none.Cursor(1), "earlier versions have this cursor too")
	for _, cursor := range []string{other.Cursor(42), "!", "AAAA", one.Cursor(42) + "AA"} {
		_, err := one.Position(Page{Limit: 1, Cursor: cursor})
		assert.ErrorIs(t, err, ErrInvalid, "%q", cursor)
	}
	first, err := one.Position(Page{Limit: 1})
	require.NoError(t, err)
	assert.Equal(t, int64(math.MaxInt64), first)
	_, err = one.Position(Page{})
	require.ErrorIs(t, err, ErrInvalid)
	_, err = Filter{Queue: "\x00"}.Position(Page{Limit: 1})
	require.ErrorIs(t, err, ErrInvalid)
}

func FuzzCursor(f *testing.F) {
	f.Add(Filter{}.Cursor(1))
	f.Add("")
	f.Fuzz(func(t *testing.T, cursor string) {
		filter := Filter{}
		if id, err := filter.Position(Page{Limit: 1, Cursor: cursor}); err == nil && cursor != "" {
			assert.Equal(t, filter.Cursor(id), cursor, "one position has one cursor")
		}
	})
}

func TestCursorsOfWorkersBelongToTheirFilter(t *testing.T) {
	one, other := WorkerFilter{}, WorkerFilter{Name: "w"}
	for _, name := range []string{"w", "ä b", strings.Repeat("x", MaxNameBytes)} {
		for _, f := range []WorkerFilter{one, other} {
			after, err := f.Position(Page{Limit: 1, Cursor: f.Cursor(name)})
			require.NoError(t, err)
			assert.Equal(t, name, after)
		}
	}
	after, err := one.Position(Page{Limit: MaxItems})
	require.NoError(t, err)
	assert.Empty(t, after, "the first page")
	for _, cursor := range []string{
		other.Cursor("w"), Filter{}.Cursor(42), "!", "AAAA", one.Cursor("w") + "AA", one.Cursor("w") + "\n", one.Cursor(""), one.Cursor("a\x00"),
		one.Cursor("\xff"), one.Cursor(strings.Repeat("x", MaxNameBytes+1)),
	} {
		_, err := one.Position(Page{Limit: 1, Cursor: cursor})
		var invalid *InvalidError
		require.ErrorAs(t, err, &invalid, "%q", cursor)
		assert.Equal(t, "cursor", invalid.Field)
	}
	_, err = Filter{}.Position(Page{Limit: 1, Cursor: one.Cursor("w")})
	require.ErrorIs(t, err, ErrInvalid)
	_, err = one.Position(Page{})
	require.ErrorIs(t, err, ErrInvalid)
	_, err = WorkerFilter{Name: "\x00"}.Position(Page{Limit: 1})
	require.ErrorIs(t, err, ErrInvalid)
}

func FuzzWorkerCursor(f *testing.F) {
	f.Add(WorkerFilter{}.Cursor("w"))
	f.Add("")
	f.Fuzz(func(t *testing.T, cursor string) {
		filter := WorkerFilter{}
		if name, err := filter.Position(Page{Limit: 1, Cursor: cursor}); err == nil && cursor != "" {
			assert.Equal(t, filter.Cursor(name), cursor, "one position has one cursor")
			assert.NoError(t, Worker{Name: name}.Check())
		}
	})
}

// paged is a registry of so many workers, two on a page, whose last page may fail.
type paged struct {
	Registry
	workers int
	err     error
	asked   []Page
}

func (p *paged) Workers(_ context.Context, filter WorkerFilter, page Page) (WorkerPage, error) {
	p.asked = append(p.asked, page)
	first := 2 * (len(p.asked) - 1)
	if p.err != nil && first+2 >= p.workers {
		return WorkerPage{}, p.err
	}
	var found WorkerPage
	for i := first; i < min(first+2, p.workers); i++ {
		found.Workers = append(found.Workers, Worker{Name: string(rune('a' + i))})
	}
	if first+2 < p.workers {
		found.Next = filter.Cursor(found.Workers[1].Name)
	}
	return found, nil
}

func TestAllWorkersAreReadPageByPage(t *testing.T) {
	p := &paged{workers: 5}
	all, err := AllWorkers(t.Context(), p)
	require.NoError(t, err)
	assert.Equal(t, []Worker{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}, {Name: "e"}}, all)
	cursor := WorkerFilter{}.Cursor
	assert.Equal(t, []Page{{Limit: MaxItems}, {Limit: MaxItems, Cursor: cursor("b")}, {Limit: MaxItems, Cursor: cursor("d")}}, p.asked)

	all, err = AllWorkers(t.Context(), &paged{workers: 5, err: ErrUnavailable})
	require.ErrorIs(t, err, ErrUnavailable)
	assert.Nil(t, all, "a part is not all")
}
