package kv_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/kv"
	"github.com/seed-ed332417/jq/kv/internal/memkv"
)

// A world is machines whose clocks run alike and are set differently, and an engine.
type world struct {
	t      *testing.T
	db     *memkv.DB
	passed atomic.Int64
}

func (w *world) pass(d time.Duration) { w.passed.Add(int64(d)) }

func (w *world) steady() time.Duration { return time.Duration(w.passed.Load()) }

func newWorld(t *testing.T) *world { return &world{t: t, db: memkv.New()} }

// now is the right time.
func (w *world) now() time.Time {
	return time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC).Add(w.steady())
}

// A computer is a machine of a world, whose clock is wrong by some time.
type computer struct {
	*world
	wrong time.Duration
}

func (c *computer) clocks() *kv.Options {
	return kv.On(func() time.Time { return c.now().Add(c.wrong) }, c.steady)
}

// A node is a store with its machine.
type node struct {
	*kv.Store
	machine *computer
}

// open opens a store on a machine of its own, whose clock is right.
func (w *world) open() *node {
	c := &computer{world: w}
	s, err := kv.Open(w.t.Context(), w.db.Connect(), c.clocks())
	require.NoError(w.t, err)
	w.t.Cleanup(func() { assert.NoError(w.t, s.Close()) })
	return &node{s, c}
}

// run lets some seconds pass, in each of which each of the nodes looks at the time.
func (w *world) run(seconds int, nodes ...*node) {
	for range seconds {
		for _, n := range nodes {
			require.NoError(w.t, n.Step(w.t.Context()))
			w.pass(time.Second / time.Duration(len(nodes)))
		}
	}
}

// opening returns a store that opens on a machine whose clock is wrong.
func (w *world) opening(wrong time.Duration) *kv.Timekeeper {
	e := w.db.Connect()
	w.t.Cleanup(func() { assert.NoError(w.t, e.Close()) })
	return kv.NewTimekeeper(e, (&computer{w, wrong}).clocks())
}

// looks reports whether a store that opens knows the time after a look at it.
func (w *world) looks(k *kv.Timekeeper) bool {
	known, err := k.Step(w.t.Context())
	require.NoError(w.t, err)
	return known
}

// right asserts that stores agree with the right time, to a second.
func (w *world) right(nodes ...*node) {
	w.t.Helper()
	for _, n := range nodes {
		assert.WithinDuration(w.t, w.now(), n.Now(), time.Second)
	}
}

// A clock that is set an hour forward or back changes the time of no store, whether its store keeps the time or not, and ends no lease early.
func TestClocksThatAreSetEndNoLease(t *testing.T) {
	for name, wrong := range map[string]time.Duration{"forward": time.Hour, "back": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			keeper, other := w.open(), w.open()
			w.run(2, keeper, other)
			require.True(t, keeper.KeepsTime())
			_, err := keeper.Enqueue(t.Context(), request(1))
			require.NoError(t, err)
			claim := claimOf("q0", 1)
			claim.TTL = 30 * time.Second
			jobs, err := keeper.FetchAndClaim(t.Context(), claim)
			require.NoError(t, err)
			require.Len(t, jobs, 1)
			assert.WithinDuration(t, w.now().Add(claim.TTL), jobs[0].LeaseExpiresAt, time.Second)

			recovered := func(by *node) int {
				list, err := by.RecoverExpiredLeases(t.Context(), contract.RecoverRequest{Limit: 10})
				require.NoError(t, err)
				return len(list)
			}
			other.machine.wrong = wrong
			w.run(14, keeper, other)
			w.right(keeper, other)
			assert.Zero(t, recovered(other))
			other.machine.wrong, keeper.machine.wrong = 0, wrong
			w.run(14, keeper, other)
			w.right(keeper, other)
			assert.Zero(t, recovered(keeper))
			w.run(4, keeper, other)
			assert.Equal(t, 1, recovered(other))
		})
	}
}

// If the store that keeps the time dies, another one goes on with it. Its own clock draws the time by five milliseconds a second.
func TestAnotherStoreKeepsTheTimeOfOneThatDied(t *testing.T) {
	w := newWorld(t)
	keeper, heir, third := w.open(), w.open(), w.open()
	w.run(2, keeper, heir, third)
	heir.machine.wrong = time.Hour
	before := map[*node]time.Time{}
	for second := range 100 {
		w.run(1, heir, third)
		for _, n := range []*node{heir, third} {
			assert.False(t, n.Now().Before(before[n]))
			before[n] = n.Now()
		}
		assert.Equal(t, second >= 3, heir.KeepsTime(), "after %d s", second+1)
	}
	w.right(heir, third)
	assert.WithinDuration(t, w.now().Add(96*5*time.Millisecond), heir.Now(), 20*time.Millisecond)

	w.run(2, keeper, heir, third) // it was only asleep
	assert.False(t, keeper.KeepsTime())
	assert.True(t, heir.KeepsTime())
	w.right(keeper)
}

// A store that is closed leaves the time to another one at once.
func TestAStoreThatIsClosedLeavesTheTime(t *testing.T) {
	w := newWorld(t)
	keeper, heir := w.open(), w.open()
	w.run(1, keeper, heir)
	require.NoError(t, keeper.Close())
	heir.machine.wrong = time.Hour
	w.run(1, heir)
	assert.True(t, heir.KeepsTime())
	w.right(heir)
}

// A store whose machine shows another time waits until somebody says what time it is.
func TestAStoreThatOpensWithAWrongClockWaits(t *testing.T) {
	w := newWorld(t)
	keeper := w.open()
	w.run(5, keeper)
	k := w.opening(time.Hour)
	assert.False(t, w.looks(k))
	w.pass(time.Second)
	assert.False(t, w.looks(k))
	w.run(1, keeper)
	assert.True(t, w.looks(k))
	assert.WithinDuration(t, w.now(), k.Now(), time.Second)
}

// A store that opens when nobody is there begins at once with the time of its machine, and after a crash when nobody has spoken for three seconds.
func TestAStoreThatIsAloneHasTheTimeOfItsMachine(t *testing.T) {
	w := newWorld(t)
	first := w.open()
	w.right(first)
	w.run(1, first)
	require.NoError(t, first.Close())
	w.pass(time.Hour)
	second := w.opening(0)
	assert.True(t, w.looks(second), "after the other one was closed")
	assert.WithinDuration(t, w.now(), second.Now(), 0)

	w.pass(time.Hour)
	third := w.opening(0)
	for range 3 {
		assert.False(t, w.looks(third), "the second may be alive")
		w.pass(time.Second)
	}
	assert.True(t, w.looks(third))
	assert.WithinDuration(t, w.now(), third.Now(), 0)

	w.pass(time.Hour) // a store that closes is not counted any more, so one that crashes later is not taken for it
	fourth := w.opening(0)
	for range 3 {
		assert.False(t, w.looks(fourth))
		w.pass(time.Second)
	}
	assert.True(t, w.looks(fourth))
}

// Stores that open at once agree, and only one of them keeps the time.
func TestStoresThatOpenAtOnceAgree(t *testing.T) {
	w := newWorld(t)
	nodes := []*node{w.open(), w.open(), w.open(), w.open()}
	w.run(3, nodes...)
	keep := 0
	for _, n := range nodes {
		if n.KeepsTime() {
			keep++
		}
	}
	assert.Equal(t, 1, keep)
	w.right(nodes...)
}
