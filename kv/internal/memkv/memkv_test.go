package memkv

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/kv"
)

// A view is compared with a map that was copied when it began, while commits go on.
func TestViewsAreSnapshots(t *testing.T) {
	db := New()
	e := db.Connect()
	random := rand.New(rand.NewPCG(1, 1))
	now := map[string]string{}
	type moment struct {
		view kv.View
		want map[string]string
	}
	var old []moment
	for range 2000 {
		view, err := e.View(t.Context())
		require.NoError(t, err)
		old = append(old, moment{view, maps.Clone(now)})
		require.NoError(t, view.Commit(t.Context(), change(random, now)))
		if len(old) == 20 {
			m := old[0]
			old = old[1:]
			compare(t, random, m.view, m.want)
		}
	}
	assert.Equal(t, len(now), db.Len())
}

// change makes up a change, and applies it to the map.
func change(random *rand.Rand, now map[string]string) (c kv.Change) {
	used := map[string]bool{}
	for range random.IntN(6) {
		k := fmt.Sprintf("%c%d", 'a'+rune(random.IntN(3)), random.IntN(40))
		if used[k] {
			continue
		}
		used[k] = true
		if random.IntN(3) == 0 {
			delete(now, k)
			c.Deletes = append(c.Deletes, []byte(k))
		} else {
			now[k] = fmt.Sprint(random.IntN(1000))
			c.Puts = append(c.Puts, kv.Item{Key: []byte(k), Value: []byte(now[k])})
		}
	}
	return c
}

func compare(t *testing.T, random *rand.Rand, v kv.View, want map[string]string) {
	t.Helper()
	r := kv.Range{From: []byte("a2"), To: []byte("c1"), Limit: random.IntN(30), KeysOnly: random.IntN(2) == 0}
	one := kv.Range{From: []byte("b7")}
	answers, err := v.Read(t.Context(), r, one)
	require.NoError(t, err)
	var keys []string
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if k >= "a2" && k < "c1" && (r.Limit == 0 || len(keys) < r.Limit) {
			keys = append(keys, k)
		}
	}
	var got []string
	for _, item := range answers[0] {
		got = append(got, string(item.Key))
		assert.NotZero(t, item.Version)
		if !r.KeysOnly {
			assert.Equal(t, want[string(item.Key)], string(item.Value))
		}
	}
	assert.Equal(t, keys, got)
	value, there := want["b7"]
	assert.Len(t, answers[1], map[bool]int{false: 0, true: 1}[there])
	if len(answers[1]) > 0 {
		assert.Equal(t, value, string(answers[1][0].Value))
	}
}

func TestGuardsAreChecked(t *testing.T) {
	e := New().Connect()
	k, other := []byte("k"), []byte("other")
	commit := func(v kv.View, c kv.Change) error { return v.Commit(t.Context(), c) }
	put := func(key []byte) kv.Change { return kv.Change{Puts: []kv.Item{{Key: key}}} }
	var views []kv.View
	for range 4 {
		v, err := e.View(t.Context())
		require.NoError(t, err)
		views = append(views, v)
	}
	guarded := put(other)
	guarded.Guards = []kv.Item{{Key: k}}
	require.NoError(t, commit(views[0], guarded), "the key is still absent")
	require.NoError(t, commit(views[1], put(k)))
	assert.ErrorIs(t, commit(views[2], guarded), kv.ErrConflict, "the key was added")

	v, err := e.View(t.Context())
	require.NoError(t, err)
	found, err := v.Read(t.Context(), kv.Range{From: k})
	require.NoError(t, err)
	require.NoError(t, commit(views[3], put(k)), "the same value again")
	guarded.Guards = found[0]
	assert.ErrorIs(t, commit(v, guarded), kv.ErrConflict)
}

func TestWatchHearsOfCommitsUntilItIsTooSlow(t *testing.T) {
	e := New().Connect()
	began, goOn := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	var heard []string
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		ended <- e.(kv.Watcher).Watch(ctx, func(key []byte) {
			if key == nil {
				close(began)
				<-goOn
			}
			heard = append(heard, string(key))
		}, []byte("a"), []byte("b"))
	}()
	<-began
	put := func(keys ...string) {
		v, err := e.View(t.Context())
		require.NoError(t, err)
		var c kv.Change
		for _, k := range keys {
			c.Puts = append(c.Puts, kv.Item{Key: []byte(k)})
		}
		require.NoError(t, v.Commit(t.Context(), c))
	}
	put("a1", "c1")
	put("b1")
	for i := range room {
		put(fmt.Sprint("a", i))
	}
	close(goOn)
	assert.ErrorIs(t, <-ended, errMissed)
	require.Len(t, heard, 1+room)
	assert.Equal(t, []string{"", "a1", "b1", "a0"}, heard[:4])
}

func TestTreeIsBalanced(t *testing.T) {
	var root *node
	for i := range 10_000 {
		root = root.with(fmt.Appendf(nil, "%08d", i), nil, 1)
	}
	assert.Less(t, depth(root), 60)
	assert.True(t, bytes.Equal([]byte("00000007"), root.find([]byte("00000007")).key))
}

func depth(n *node) int {
	if n == nil {
		return 0
	}
	return 1 + max(depth(n.left), depth(n.right))
}
