package memory

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// TestLineAgreesWithASortedSlice lets jobs come and go at random, and looks at both after each step.
func TestLineAgreesWithASortedSlice(t *testing.T) {
	for seed := range uint64(10) {
		random := rand.New(rand.NewPCG(seed, 0))
		var l line
		var want []*job
		now, id := int64(1000), int64(0)
		for step := range 5000 {
			growing := step/500%2 == 0
			switch dice := random.IntN(10); {
			case len(want) == 0 || growing && dice < 7 || dice < 3:
				id++
				now += random.Int64N(3)
				j := dueAt(id, now+aside(random))
				l.push(j, random.IntN(8) == 0)
				want = append(want, j)
				slices.SortFunc(want, inOrder)
			case dice < 8: // the first leaves, as by a claim
				want[0].leave()
				want = want[1:]
			default: // one leaves from anywhere, as by a cancellation
				i := random.IntN(len(want))
				want[i].leave()
				want = slices.Delete(want, i, i+1)
			}
			requireSame(t, &l, want, "seed %d, step %d", seed, step)
		}
	}
}

// aside is mostly nothing, so that most jobs come in order.
func aside(random *rand.Rand) int64 {
	if random.IntN(4) > 0 {
		return 0
	}
	return random.Int64N(200) - 100
}

func dueAt(id, micros int64) *job {
	return &job{ID: id, runAt: stampOf(time.UnixMicro(micros))}
}

func inOrder(a, b *job) int {
	return cmp.Or(cmp.Compare(a.at(), b.at()), cmp.Compare(a.ID, b.ID))
}

func requireSame(t *testing.T, l *line, want []*job, format string, args ...any) {
	t.Helper()
	if len(want) == 0 {
		require.Nil(t, l.first(math.MaxInt64), append([]any{format}, args...)...)
	} else {
		require.Same(t, want[0], l.first(math.MaxInt64), append([]any{format}, args...)...)
		require.Nil(t, l.first(want[0].at()-1), append([]any{format}, args...)...)
	}
	require.Equal(t, len(want), l.fifo.count+len(l.aside.items), append([]any{format}, args...)...)
	require.LessOrEqual(t, len(l.fifo.slots), 2*l.fifo.count+fifoSlack, append([]any{format}, args...)...)
}

// TestFifoBehindAJobThatStaysIsShort cancels job after job behind a first one that stays.
func TestFifoBehindAJobThatStaysIsShort(t *testing.T) {
	var l line
	first := dueAt(1, 1)
	l.push(first, false)
	second := dueAt(2, 1)
	l.push(second, false)
	for id := range int64(10_000) {
		j := dueAt(id+3, 1)
		l.push(j, false)
		second.leave()
		second = j
	}
	assert.Same(t, first, l.first(1))
	assert.LessOrEqual(t, cap(l.fifo.slots), 4*fifoSlack)
}

func TestEmptyFifoLetsGoOfItsMemory(t *testing.T) {
	var l line
	var jobs []*job
	for id := range int64(100_000) {
		jobs = append(jobs, dueAt(id, 1))
		l.push(jobs[id], false)
	}
	for _, j := range jobs {
		j.leave()
	}
	assert.Nil(t, l.first(math.MaxInt64))
	assert.LessOrEqual(t, cap(l.fifo.slots), 2*fifoSlack)
}

// TestTableAgreesWithAMap adds and removes jobs at random, with leaps between ids as after a fence.
func TestTableAgreesWithAMap(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	var got table
	want := map[int64]*job{}
	id := int64(0)
	for range 60 {
		for range random.IntN(300) {
			id++
			want[id] = got.add(id)
		}
		if random.IntN(20) == 0 {
			id += store.FenceStep
		}
		for gone := range want { // in random order
			if random.IntN(3) == 0 {
				break
			}
			got.remove(gone)
			delete(want, gone)
		}
		requireSameJobs(t, &got, want, random.Int64N(id+2))
	}
	for _, unknown := range []int64{math.MinInt64, -1, 0, id + 1, math.MaxInt64} {
		assert.Nil(t, got.get(unknown), "id %d", unknown)
	}
	for gone := range want {
		got.remove(gone)
	}
	assert.Empty(t, got.pages)
	assert.Empty(t, got.order)
}

func requireSameJobs(t *testing.T, got *table, want map[int64]*job, bound int64) {
	t.Helper()
	var above, below []int64
	for id, j := range want {
		require.Same(t, j, got.get(id))
		if id > bound {
			above = append(above, id)
		}
		if id < bound {
			below = append(below, id)
		}
	}
	slices.Sort(above)
	slices.Sort(below)
	slices.Reverse(below)
	require.Equal(t, above, ids(slices.Collect(got.rising(bound))), "above %d", bound)
	require.Equal(t, below, ids(slices.Collect(got.falling(bound))), "below %d", bound)
}

func ids(jobs []*job) []int64 {
	var list []int64
	for _, j := range jobs {
		list = append(list, j.ID)
	}
	return list
}
