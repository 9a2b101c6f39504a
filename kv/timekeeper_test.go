package kv_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
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
			require.NoError(w.t, n.Look(w.t.Context()))
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
	known, err := k.Look(w.t.Context())
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
		assert.Equal(t, second >= 2, heir.KeepsTime(), "after %d s", second+1)
	}
	assert.Equal(t, 3, heir.Open(), "the dead one stays counted")
	w.right(heir, third)
	assert.WithinDuration(t, w.now().Add(97*5*time.Millisecond), heir.Now(), 20*time.Millisecond)

	w.run(2, keeper, heir, third) // it was only asleep
	assert.False(t, keeper.KeepsTime())
	assert.True(t, heir.KeepsTime())
	assert.Equal(t, 3, heir.Open())
	w.right(keeper)
}

// A store that was taken for dead stays counted until it is closed.
func TestAStoreThatWasTakenForDeadLeavesTheOthersCounted(t *testing.T) {
	w := newWorld(t)
	keeper, heir := w.open(), w.open()
	w.run(2, keeper, heir)
	w.run(4, heir)
	require.True(t, heir.KeepsTime())
	require.NoError(t, keeper.Close())
	w.run(1, heir)
	assert.Equal(t, 1, heir.Open())
	late := w.opening(time.Hour)
	assert.False(t, w.looks(late), "a store that opens waits for the heir")
}

// A store that is open never begins with the time of its machine, whatever becomes of the key.
func TestAStoreThatIsOpenGoesOn(t *testing.T) {
	for name, value := range map[string]string{"deleted": "", "restored": `{"At":"2026-01-02T09:00:00Z","Keeper":"x","Count":1,"Open":2}`, "snapshot": "the first one", "nobody": `{"At":"2026-01-02T09:00:00Z","Count":9,"Open":0}`} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			keeper := w.open()
			if name == "snapshot" {
				value = string(all(t, w.db)[0].Value)
			}
			other := w.open()
			w.run(5, keeper, other)
			keeper.machine.wrong, other.machine.wrong = time.Hour, time.Hour
			change := kv.Change{Deletes: [][]byte{[]byte("B")}}
			if value != "" {
				change = kv.Change{Puts: []kv.Item{{Key: []byte("B"), Value: []byte(value)}}}
			}
			e := w.db.Connect()
			v, err := e.View(t.Context())
			require.NoError(t, err)
			require.NoError(t, v.Commit(t.Context(), change))
			v.Close()
			require.NoError(t, e.Close())
			w.run(6, keeper, other)
			w.right(keeper, other)
			assert.GreaterOrEqual(t, keeper.Open(), 2)
		})
	}
}

// A machine that was asleep shows the time when it wakes up. If its store is the only one, that counts.
func TestAStoreThatIsAloneFollowsItsMachine(t *testing.T) {
	w := newWorld(t)
	keeper := w.open()
	w.run(2, keeper)
	keeper.machine.wrong = 8 * time.Hour
	w.run(1, keeper)
	assert.WithinDuration(t, w.now().Add(8*time.Hour), keeper.Now(), time.Second)
}

// A store that is closed leaves the time to another one at once.
func TestAStoreThatIsClosedLeavesTheTime(t *testing.T) {
	w := newWorld(t)
	keeper, heir := w.open(), w.open()
	w.run(1, keeper, heir)
	require.NoError(t, keeper.Close())
	heir.machine.wrong = time.Hour
	w.run(5, heir)
	assert.True(t, heir.KeepsTime())
	w.right(heir)
	assert.Equal(t, 1, heir.Open())
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

// A store that opens when nobody is there begins at once with the time of its machine, and after a crash when nobody has spoken for ten seconds.
func TestAStoreThatIsAloneHasTheTimeOfItsMachine(t *testing.T) {
	w := newWorld(t)
	first := w.open()
	w.right(first)
	w.run(1, first)
	require.NoError(t, first.Close())
	behind := w.opening(-2 * time.Second)
	assert.True(t, w.looks(behind))
	assert.WithinDuration(t, w.now(), behind.Now(), 0, "it does not go back by a little")
	behind.Close()
	w.pass(time.Hour)
	second := w.opening(0)
	assert.True(t, w.looks(second), "after the other ones were closed")
	assert.WithinDuration(t, w.now(), second.Now(), 0)

	w.pass(time.Hour)
	third := w.opening(0)
	for range 10 {
		assert.False(t, w.looks(third), "the second may be alive")
		w.pass(time.Second)
	}
	assert.True(t, w.looks(third))
	assert.WithinDuration(t, w.now(), third.Now(), 0)

	w.pass(time.Hour) // the third is dead too
	fourth := w.opening(0)
	for range 10 {
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

// An open store goes on with the time of one that died, before a store that opens takes all of them for dead.
func TestAStoreThatOpensWaitsForTheHeir(t *testing.T) {
	w := newWorld(t)
	keeper, heir := w.open(), w.open()
	w.run(2, keeper, heir)
	late, known := w.opening(time.Hour), false
	for tenth := 1; !known; tenth++ {
		require.Less(t, tenth, 100)
		if tenth%40 == 0 { // its looks take three seconds
			require.NoError(t, heir.Look(t.Context()))
		}
		w.pass(time.Second / 10)
		known = w.looks(late)
	}
	assert.True(t, heir.KeepsTime())
	assert.WithinDuration(t, w.now(), late.Now(), time.Second)
}

// A store that opens hears of a time that was wrong, and does not take it for the right one later.
func TestAStoreThatOpensForgetsTheTimeOfOneThatDied(t *testing.T) {
	w := newWorld(t)
	wrong := w.opening(time.Hour)
	require.True(t, w.looks(wrong), "it is alone, and dies")
	w.pass(time.Second)
	first, second := w.opening(0), w.opening(0)
	for range 10 {
		require.False(t, w.looks(first))
		require.False(t, w.looks(second))
		w.pass(time.Second)
	}
	require.True(t, w.looks(first))
	require.True(t, w.looks(second))
	assert.WithinDuration(t, w.now(), first.Now(), time.Second)
	assert.WithinDuration(t, w.now(), second.Now(), time.Second)
}

// A store that was held up while it opened counts no silence in which it did not look.
func TestAStoreThatOpensCountsNoSilenceInWhichItDidNotLook(t *testing.T) {
	w := newWorld(t)
	keeper := w.open()
	w.run(2, keeper)
	late := w.opening(time.Hour)
	require.False(t, w.looks(late))
	w.pass(time.Minute) // the engine was away, and the first look after it is that of the store that opens
	require.False(t, w.looks(late))
	w.run(1, keeper)
	require.True(t, w.looks(late))
	assert.WithinDuration(t, w.now(), late.Now(), time.Second)
}

// openWithRoom opens a store that can write only while there is room, and there is none yet.
func (w *world) openWithRoom(room *bool) *kv.Store {
	e := &odd{Engine: w.db.Connect(), commit: func(ctx context.Context, v kv.View, c kv.Change) error {
		if !*room {
			return kv.ErrNothing
		}
		return v.Commit(ctx, c)
	}}
	s, err := kv.Open(w.t.Context(), &shared{e}, (&computer{world: w}).clocks())
	require.NoError(w.t, err)
	w.t.Cleanup(func() { assert.NoError(w.t, s.Close()) })
	assert.WithinDuration(w.t, w.now(), s.Now(), time.Second)
	require.ErrorIs(w.t, s.Look(w.t.Context()), kv.ErrNothing, "it goes on trying")
	return s
}

// A store opens also where it can write nothing, as in a full cluster. It is counted as soon as it can write.
func TestAStoreOpensWithoutAWrite(t *testing.T) {
	w := newWorld(t)
	keeper := w.open()
	w.run(1, keeper)
	room := false
	s := w.openWithRoom(&room)
	w.run(3, keeper)
	assert.WithinDuration(t, w.now(), s.Now(), time.Second)
	room = true
	require.NoError(t, s.Look(t.Context()))
	w.pass(2 * time.Second) // the keeper is dead, and nobody counts it out
	require.NoError(t, s.Look(t.Context()))
	assert.True(t, s.KeepsTime())
	assert.Equal(t, 2, s.Open())

	require.NoError(t, s.Close())
	require.NoError(t, keeper.Close())
	room = false
	w.pass(time.Hour)
	s = w.openWithRoom(&room) // nobody is there, and the last tick is old
	room = true
	require.NoError(t, s.Look(t.Context()))
	assert.True(t, s.KeepsTime())
	assert.Equal(t, 1, s.Open())
	assert.WithinDuration(t, w.now(), s.Now(), time.Second)
}

// A store that knows the time and is not counted goes on with it, and is counted then.
func TestAStoreThatIsNotCountedGoesOn(t *testing.T) {
	w := newWorld(t)
	keeper := w.open()
	w.run(1, keeper)
	room := false
	s := w.openWithRoom(&room)
	w.pass(3 * time.Second)
	room = true
	require.NoError(t, s.Look(t.Context()))
	assert.True(t, s.KeepsTime())
	assert.Equal(t, 2, s.Open(), "the dead one stays counted")
}

// Stores of real machines open at once. One of them keeps the time, and another one when that is closed.
func TestOneOfTheOpenStoresKeepsTheTime(t *testing.T) {
	const stores, bound = 4, time.Minute
	db := memkv.New()
	opened := make([]*kv.Store, stores)
	var all sync.WaitGroup
	for i := range opened {
		all.Go(func() {
			s, err := kv.Open(t.Context(), db.Connect(), nil)
			if assert.NoError(t, err) {
				opened[i] = s
			}
		})
	}
	all.Wait()
	require.NotContains(t, opened, (*kv.Store)(nil))
	e := db.Connect()
	defer func() { assert.NoError(t, e.Close()) }()
	last := func() (tick struct {
		Keeper      string
		Count, Open int
	}) {
		v, err := e.View(t.Context())
		require.NoError(t, err)
		defer v.Close()
		found, err := v.Read(t.Context(), kv.Range{From: []byte("B")})
		require.NoError(t, err)
		require.Len(t, found[0], 1)
		require.NoError(t, json.Unmarshal(found[0][0].Value, &tick))
		return tick
	}
	require.Eventually(t, func() bool { return last().Open == stores }, bound, time.Millisecond, "not all are counted")
	first := last()
	require.Eventually(t, func() bool { return last().Count > first.Count+1 }, bound, time.Millisecond, "nobody writes the time")
	assert.Equal(t, first.Keeper, last().Keeper)
	for left := stores - 1; left >= 0; left-- {
		for i, s := range opened {
			if s.IsKeeper(last().Keeper) {
				require.NoError(t, s.Close())
				opened = slices.Delete(opened, i, i+1)
				break
			}
		}
		require.Len(t, opened, left)
		assert.Equal(t, left, last().Open)
		if left > 0 {
			require.Eventually(t, func() bool { return last().Keeper != "" }, bound, time.Millisecond, "nobody goes on")
		}
	}
}
