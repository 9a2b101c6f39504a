package kv_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/kv"
	"github.com/seed-ed332417/jq/kv/internal/memkv"
)

// A job with a limit key costs no trip and no key more where nothing has to do with keys, and also beside a queue that limits them.
func TestQueueWithoutLimitsForKeysCostsNothingMore(t *testing.T) {
	life := func(limitKey, limited string) (costs []string) {
		e, made := counting(memkv.New())
		var sizes [][3]int
		commit := e.(*odd).commit
		e.(*odd).commit = func(ctx context.Context, v kv.View, c kv.Change) error {
			sizes = append(sizes, [3]int{len(c.Guards), len(c.Puts), len(c.Deletes)})
			return commit(ctx, v, c)
		}
		s, clk := open(t, e)
		if limited != "" {
			setPolicy(t, s, limited, contract.Policy{MaxPerKey: 1})
			setPolicy(t, s, "once", contract.Policy{Ordered: true})
			setPolicy(t, s, "once", contract.Policy{})
		}
		queue := map[bool]string{true: "once", false: "q"}[limited != ""]
		made.take()
		sizes = nil
		took := func(call string, err error) {
			t.Helper()
			require.NoError(t, err)
			costs = append(costs, fmt.Sprint(call, " takes ", made.take(), " trips, and changes ", sizes))
			sizes = nil
		}
		_, err := s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: slices.Repeat([]contract.NewJob{ofKey(queue, limitKey)}, 30)})
		took("Enqueue", err)
		jobs, err := s.FetchAndClaim(t.Context(), claimOf(queue, 20))
		took("FetchAndClaim", err)
		require.Len(t, jobs, 20)
		_, err = s.Ack(t.Context(), []contract.Ack{{Lease: jobs[0].Lease()}})
		took("Ack", err)
		_, err = s.NAck(t.Context(), []contract.NAck{{Lease: jobs[1].Lease(), Form: contract.Fail}, {Lease: jobs[2].Lease(), Form: contract.Release}})
		took("NAck", err)
		clk.Add(time.Hour)
		_, err = s.RecoverExpiredLeases(t.Context(), contract.RecoverRequest{Limit: 10})
		took("RecoverExpiredLeases", err)
		_, err = s.Cancel(t.Context(), contract.Filter{Queue: queue}, 10)
		took("Cancel", err)
		return costs
	}
	want := life("", "")
	require.Equal(t, []string{
		"Enqueue takes [1 1 1 1] trips, and changes [[31 121 0]]", // with the key of the store, since it is the first job of a line
		"FetchAndClaim takes [0 1 4 1] trips, and changes [[22 40 20]]",
		"Ack takes [0 1 1 1] trips, and changes [[2 1 1]]",
	}, want[:3])
	assert.Equal(t, want, life("a", ""), "of jobs with a limit key")
	assert.Equal(t, want, life("a", "elsewhere"), "in a queue that was ordered once, beside one that limits keys")
}

// A claim reads as much among many keys without room as among few, and as much behind many jobs of one of them.
func TestFullKeysCostAClaimNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("left to the pass without the race detector, since one call at a time has no race")
	}
	read := func(policy contract.Policy, keys, each int) (items, trips int) {
		e := &odd{Engine: memkv.New().Connect()}
		s, _ := open(t, e)
		setPolicy(t, s, "q", policy)
		enqueueMany(t, s, keys*each, func(i int) contract.NewJob { return ofKey("q", fmt.Sprint("full ", i%keys)) })
		for some := contract.MaxItems; some > 0; {
			jobs, err := s.FetchAndClaim(t.Context(), claimOf("q", contract.MaxItems))
			require.NoError(t, err)
			some = len(jobs)
		}
		_, err := s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: []contract.NewJob{ofKey("q", "free"), ofKey("q", "")}})
		require.NoError(t, err)
		e.read = func(ctx context.Context, v kv.View, ask []kv.Range) ([][]kv.Item, error) {
			found, err := v.Read(ctx, ask...)
			trips++
			for _, some := range found {
				items += len(some)
			}
			return found, err
		}
		for _, key := range []string{"free", ""} {
			jobs, err := s.FetchAndClaim(t.Context(), claimOf("q", 1))
			require.NoError(t, err)
			require.Len(t, jobs, 1)
			require.Equal(t, key, jobs[0].LimitKey())
		}
		return items, trips
	}
	for _, policy := range []contract.Policy{{MaxPerKey: 1}, {MaxPerKey: 1, Fair: true}, {Ordered: true}} {
		few, fewTrips := read(policy, 10, 2)
		many, manyTrips := read(policy, 2*contract.MaxItems, 2)
		long, longTrips := read(policy, 1, 4*contract.MaxItems)
		t.Logf("with %+v, two claims read %d keys in %d trips", policy, few, fewTrips)
		assert.Equal(t, [6]int{few, few, few, fewTrips, fewTrips, fewTrips}, [6]int{few, many, long, fewTrips, manyTrips, longTrips}, "with %+v", policy)
	}
}

// What a life with MaxPerKey costs more: the line and the hint of an enqueue, the slot and the key of a claim, and the hint of an end.
func TestLimitForKeysCostsFewKeys(t *testing.T) {
	e, made := counting(memkv.New())
	changed := 0
	commit := e.(*odd).commit
	e.(*odd).commit = func(ctx context.Context, v kv.View, c kv.Change) error {
		changed += len(c.Puts) + len(c.Deletes)
		return commit(ctx, v, c)
	}
	s, _ := open(t, e)
	life := func(queue string, jobs int) (trips [3]int64, keys [3]int) {
		req := contract.EnqueueRequest{Jobs: slices.Repeat([]contract.NewJob{ofKey(queue, "a")}, jobs)}
		for i := range req.Jobs {
			req.Jobs[i].LimitKey = fmt.Sprint(i % 10)
		}
		count := func(i int, err error) {
			t.Helper()
			require.NoError(t, err)
			took := made.take()
			trips[i], keys[i], changed = took[2]+took[3], changed, 0
		}
		made.take()
		changed = 0
		_, err := s.Enqueue(t.Context(), req)
		count(0, err)
		claimed, err := s.FetchAndClaim(t.Context(), claimOf(queue, jobs))
		count(1, err)
		require.Len(t, claimed, jobs)
		var acks []contract.Ack
		for _, j := range claimed {
			acks = append(acks, contract.Ack{Lease: j.Lease()})
		}
		_, err = s.Ack(t.Context(), acks)
		count(2, err)
		return trips, keys
	}
	setPolicy(t, s, "limited", contract.Policy{MaxPerKey: 100})
	life("q", 10)
	life("limited", 10)
	plainTrips, plainKeys := life("q", 100)
	trips, keys := life("limited", 100)
	assert.Equal(t, [3]int64{2, 4, 2}, plainTrips, "trips of Enqueue, FetchAndClaim and Ack without a limit")
	assert.Equal(t, [3]int{400, 300, 200}, plainKeys, "keys that they change for 100 jobs of ten limit keys")
	assert.Equal(t, [3]int64{2, 5, 2}, trips, "trips with MaxPerKey")
	assert.Equal(t, [3]int{510, 530, 310}, keys, "keys with MaxPerKey")
}

// Hints that producers add all the time keep nobody from claiming.
func TestClaimDoesNotWaitForAllHints(t *testing.T) {
	if race.Enabled {
		t.Skip("left to the pass without the race detector, since one call at a time has no race")
	}
	db := memkv.New()
	s, _ := open(t, db.Connect())
	setPolicy(t, s, "q", contract.Policy{MaxPerKey: 1})
	enqueueMany(t, s, 13*contract.MaxItems, func(i int) contract.NewJob { return ofKey("q", fmt.Sprint(i)) })
	hints := func() int { return keysIn(t, db, "H") }
	require.Greater(t, hints(), 11*contract.MaxItems)
	for claims := range 3 {
		jobs, err := s.FetchAndClaim(t.Context(), claimOf("q", 10))
		require.NoError(t, err)
		require.Len(t, jobs, 10)
		assert.Len(t, keysOf(jobs), 10, "each of a key of its own")
		if claims == 0 {
			assert.Greater(t, hints(), contract.MaxItems, "the claim has not looked at all")
		}
	}
	assert.Less(t, hints(), contract.MaxItems, "further claims have")
}

func keysOf(jobs []contract.Job) map[string]bool {
	keys := map[string]bool{}
	for _, j := range jobs {
		keys[j.LimitKey()] = true
	}
	return keys
}

// A claim passes over expired jobs of a key in few trips.
func TestExpiredJobsOfAKeyCostFewTrips(t *testing.T) {
	e, made := counting(memkv.New())
	s, clk := open(t, e)
	setPolicy(t, s, "q", contract.Policy{MaxPerKey: 1})
	enqueueMany(t, s, 2*contract.MaxItems, func(int) contract.NewJob {
		j := ofKey("q", "a")
		j.ExpiresAt = clk.Now().Add(time.Minute)
		return j
	})
	enqueueMany(t, s, 1, func(int) contract.NewJob { return ofKey("q", "a") })
	clk.Add(time.Hour)
	before := made.reads.Load()
	jobs, err := s.FetchAndClaim(t.Context(), claimOf("q", 1))
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	assert.LessOrEqual(t, made.reads.Load()-before, int64(20))
}
