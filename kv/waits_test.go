package kv_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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

// A pair is two stores on one map, of which the second one can be slow: another call comes between its decision and its commit.
type pair struct {
	t        *testing.T
	db       *memkv.DB
	clk      *clock.Mock
	one, two *kv.Store
	slow     *odd // the engine of the second
	gone     *odd // the engine of the first
}

// newPair opens two stores. Of the guards of the second one, those are left out that lacks selects.
func newPair(t *testing.T, lacks func(c kv.Change, g kv.Item) bool) *pair {
	t.Helper()
	p := &pair{t: t, db: memkv.New(), clk: clock.NewMock()}
	p.clk.Set(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	p.gone = &odd{Engine: p.db.Connect()}
	p.slow = &odd{Engine: p.db.Connect(), commit: func(ctx context.Context, v kv.View, c kv.Change) error {
		return v.Commit(ctx, without(c, func(g kv.Item) bool { return lacks(c, g) }))
	}}
	for _, e := range []*odd{p.gone, p.slow} {
		s, err := kv.Open(t.Context(), e, &kv.Options{Clock: p.clk})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, s.Close()) })
		if p.one == nil {
			p.one = s
		} else {
			p.two = s
		}
	}
	return p
}

// between makes a call on the second store, and another one on the first, which begins and ends just before the commit of the second that is
// selected.
func (p *pair) between(selects func(c kv.Change) bool, slow func(s *kv.Store), other func(s *kv.Store)) {
	p.t.Helper()
	commit := p.slow.commit
	var met sync.Once
	found := false
	p.slow.commit = func(ctx context.Context, v kv.View, c kv.Change) error {
		if selects(c) {
			met.Do(func() { found = true; other(p.one) })
		}
		return commit(ctx, v, c)
	}
	slow(p.two)
	p.slow.commit = commit
	require.True(p.t, found, "the slow call has made no such commit: the scene is about nothing")
}

// crash makes a call on the first store, of which only the first commit arrives.
func (p *pair) crash(call func(s *kv.Store)) {
	first := true
	p.gone.commit = func(ctx context.Context, v kv.View, c kv.Change) error {
		if !first {
			return fmt.Errorf("the process has ended: %w", kv.ErrNothing)
		}
		first = false
		return v.Commit(ctx, c)
	}
	call(p.one)
	p.gone.commit = nil
}

// tells selects changes that tell a job of something for which it waits.
func tells(c kv.Change) bool {
	return slices.ContainsFunc(c.Puts, func(item kv.Item) bool { return item.Key[0] == 'n' })
}

func anyChange(kv.Change) bool { return true }

// enqueue adds jobs on the first store, and returns their ids. Each has a queue of its own, so that each can be claimed by itself.
func (p *pair) enqueue(s *kv.Store, jobs ...contract.NewJob) (ids []int64) {
	p.t.Helper()
	added, err := s.Enqueue(p.t.Context(), contract.EnqueueRequest{Jobs: jobs})
	require.NoError(p.t, err)
	for _, a := range added {
		ids = append(ids, a.ID)
	}
	return ids
}

func (p *pair) claim(queue string) contract.Lease {
	p.t.Helper()
	jobs, err := p.one.FetchAndClaim(p.t.Context(), claimOf(queue, 1))
	require.NoError(p.t, err)
	require.Len(p.t, jobs, 1)
	return jobs[0].Lease()
}

func (p *pair) ack(l contract.Lease) func(s *kv.Store) {
	return func(s *kv.Store) {
		_, err := s.Ack(p.t.Context(), []contract.Ack{{Lease: l}})
		assert.NoError(p.t, err)
	}
}

func (p *pair) settle(s *kv.Store) {
	_, err := s.Settle(p.t.Context(), contract.MaxItems)
	assert.NoError(p.t, err)
}

func (p *pair) state(id int64) contract.State {
	p.t.Helper()
	j, err := p.one.Get(p.t.Context(), id)
	require.NoError(p.t, err)
	return j.Phase()
}

func (p *pair) groups() (names []string) {
	p.t.Helper()
	page, err := p.one.Groups(p.t.Context(), contract.GroupFilter{}, contract.Page{Limit: 10})
	require.NoError(p.t, err)
	for _, g := range page.Groups {
		names = append(names, g.Name)
	}
	return names
}

func inQueue(queue, group string, after ...contract.Wait) contract.NewJob {
	return contract.NewJob{Queue: queue, Kind: "k", Payload: []byte(`1`), Group: group, After: after, MaxRetries: 1}
}

// A scene is two calls of which one comes between the decision and the commit of the other. It ends with what must be so then.
type scene struct {
	guard byte // the table of the keys without whose guards the scene ends badly
	only  bool // leave out only guards of keys that the change does not write
	play  func(p *pair) (got, want any)
}

var scenes = map[string]scene{
	"TwoEndsOfOneWaiter": {guard: 'n', play: func(p *pair) (any, any) {
		ids := p.enqueue(p.one, inQueue("a", ""), inQueue("b", ""), inQueue("c", "", contract.Wait{Item: 0}, contract.Wait{Item: 1}))
		p.between(tells, p.ack(p.claim("a")), p.ack(p.claim("b")))
		p.settle(p.one)
		return p.state(ids[2]), contract.Ready
	}},
	"WaiterOfAJobThatEnds": {guard: 'j', only: true, play: func(p *pair) (any, any) {
		ids := p.enqueue(p.one, inQueue("a", ""), inQueue("b", "", contract.Wait{Item: 0}))
		var late []int64
		p.between(anyChange, func(s *kv.Store) { late = p.enqueue(s, inQueue("c", "", contract.Wait{ID: ids[0]})) }, p.ack(p.claim("a")))
		p.settle(p.one)
		return p.state(late[0]), contract.Ready
	}},
	"RequeueBesideTheEnd": {guard: 'j', only: true, play: func(p *pair) (any, any) {
		ids := p.enqueue(p.one, inQueue("a", ""), inQueue("b", "", contract.Wait{Item: 0}))
		p.ack(p.claim("a"))(p.one)
		p.ack(p.claim("b"))(p.one)
		requeue := func(id int64) func(s *kv.Store) {
			return func(s *kv.Store) {
				_, err := s.Requeue(p.t.Context(), contract.Filter{IDs: []int64{id}}, 1)
				assert.NoError(p.t, err)
			}
		}
		requeue(ids[0])(p.one)
		p.between(anyChange, requeue(ids[1]), p.ack(p.claim("a")))
		p.settle(p.one)
		return p.state(ids[1]), contract.Ready
	}},
	"LastTwoOfAGroup": {guard: 'p', play: func(p *pair) (any, any) {
		ids := p.enqueue(p.one, inQueue("a", "g"), inQueue("b", "g"), inQueue("c", "", contract.Wait{Group: "g"}))
		p.between(anyChange, p.ack(p.claim("a")), p.ack(p.claim("b")))
		p.settle(p.one)
		return p.state(ids[2]), contract.Ready
	}},
	"FirstWaiterOfAGroupThatEnds": {guard: 'g', play: func(p *pair) (any, any) {
		p.enqueue(p.one, inQueue("a", "g"))
		var late []int64
		p.between(anyChange, p.ack(p.claim("a")), func(s *kv.Store) { late = p.enqueue(s, inQueue("c", "", contract.Wait{Group: "g"})) })
		p.settle(p.one)
		return p.state(late[0]), contract.Ready
	}},
	"AnotherWaiterOfAGroupThatEnds": {guard: 'p', play: func(p *pair) (any, any) {
		p.enqueue(p.one, inQueue("a", "g"), inQueue("b", "", contract.Wait{Group: "g"}))
		var late []int64
		p.between(anyChange, func(s *kv.Store) { late = p.enqueue(s, inQueue("c", "", contract.Wait{Group: "g"})) }, p.ack(p.claim("a")))
		p.settle(p.one)
		return p.state(late[0]), contract.Ready
	}},
	"GroupThatIsOverGetsAJob": {guard: 'v', play: func(p *pair) (any, any) {
		ids := p.enqueue(p.one, inQueue("a", "g"), inQueue("b", "", contract.Wait{Group: "g"}))
		p.between(tells, p.ack(p.claim("a")), func(s *kv.Store) { p.enqueue(s, inQueue("c", "g")) })
		return p.state(ids[1]), contract.Blocked
	}},
	"GroupThatIsOverGetsAJobAgain": {guard: 'v', play: func(p *pair) (any, any) {
		ids := p.enqueue(p.one, inQueue("a", "g"), inQueue("b", "g"), inQueue("c", "", contract.Wait{Group: "g"}))
		p.ack(p.claim("a"))(p.one)
		p.between(tells, p.ack(p.claim("b")), func(s *kv.Store) {
			_, err := s.Requeue(p.t.Context(), contract.Filter{IDs: ids[:1]}, 1)
			assert.NoError(p.t, err)
		})
		return p.state(ids[2]), contract.Blocked
	}},
	"GroupIsOpenedAgain": {guard: 'g', play: func(p *pair) (any, any) {
		ids := p.enqueue(p.one, inQueue("a", "g"), inQueue("b", "", contract.Wait{Group: "g"}))
		p.between(tells, p.ack(p.claim("a")), func(s *kv.Store) {
			_, err := s.Enqueue(p.t.Context(), contract.EnqueueRequest{Jobs: []contract.NewJob{inQueue("c", "")}, Open: []string{"g"}})
			assert.NoError(p.t, err)
		})
		return p.state(ids[1]), contract.Blocked
	}},
	"GroupEndsWhileAJobIsTold": {guard: 'p', play: func(p *pair) (any, any) {
		ids := p.enqueue(p.one, inQueue("a", ""), inQueue("b", "g"), inQueue("c", "", contract.Wait{Item: 0}, contract.Wait{Group: "g"}))
		p.between(tells, p.ack(p.claim("a")), p.ack(p.claim("b")))
		p.settle(p.one)
		return p.state(ids[2]), contract.Ready
	}},
	"DeadJobIsDeletedWhileItsEndIsTold": {guard: 't', play: func(p *pair) (any, any) {
		ids := p.enqueue(p.one, inQueue("a", ""), inQueue("b", "", contract.Wait{Item: 0}))
		lease := p.claim("a")
		p.crash(func(s *kv.Store) {
			_, err := s.NAck(p.t.Context(), []contract.NAck{{Lease: lease, Form: contract.Never}})
			assert.NoError(p.t, err)
		})
		p.between(anyChange, p.settle, func(*kv.Store) {
			p.crash(func(s *kv.Store) {
				_, err := s.Delete(p.t.Context(), contract.Filter{IDs: ids[:1]}, 1)
				assert.NoError(p.t, err)
			})
		})
		p.settle(p.one)
		return p.state(ids[1]), contract.Cancelled
	}},
	"LastTwoOfAGroupAreDeleted": {guard: 'p', play: func(p *pair) (any, any) {
		ids := p.enqueue(p.one, inQueue("a", "g"), inQueue("b", "g"))
		_, err := p.one.Cancel(p.t.Context(), contract.Filter{IDs: ids}, 10)
		require.NoError(p.t, err)
		remove := func(id int64) func(s *kv.Store) {
			return func(s *kv.Store) {
				_, err := s.Delete(p.t.Context(), contract.Filter{IDs: []int64{id}}, 1)
				assert.NoError(p.t, err)
			}
		}
		p.between(anyChange, remove(ids[0]), remove(ids[1]))
		return p.groups(), []string(nil)
	}},
	"LastOfAGroupIsDeletedWhileOneComes": {guard: 'v', play: func(p *pair) (any, any) {
		ids := p.enqueue(p.one, inQueue("a", "g"))
		p.ack(p.claim("a"))(p.one)
		p.between(anyChange, func(s *kv.Store) {
			_, err := s.Delete(p.t.Context(), contract.Filter{IDs: ids}, 1)
			assert.NoError(p.t, err)
		}, func(s *kv.Store) { p.enqueue(s, inQueue("b", "g")) })
		return p.groups(), []string{"g"}
	}},
	"JobComesWhileTheLastOfItsGroupIsDeleted": {guard: 'g', play: func(p *pair) (any, any) {
		ids := p.enqueue(p.one, inQueue("a", "g"))
		p.ack(p.claim("a"))(p.one)
		p.between(anyChange, func(s *kv.Store) { p.enqueue(s, inQueue("b", "g")) }, func(s *kv.Store) {
			_, err := s.Delete(p.t.Context(), contract.Filter{IDs: ids}, 1)
			assert.NoError(p.t, err)
		})
		return p.groups(), []string{"g"}
	}},
}

// Whatever comes between the decision of a call and its commit, no job is released early, and none is forgotten.
func TestWaitsBetweenADecisionAndItsCommit(t *testing.T) {
	for name, s := range scenes {
		t.Run(name, func(t *testing.T) {
			got, want := s.play(newPair(t, func(kv.Change, kv.Item) bool { return false }))
			assert.Equal(t, want, got)
		})
	}
}

// Each scene needs a guard: without it, the scene ends badly. So no guard of waits can be left out, and no scene is about nothing.
func TestEachGuardOfWaitsIsNeeded(t *testing.T) {
	if race.Enabled {
		t.Skip("left to the pass without the race detector: what is looked for is no race")
	}
	for name, s := range scenes {
		t.Run(name, func(t *testing.T) {
			got, want := s.play(newPair(t, func(c kv.Change, g kv.Item) bool {
				return g.Key[0] == s.guard && !(s.only && writes(c, g.Key))
			}))
			assert.NotEqual(t, want, got, "without guards of the table %q", s.guard)
		})
	}
}

// writes reports whether the change writes the key.
func writes(c kv.Change, key []byte) bool {
	return slices.ContainsFunc(c.Puts, func(item kv.Item) bool { return string(item.Key) == string(key) })
}

// A process that has ended between two commits of a call has either done nothing, or leaves the rest to Settle in another process.
func TestWaitsSurviveTheEndOfAProcess(t *testing.T) {
	for name, build := range map[string]func(first contract.NewJob) []contract.NewJob{
		"chain": func(first contract.NewJob) []contract.NewJob {
			return []contract.NewJob{first, inQueue("b", "", contract.Wait{Item: 0}), inQueue("c", "", contract.Wait{Item: 1}), inQueue("d", "", contract.Wait{Item: 2})}
		},
		"group": func(first contract.NewJob) []contract.NewJob {
			first.Group = "g"
			return []contract.NewJob{first, inQueue("b", "h", contract.Wait{Group: "g"}), inQueue("c", "", contract.Wait{Group: "h"}), inQueue("d", "", contract.Wait{Item: 0, Any: true})}
		},
		"many": func(first contract.NewJob) []contract.NewJob {
			return append([]contract.NewJob{first}, slices.Repeat([]contract.NewJob{inQueue("b", "", contract.Wait{Item: 0})}, 450)...)
		},
	} {
		for what, end := range map[string]func(ctx context.Context, s *kv.Store, l contract.Lease) error{
			"acked": func(ctx context.Context, s *kv.Store, l contract.Lease) error {
				_, err := s.Ack(ctx, []contract.Ack{{Lease: l}})
				return err
			},
			"cancelled": func(ctx context.Context, s *kv.Store, l contract.Lease) error {
				_, err := s.Cancel(ctx, contract.Filter{IDs: []int64{l.ID}}, 1)
				return err
			},
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				want := ""
				for commits := 100; commits >= 0; { // the first time, nothing ends
					p := newPair(t, func(kv.Change, kv.Item) bool { return false })
					p.enqueue(p.one, build(inQueue("a", ""))...)
					lease := p.claim("a")
					left, made := commits, 0
					p.gone.commit = func(ctx context.Context, v kv.View, c kv.Change) error {
						if left == 0 {
							return fmt.Errorf("the process has ended: %w", kv.ErrNothing)
						}
						left, made = left-1, made+1
						return v.Commit(ctx, c)
					}
					err := end(t.Context(), p.one, lease)
					assert.Equal(t, commits == 0, err != nil, "the call has failed: %v", err)
					if err != nil { // nothing was applied, so it can be repeated
						require.ErrorIs(t, err, contract.ErrUnavailable)
						require.NoError(t, end(t.Context(), p.two, lease))
					}
					p.settle(p.two)
					got := p.summary()
					if commits == 100 {
						want, commits = got, made
						require.Greater(t, made, 1, "the call takes only one commit: the test is about nothing")
					}
					assert.Equal(t, want, got, "after %d commits", commits)
					for _, item := range all(t, p.db) {
						assert.NotEqual(t, byte('t'), item.Key[0], "the note %q is still there", item.Key)
					}
					commits--
				}
			})
		}
	}
}

// summary says how many jobs there are in each queue and phase, with their tokens and errors.
func (p *pair) summary() string {
	p.t.Helper()
	page, err := p.two.List(p.t.Context(), contract.Filter{}, contract.Page{Limit: contract.MaxItems})
	require.NoError(p.t, err)
	n := map[string]int{}
	for _, j := range page.Jobs {
		n[fmt.Sprint(j.Queue, " ", j.Phase(), " ", j.Token, " ", j.Error)]++
	}
	return fmt.Sprint(n)
}

// A store is of layout 3 from the first job on that waits or is in a group, so that programs that know of none of this do not end its jobs.
func TestFirstWaitChangesTheLayout(t *testing.T) {
	for what, req := range map[string]contract.EnqueueRequest{
		"a wait":           {Jobs: []contract.NewJob{inQueue("a", ""), inQueue("b", "", contract.Wait{Item: 0})}},
		"a job in a group": {Jobs: []contract.NewJob{inQueue("a", "g")}},
		"an open group":    {Jobs: []contract.NewJob{inQueue("a", "")}, Open: []string{"g"}},
	} {
		db, s, _ := newStore(t)
		_, err := s.Enqueue(t.Context(), request(1))
		require.NoError(t, err)
		assert.Contains(t, metaOf(t, db), `"Layout":2`, "before %s", what)
		_, err = s.Enqueue(t.Context(), req)
		require.NoError(t, err)
		assert.Contains(t, metaOf(t, db), `"Layout":3`, "after %s", what)
	}
}

func metaOf(t *testing.T, db *memkv.DB) string {
	t.Helper()
	for _, item := range all(t, db) {
		if item.Key[0] == 'm' {
			return string(item.Value)
		}
	}
	return ""
}

// A program that has a store open whose layout a later one changes says so, and not that the store is damaged.
func TestLaterLayoutIsRefusedWhileItIsOpen(t *testing.T) {
	db, s, _ := newStore(t)
	commit(t, db, kv.Change{Puts: []kv.Item{{Key: []byte("m"), Value: []byte(`{"Layout":6}`)}}})
	_, err := s.Enqueue(t.Context(), request(1))
	require.ErrorIs(t, err, contract.ErrUnavailable)
	assert.ErrorContains(t, err, "its keys have the layout 6, and this version of jq knows 5")
}

// Most jobs of a group end without a note, and without a look at those who wait: that would be three trips and a commit for each.
func TestMostEndsInAGroupFollowNothing(t *testing.T) {
	db := memkv.New()
	e, counts := counting(db)
	s, _ := open(t, e)
	_, err := s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: append(slices.Repeat([]contract.NewJob{inQueue("a", "g")}, 3), inQueue("b", "", contract.Wait{Group: "g"}))})
	require.NoError(t, err)
	jobs, err := s.FetchAndClaim(t.Context(), claimOf("a", 3))
	require.NoError(t, err)
	for i, commits := range []int64{1, 1, 2} {
		counts.take()
		_, err = s.Ack(t.Context(), []contract.Ack{{Lease: jobs[i].Lease()}})
		require.NoError(t, err)
		assert.Equal(t, commits, counts.take()[3], "commits of the Ack of job %d of 3", i+1)
	}
}

// Two calls that end jobs of one group, each in a store of its own, do not conflict as long as others are live.
func TestEndsInAGroupDoNotConflict(t *testing.T) {
	p := newPair(t, func(kv.Change, kv.Item) bool { return false })
	p.enqueue(p.one, append(slices.Repeat([]contract.NewJob{inQueue("z", "g")}, 100), inQueue("a", "g"), inQueue("b", "g"), inQueue("c", "", contract.Wait{Group: "g"}))...)
	p.enqueue(p.one, slices.Repeat([]contract.NewJob{inQueue("z", "g")}, 100)...)
	p.withoutConflicts(anyChange, p.ack(p.claim("a")), p.ack(p.claim("b")))
	p.withoutConflicts(anyChange, func(s *kv.Store) { p.enqueue(s, inQueue("d", "g")) }, func(s *kv.Store) { p.enqueue(s, inQueue("e", "g")) })
	p.withoutConflicts(anyChange, p.ack(p.claim("d")), func(s *kv.Store) { p.enqueue(s, inQueue("f", "g")) })
}

// withoutConflicts is between for a slow call whose commits must not conflict.
func (p *pair) withoutConflicts(selects func(c kv.Change) bool, slow, other func(s *kv.Store)) {
	p.t.Helper()
	commit := p.slow.commit
	p.slow.commit = func(ctx context.Context, v kv.View, c kv.Change) error {
		err := commit(ctx, v, c)
		assert.NoError(p.t, err)
		return err
	}
	p.between(selects, slow, other)
	p.slow.commit = commit
}

// A call whose jobs are all duplicates makes no group, although they name one.
func TestDuplicatesMakeNoGroup(t *testing.T) {
	p := newPair(t, func(kv.Change, kv.Item) bool { return false })
	held := inQueue("a", "")
	held.UniqueKey = "key"
	p.enqueue(p.one, held)
	member, waiting := inQueue("a", "g"), inQueue("a", "", contract.Wait{Group: "g"})
	member.UniqueKey, waiting.UniqueKey = "key", "key"
	p.enqueue(p.one, member, waiting)
	assert.Empty(t, p.groups())
}

// Workers of several stores end the jobs of groups at the same time. Each job that waits for a group is claimed once, and only
// when all jobs of its group have ended.
func TestStoresEndGroupsTogether(t *testing.T) {
	const flows, each, stores, workers = 12, 15, 3, 2
	s, err := openSeveral(t.Context(), stores, clock.NewMock(), memkv.New().Connect)
	require.NoError(t, err)
	defer func() { assert.NoError(t, s.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var mu sync.Mutex // guards claimed
	claimed := map[string]int{}

	work := func(one *kv.Store) error {
		for idle := 0; idle < 3; {
			jobs, err := one.FetchAndClaim(ctx, contract.ClaimRequest{Queue: "q", Limit: 4, Worker: "w", TTL: time.Minute})
			if err != nil {
				return err
			}
			if len(jobs) == 0 {
				if _, err := one.Settle(ctx, contract.MaxItems); err != nil {
					return err
				}
				mu.Lock()
				if len(claimed) == flows {
					idle++
				}
				mu.Unlock()
				continue
			}
			var acks []contract.Ack
			for _, j := range jobs {
				acks = append(acks, contract.Ack{Lease: j.Lease()})
				if j.Group() != "" {
					continue
				}
				group := string(j.Payload)
				mu.Lock()
				claimed[group]++
				mu.Unlock()
				ended, err := one.Count(ctx, contract.Filter{Group: group})
				if err != nil {
					return err
				}
				assert.EqualValues(t, each, ended.Queues[0].Jobs[contract.Succeeded], "jobs of %s that had succeeded when the one after it was claimed", group)
			}
			if _, err := one.Ack(ctx, acks); err != nil {
				return err
			}
		}
		return nil
	}
	var all sync.WaitGroup
	for i, one := range s.Stores {
		all.Go(func() {
			for f := i; f < flows; f += stores {
				group := fmt.Sprintf(`"group %d"`, f)
				var req contract.EnqueueRequest
				for range each {
					req.Jobs = append(req.Jobs, contract.NewJob{Queue: "q", Kind: "k", Payload: []byte(group), Group: group})
				}
				req.Jobs = append(req.Jobs, contract.NewJob{Queue: "q", Kind: "k", Payload: []byte(group), After: []contract.Wait{{Group: group}}})
				_, err := one.Enqueue(ctx, req)
				assert.NoError(t, err)
			}
		})
		for range workers {
			all.Go(func() { assert.NoError(t, work(one)) })
		}
	}
	all.Wait()
	require.Len(t, claimed, flows, "groups after which a job was claimed")
	for group, times := range claimed {
		assert.Equal(t, 1, times, "how often the job after %s was claimed", group)
	}
}

// The error of a job names what came about first, also within a call: that its group was spoiled, or that a job which it needs was cancelled.
func TestErrorNamesWhatCameFirst(t *testing.T) {
	for name, order := range map[string][]int{`group "g", which it needs, has a job that was cancelled or deleted`: {0, 1}, "job %d, which it needs, was cancelled": {1, 0}} {
		_, s, _ := newStore(t)
		added, err := s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: []contract.NewJob{inQueue("a", "g"), inQueue("a", "")}})
		require.NoError(t, err)
		waiting, err := s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: []contract.NewJob{
			inQueue("b", "", contract.Wait{Group: "g"}, contract.Wait{ID: added[1].ID}),
		}})
		require.NoError(t, err)
		_, err = s.Cancel(t.Context(), contract.Filter{IDs: []int64{added[order[0]].ID, added[order[1]].ID}}, 2)
		require.NoError(t, err)
		j, err := s.Get(t.Context(), waiting[0].ID)
		require.NoError(t, err)
		assert.Equal(t, contract.Cancelled, j.State)
		assert.Equal(t, strings.ReplaceAll(name, "%d", fmt.Sprint(added[1].ID)), j.Error)
	}
}

// A Settle that has changed nothing before it fails says so: an empty answer means that there is nothing to do.
func TestSettleThatFailsIsNoEmptyOne(t *testing.T) {
	e := &odd{Engine: memkv.New().Connect()}
	s, clk := open(t, e)
	n := inQueue("a", "")
	n.UniqueKey, n.UniqueFor = "u", time.Minute
	_, err := s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: []contract.NewJob{n}})
	require.NoError(t, err)
	clk.Add(time.Hour)
	commits := 0
	e.commit = func(ctx context.Context, v kv.View, c kv.Change) error { // that forgets the unique key
		commits++
		e.view = func(context.Context) (kv.View, error) { return nil, errors.New("away") }
		return v.Commit(ctx, c)
	}
	settled, err := s.Settle(t.Context(), 10)
	require.Equal(t, 1, commits)
	assert.ErrorIs(t, err, contract.ErrUnavailable)
	assert.Empty(t, settled)
	e.commit, e.view = nil, nil
}
