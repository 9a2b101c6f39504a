package kv_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/kv"
	"github.com/seed-ed332417/jq/kv/internal/memkv"
)

// keysAreWhereTheirJobsAre compares what the store keeps of limit keys with the rows of its jobs and the policies of their queues.
func keysAreWhereTheirJobsAre(t *testing.T, db *memkv.DB) {
	t.Helper()
	policies := map[string]contract.Policy{}
	var jobs []contract.Record
	got, want := map[string]string{}, map[string]string{}
	for _, item := range all(t, db) {
		switch item.Key[0] {
		case 'q':
			var q struct{ Policy contract.Policy }
			require.NoError(t, json.Unmarshal(item.Value, &q))
			policies[string(item.Key[1:])] = q.Policy
		case 'j':
			var row struct{ Record contract.Record }
			require.NoError(t, json.Unmarshal(item.Value, &row))
			jobs = append(jobs, row.Record)
		case 'F', 'S', 'O':
			got[string(item.Key)] = ""
		}
	}
	for _, j := range jobs {
		for _, k := range keysOfJob(j, policies[j.Queue]) {
			want[k] = ""
		}
	}
	assert.Equal(t, want, got, "lines, slots and ranks")
}

// keysOfJob returns the keys of a job in the tables of lines, slots and ranks, as the policy of its queue needs them.
func keysOfJob(j contract.Record, p contract.Policy) (keys []string) {
	number := func(n int64) string { return string(binary.BigEndian.AppendUint64(nil, uint64(n))) }
	prefix := j.Queue + "\x00" + j.LimitKey() + "\x00"
	lane := map[contract.State]string{contract.Ready: "f", contract.Retrying: "r"}[j.Phase()]
	limited := j.LimitKey() != ""
	if p.ByKey() && lane != "" && !(p.Ordered && limited) {
		due := number(j.Next().UnixMicro() ^ -1<<63)
		keys = append(keys, "F"+prefix+lane+string([]byte{byte(contract.MaxPriority - j.Priority)})+due+number(j.ID))
	}
	if p.KeyLimit() > 0 && limited && j.State == contract.InFlight {
		keys = append(keys, "S"+prefix+number(j.ID))
	}
	if p.Ordered && limited && !j.Terminal() {
		keys = append(keys, "O"+prefix+number(j.ID))
	}
	return keys
}

// Several stores change jobs of limit keys in every way, while policies change so often that jobs are mostly on their way to another mode.
func TestKeysFollowTheirJobsThroughEveryMode(t *testing.T) {
	const jobs, callers, rounds = 2_500, 3, 40
	if race.Enabled {
		t.Skip("left to the pass without the race detector: histories look for races")
	}
	policies := []contract.Policy{{}, {MaxPerKey: 3}, {MaxPerKey: 900}, {Fair: true}, {Fair: true, MaxPerKey: 3}, {Ordered: true}, {Ordered: true, Fair: true}}
	for seed := range uint64(2) {
		db, clk := memkv.New(), clock.NewMock()
		s, err := openSeveral(t.Context(), callers, clk, db.Connect)
		require.NoError(t, err)
		for begin := 0; begin < jobs; begin += 500 {
			_, err = s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: someOfKeys(rand.New(rand.NewPCG(seed, uint64(begin))), 500)})
			require.NoError(t, err)
		}
		var callsOf sync.WaitGroup
		for i, one := range s.Stores {
			callsOf.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(i)+1e6))
				for range rounds {
					if err := changeSome(t.Context(), one, random, policies, clk); err != nil && !errors.Is(err, contract.ErrConflict) {
						assert.NoError(t, err)
					}
				}
			})
		}
		callsOf.Wait()
		keysAreWhereTheirJobsAre(t, db)
		most := policies[1+rand.New(rand.NewPCG(seed, 7)).IntN(len(policies)-1)]
		setPolicy(t, s, "q", most)
		keysAreWhereTheirJobsAre(t, db)
		drainByKey(t, s, clk)
		for _, item := range all(t, db) {
			assert.False(t, item.Key[0] < 'a' && item.Key[0] != 'T', "the key %q is left when no job is live", item.Key)
		}
		setPolicy(t, s, "q", contract.Policy{})
		for _, item := range all(t, db) {
			assert.Greater(t, item.Key[0], byte('Z'), "the key %q is left of limit keys", item.Key)
		}
		require.NoError(t, s.Close())
	}
}

func someOfKeys(random *rand.Rand, n int) (jobs []contract.NewJob) {
	for range n {
		j := ofKey("q", []string{"", "a", "b", "c", "d", "e"}[random.IntN(6)])
		if random.IntN(4) == 0 {
			j.Delay = time.Duration(random.IntN(120)) * time.Second
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// changeSome makes one call.
func changeSome(ctx context.Context, s *kv.Store, random *rand.Rand, policies []contract.Policy, clk *clock.Mock) error {
	some := contract.Filter{Queue: "q", After: int64(random.IntN(3000))}
	n := 1 + random.IntN(20)
	switch random.IntN(9) {
	case 0:
		before, err := s.Policy(ctx, "q")
		if err != nil {
			return err
		}
		next := policies[random.IntN(len(policies))]
		next.Version = before.Version
		_, err = s.SetPolicy(ctx, "q", next)
		return err
	case 1:
		_, err := s.Enqueue(ctx, contract.EnqueueRequest{Jobs: someOfKeys(random, n)})
		return err
	case 2:
		_, err := s.Cancel(ctx, some, n)
		return err
	case 3:
		_, err := s.Requeue(ctx, some, n)
		return err
	case 4:
		_, err := s.Reschedule(ctx, some, clk.Now().Add(time.Duration(random.IntN(100)-50)*time.Second), n)
		return err
	case 5:
		clk.Add(time.Second)
		_, err := s.RecoverExpiredLeases(ctx, contract.RecoverRequest{Limit: n})
		return err
	default:
		return claimAndEndSome(ctx, s, random, n)
	}
}

// claimAndEndSome claims jobs, and ends the leases on most of them.
func claimAndEndSome(ctx context.Context, s *kv.Store, random *rand.Rand, n int) error {
	req := contract.ClaimRequest{Queue: "q", Limit: n, RetryQuota: random.IntN(n + 1), Worker: "w", TTL: 20 * time.Second}
	jobs, err := s.FetchAndClaim(ctx, req)
	if err != nil {
		return err
	}
	var nacks []contract.NAck
	var held []contract.Lease
	for _, j := range jobs {
		if random.IntN(5) == 0 {
			held = append(held, j.Lease())
			continue
		}
		form := []contract.Form{contract.Fail, contract.Never, contract.After, contract.Snooze, contract.Release}[random.IntN(5)]
		nacks = append(nacks, contract.NAck{Lease: j.Lease(), Form: form})
	}
	if _, err = s.NAck(ctx, nacks); err != nil {
		return err
	}
	_, err = s.Extend(ctx, held, time.Duration(1+random.IntN(60))*time.Second)
	return err
}

// drainByKey finishes all jobs: none is hidden.
func drainByKey(t *testing.T, s contract.Store, clk *clock.Mock) {
	t.Helper()
	for idle := 0; idle < 3; {
		clk.Add(time.Hour)
		_, err := s.RecoverExpiredLeases(t.Context(), contract.RecoverRequest{Limit: contract.MaxItems})
		require.NoError(t, err)
		jobs, err := s.FetchAndClaim(t.Context(), contract.ClaimRequest{Queue: "q", Limit: contract.MaxItems, RetryQuota: contract.MaxItems / 2, Worker: "w", TTL: time.Minute})
		require.NoError(t, err)
		if idle++; len(jobs) > 0 {
			idle = 0
		}
		var acks []contract.Ack
		for _, j := range jobs {
			acks = append(acks, contract.Ack{Lease: j.Lease()})
		}
		_, err = s.Ack(t.Context(), acks)
		require.NoError(t, err)
	}
	counts, err := s.Count(t.Context(), contract.Filter{})
	require.NoError(t, err)
	for _, q := range counts.Queues {
		for _, phase := range []contract.State{contract.Ready, contract.Retrying, contract.InFlight} {
			assert.Zero(t, q.Jobs[phase], "jobs that are %s at the end", phase)
		}
	}
}

// enqueueMany adds so many jobs to queue q.
func enqueueMany(t *testing.T, s contract.Store, n int, job func(i int) contract.NewJob) {
	t.Helper()
	for begin := 0; begin < n; begin += contract.MaxItems {
		var req contract.EnqueueRequest
		for i := begin; i < min(n, begin+contract.MaxItems); i++ {
			req.Jobs = append(req.Jobs, job(i))
		}
		_, err := s.Enqueue(t.Context(), req)
		require.NoError(t, err)
	}
}

// A lease that becomes shorter while its queue begins to limit keys counts, although whoever looks at the leases has passed where it is now.
func TestLeaseThatMovesBehindAMoverCounts(t *testing.T) {
	const jobs = 1_200
	p := newPair(t, func(kv.Change, kv.Item) bool { return false })
	enqueueMany(t, p.one, jobs, func(int) contract.NewJob { return ofKey("q", "a") })
	p.take(p.one, contract.MaxItems)
	last := p.take(p.one, contract.MaxItems)
	require.Len(t, last, jobs-contract.MaxItems)
	second := 0
	p.between(func(kv.Change) bool { second++; return second == 2 }, func(s *kv.Store) { setPolicy(t, s, "q", contract.Policy{MaxPerKey: 1}) }, func(s *kv.Store) {
		_, err := s.Extend(t.Context(), []contract.Lease{{ID: last[len(last)-1], Token: 1}}, time.Second)
		require.NoError(t, err)
	})
	keysAreWhereTheirJobsAre(t, p.db)
}

// If the process ends that sets a policy, at whatever commit, the policy is in force or not, and claims in other processes go on with what it has begun.
func TestPolicySurvivesTheEndOfAProcess(t *testing.T) {
	if race.Enabled {
		t.Skip("left to the pass without the race detector, since one call at a time has no race")
	}
	const jobs, held = 2_400, 1_200
	for name, to := range map[string]contract.Policy{"limited": {MaxPerKey: 3}, "ordered": {Ordered: true}, "none": {}} {
		t.Run(name, func(t *testing.T) {
			for commits := 1; ; commits++ {
				p := newPair(t, func(kv.Change, kv.Item) bool { return false })
				enqueueMany(t, p.one, jobs, func(i int) contract.NewJob { return ofKey("q", string(rune('a'+i%10))) })
				for taken := 0; taken < held; {
					taken += len(p.take(p.one, min(contract.MaxItems, held-taken)))
				}
				if name == "none" {
					setPolicy(t, p.one, "q", contract.Policy{Fair: true, MaxPerKey: 500})
				}
				left, ended := commits, false
				p.gone.commit = func(ctx context.Context, v kv.View, c kv.Change) error {
					if left == 0 {
						ended = true
						return fmt.Errorf("the process has ended: %w", kv.ErrNothing)
					}
					left--
					return v.Commit(ctx, c)
				}
				setPolicy(t, p.one, "q", to)
				p.gone.commit = nil
				got := len(p.take(p.two, 10))
				assert.Equal(t, map[string]int{"limited": 0, "ordered": 0, "none": 10}[name], got, "claimed after %d commits", commits)
				for range 10 { // each goes a part of the way
					_, err := p.two.RecoverExpiredLeases(t.Context(), contract.RecoverRequest{Limit: 1})
					require.NoError(t, err)
				}
				keysAreWhereTheirJobsAre(t, p.db)
				if name == "none" {
					for _, item := range all(t, p.db) {
						require.Greater(t, item.Key[0], byte('Z'), "the key %q is left of limit keys", item.Key)
					}
				}
				if !ended {
					require.Greater(t, commits, 2, "few commits: the test is about little")
					return
				}
			}
		})
	}
}

// A store is of layout 4 from the first policy on that has to do with limit keys, so that programs which know of none do not claim beyond it.
func TestFirstLimitOfKeysChangesTheLayout(t *testing.T) {
	for what, policy := range map[string]contract.Policy{"a limit": {MaxPerKey: 1}, "turns": {Fair: true}, "an order": {Ordered: true}} {
		db, s, _ := newStore(t)
		setPolicy(t, s, "q", contract.Policy{MaxInFlight: 1, Rate: contract.Rate{N: 1, Per: time.Second}})
		assert.Contains(t, metaOf(t, db), `"Layout":2`, "before %s", what)
		setPolicy(t, s, "q", policy)
		assert.Contains(t, metaOf(t, db), `"Layout":4`, "after %s", what)
	}
}

// Heartbeats and acks of the jobs in flight meet each change that looks at many of them. Then it looks at fewer.
func TestMoveComesThroughBesideHeartbeats(t *testing.T) {
	e := &odd{Engine: memkv.New().Connect()}
	s, _ := open(t, e)
	enqueueMany(t, s, 2*contract.MaxItems, func(i int) contract.NewJob { return ofKey("q", fmt.Sprint(i%10)) })
	_, err := s.FetchAndClaim(t.Context(), claimOf("q", contract.MaxItems))
	require.NoError(t, err)
	met := 0
	e.commit = func(ctx context.Context, v kv.View, c kv.Change) error {
		rows := 0
		for _, g := range c.Guards {
			if g.Key[0] == 'j' {
				rows++
			}
		}
		if rows > 100 {
			met++
			return kv.ErrConflict
		}
		return v.Commit(ctx, c)
	}
	setPolicy(t, s, "q", contract.Policy{MaxPerKey: 101})
	jobs, err := s.FetchAndClaim(t.Context(), claimOf("q", contract.MaxItems))
	require.NoError(t, err)
	assert.Len(t, jobs, 10, "one of each key, of which a hundred are in flight")
	assert.Positive(t, met)
}

// Close waits for the rest of a SetPolicy that moves the jobs of a queue.
func TestCloseWaitsForMoves(t *testing.T) {
	e := &closing{odd: odd{Engine: memkv.New().Connect()}}
	s, err := kv.Open(t.Context(), e, nil)
	require.NoError(t, err)
	enqueueMany(t, s, 10, func(int) contract.NewJob { return ofKey("q", "a") })
	var closed sync.WaitGroup
	commits := 0
	e.commit = func(ctx context.Context, v kv.View, c kv.Change) error {
		if commits++; commits == 2 { // the first one sets the policy
			closed.Go(func() { assert.NoError(t, s.Close()) })
			for end := time.Now().Add(time.Minute); ; runtime.Gosched() {
				_, err := s.Count(ctx, contract.Filter{})
				if errors.Is(err, contract.ErrClosed) {
					break
				}
				if time.Now().After(end) {
					t.Error("the store is not closed after a minute")
					break
				}
			}
			for range 1000 {
				runtime.Gosched()
			}
			assert.False(t, e.ended.Load(), "the engine was closed before the commit")
		}
		return v.Commit(ctx, c)
	}
	_, err = s.SetPolicy(t.Context(), "q", contract.Policy{MaxPerKey: 1})
	require.NoError(t, err)
	closed.Wait()
	assert.Equal(t, 2, commits, "commits: the test is about the second one")
	assert.True(t, e.ended.Load())
}

// closing tells when it was closed.
type closing struct {
	odd
	ended atomic.Bool
}

func (c *closing) Close() error {
	c.ended.Store(true)
	return c.Engine.Close()
}
