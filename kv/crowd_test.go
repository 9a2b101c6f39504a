package kv_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/kv"
	"github.com/seed-ed332417/jq/kv/internal/memkv"
)

// A shared engine tells of the commits of others. So a store expects others.
type shared struct{ *odd }

func (s *shared) Watch(ctx context.Context, heard func(key []byte), prefixes ...[]byte) error {
	return s.odd.Engine.(kv.Watcher).Watch(ctx, heard, prefixes...)
}

// A crowd is two stores whose claims can be made to commit at once.
type crowd struct {
	t         *testing.T
	clk       *clock.Mock
	engine    kv.Engine // without a store
	stores    []*kv.Store
	meet      []atomic.Bool // the next commit of the store waits for one of the other
	meeting   *sync.WaitGroup
	interrupt func() // runs before the next commit of the first store
	conflicts atomic.Int64
	given     map[int64]bool
}

var plain = contract.NewJob{Queue: "q", Kind: "k", Payload: []byte(`1`), MaxRetries: 1}

func newCrowd(t *testing.T, jobs int) *crowd {
	t.Helper()
	c := &crowd{t: t, clk: clock.NewMock(), meet: make([]atomic.Bool, 2), given: map[int64]bool{}}
	db, opened := memkv.New(), 0
	s, err := openSeveral(t.Context(), 2, c.clk, func() kv.Engine {
		i, meet := opened, &c.meet[opened]
		opened++
		return &shared{&odd{Engine: db.Connect(), commit: func(ctx context.Context, v kv.View, change kv.Change) error {
			if interrupt := c.interrupt; i == 0 && interrupt != nil {
				c.interrupt = nil
				interrupt()
			}
			if meet.CompareAndSwap(true, false) {
				c.meeting.Done()
				c.meeting.Wait()
			}
			err := v.Commit(ctx, change)
			if errors.Is(err, kv.ErrConflict) {
				c.conflicts.Add(1)
			}
			return err
		}}}
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	c.stores, c.engine = s.Stores, db.Connect()
	c.add(slices.Repeat([]contract.NewJob{plain}, jobs)...)
	return c
}

func (c *crowd) add(jobs ...contract.NewJob) (ids []int64) {
	c.t.Helper()
	added, err := c.stores[0].Enqueue(c.t.Context(), contract.EnqueueRequest{Jobs: jobs})
	require.NoError(c.t, err)
	for _, j := range added {
		ids = append(ids, j.ID)
	}
	return ids
}

// claim returns the ids of the jobs that the store claims.
func (c *crowd) claim(store, limit int) (ids []int64) {
	jobs, err := c.stores[store].FetchAndClaim(c.t.Context(), contract.ClaimRequest{Queue: "q", Limit: limit, Worker: "w", TTL: time.Minute})
	assert.NoError(c.t, err)
	for _, j := range jobs {
		ids = append(ids, j.ID)
	}
	return ids
}

// claimAtOnce lets both stores claim, and commit at once. It returns how many conflicts there were, and who had one is not known.
func (c *crowd) claimAtOnce(limit int) (conflicts int) {
	c.t.Helper()
	before := c.conflicts.Load()
	c.meeting = &sync.WaitGroup{}
	c.meeting.Add(len(c.stores))
	var all sync.WaitGroup
	claimed := make([][]int64, len(c.stores))
	for i := range c.stores {
		c.meet[i].Store(true)
		all.Go(func() { claimed[i] = c.claim(i, limit) })
	}
	all.Wait()
	for _, id := range slices.Concat(claimed...) {
		require.False(c.t, c.given[id], "job %d was given twice", id)
		c.given[id] = true
	}
	require.Len(c.t, slices.Concat(claimed...), limit*len(c.stores))
	return int(c.conflicts.Load() - before)
}

// crowded returns which store has had a conflict.
func (c *crowd) crowded() (store int) {
	c.t.Helper()
	require.Equal(c.t, 1, c.claimAtOnce(5), "both take the first jobs")
	ids := c.waiting()
	for i := range c.stores {
		if got := c.claim(i, 5); !slices.Equal(got, ids[:5]) {
			return i
		}
		ids = ids[5:]
	}
	require.Fail(c.t, "both stores still take the first jobs")
	return 0
}

// waiting returns the ids of the jobs that wait.
func (c *crowd) waiting() (ids []int64) {
	c.t.Helper()
	page, err := c.stores[0].List(c.t.Context(), contract.Filter{States: []contract.State{contract.Ready}}, contract.Page{Limit: 1000})
	require.NoError(c.t, err)
	for _, j := range slices.Backward(page.Jobs) {
		ids = append(ids, j.ID)
	}
	return ids
}

// Stores whose claims have met find shards of their own, in which they meet nobody.
func TestStoresThatMeetKeepApart(t *testing.T) {
	const trials, rounds, limit, quiet = 20, 40, 3, 8
	for range trials {
		c := newCrowd(t, 2*rounds*limit)
		require.Equal(t, 1, c.claimAtOnce(limit), "both take the first jobs")
		for round, without := 1, 0; without < quiet; round++ {
			require.Less(t, round, rounds, "the stores do not find shards of their own")
			if without++; c.claimAtOnce(limit) > 0 {
				without = 0
			}
		}
	}
}

// A store that has met nobody for a second takes the first jobs again.
func TestStoreThatIsAloneTakesTheFirstJobs(t *testing.T) {
	c := newCrowd(t, 200)
	store := c.crowded()
	ids := c.waiting()
	c.clk.Add(time.Second - time.Microsecond)
	require.NotEqual(t, ids[:5], c.claim(store, 5), "a second is not over")
	ids = c.waiting()
	c.clk.Add(time.Microsecond)
	assert.Equal(t, ids[:5], c.claim(store, 5))
}

// A store notices claims that take other jobs than its own.
func TestStoreKeepsApartWhileOthersClaim(t *testing.T) {
	c := newCrowd(t, 200)
	store := c.crowded()
	c.claim(store, 1) // what it leaves is what it looks at the next time
	c.claim(1-store, 5)
	c.clk.Add(time.Second - time.Microsecond)
	c.claim(store, 1)
	ids := c.waiting()
	c.clk.Add(time.Second - time.Microsecond)
	require.NotEqual(t, ids[:5], c.claim(store, 5))
	ids = c.waiting()
	c.clk.Add(time.Microsecond)
	assert.Equal(t, ids[:5], c.claim(store, 5))
}

// A store that keeps to a shard takes the highest priority first, wherever it stands, and what is in other shards if its own has too few.
func TestShardsHideNothing(t *testing.T) {
	c := newCrowd(t, 200)
	store := c.crowded()
	urgent := plain
	urgent.Priority = 5
	ids := c.add(slices.Repeat([]contract.NewJob{urgent}, 20)...)
	assert.Equal(t, ids, c.claim(store, 30)[:20])
	rest := c.waiting()
	assert.Equal(t, rest, c.claim(store, len(rest)))
}

// A store goes on to shards whose jobs have waited for longer.
func TestShardsTakeTurns(t *testing.T) {
	c := newCrowd(t, 1000)
	store := c.crowded()
	var ids []int64
	for range 20 {
		c.claim(1-store, 1)
		c.clk.Add(time.Second - time.Microsecond)
		ids = append(ids, c.claim(store, 1)...)
	}
	assert.Len(t, ids, 20)
	assert.False(t, slices.IsSorted(ids), "all of %v are of one shard", ids)
}

// Claims under a limit conflict whatever they take, so they take the first jobs.
func TestStoresUnderALimitTakeTheFirstJobs(t *testing.T) {
	c := newCrowd(t, 200)
	store := c.crowded()
	_, err := c.stores[0].SetPolicy(t.Context(), "q", contract.Policy{MaxInFlight: 1000})
	require.NoError(t, err)
	ids := c.waiting()
	assert.Equal(t, ids[:5], c.claim(store, 5))
}

// A store whose clock goes back does not keep to its shard until the time has come again.
func TestStoreWhoseClockGoesBackTakesTheFirstJobs(t *testing.T) {
	c := newCrowd(t, 200)
	c.clk.Add(2 * time.Hour)
	store := c.crowded()
	c.clk.Set(c.clk.Now().Add(-time.Hour))
	ids := c.waiting()
	assert.Equal(t, ids[:5], c.claim(store, 5))
}

// An engine that was restored while stores were open lacks a line that they know.
func TestRestoredEngineHasFewerLines(t *testing.T) {
	c := newCrowd(t, 200)
	store := c.crowded()
	view := func() (kv.View, []kv.Item) {
		v, err := c.engine.View(t.Context())
		require.NoError(t, err)
		t.Cleanup(v.Close)
		items, err := v.Read(t.Context(), kv.Range{To: []byte{0xff}})
		require.NoError(t, err)
		return v, items[0]
	}
	_, before := view()
	urgent := plain
	urgent.Priority = 5
	ids := c.add(slices.Repeat([]contract.NewJob{urgent}, 20)...)
	require.Subset(t, ids, c.claim(store, 5), "it leaves others of the new line")

	v, now := view()
	restored := kv.Change{Puts: before}
	for _, item := range now {
		if !slices.ContainsFunc(before, func(b kv.Item) bool { return bytes.Equal(b.Key, item.Key) }) {
			restored.Deletes = append(restored.Deletes, item.Key)
		}
	}
	require.NotEmpty(t, restored.Deletes)
	require.NoError(t, v.Commit(t.Context(), restored))
	first := c.claim(store, 5)
	assert.Len(t, first, 5)
	assert.NotSubset(t, ids, first)
	assert.Len(t, c.claim(store, 5), 5)
}

// A store whose claim conflicts with another call than a claim takes the first jobs.
func TestChangeOfAJobIsNoMeeting(t *testing.T) {
	c := newCrowd(t, 200)
	ids := c.waiting()
	c.interrupt = func() {
		_, err := c.stores[1].Cancel(t.Context(), contract.Filter{IDs: ids[:1]}, 1)
		assert.NoError(t, err)
	}
	assert.Equal(t, ids[1:6], c.claim(0, 5))
	assert.EqualValues(t, 1, c.conflicts.Load())
	assert.Equal(t, ids[6:11], c.claim(0, 5))
}

// A sharer tells of no commits, and several processes may use it all the same.
type sharer struct{ *odd }

func (sharer) Shared() {}

// A new store expects others on an engine that several processes may use, and no others on any other engine.
func TestNewStoreExpectsOthersOnASharedEngine(t *testing.T) {
	for _, k := range []struct {
		engine func(*odd) kv.Engine
		want   string
	}{
		{func(o *odd) kv.Engine { return o }, `"Shards":1,`},
		{func(o *odd) kv.Engine { return &shared{o} }, `"Shards":16,`},
		{func(o *odd) kv.Engine { return sharer{o} }, `"Shards":16,`},
	} {
		db := memkv.New()
		s, err := kv.Open(t.Context(), k.engine(&odd{Engine: db.Connect()}), &kv.Options{Clock: clock.NewMock()})
		require.NoError(t, err)
		require.NoError(t, s.Close())
		found := all(t, db)
		require.Len(t, found, 1)
		assert.Contains(t, string(found[0].Value), k.want)
	}
}
