package kv_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/spread"
	"github.com/seed-ed332417/jq/jqtest"
	"github.com/seed-ed332417/jq/kv"
	"github.com/seed-ed332417/jq/kv/internal/memkv"
)

// openSeveral opens stores on the same map.
func openSeveral(ctx context.Context, n int, clk clock.Clock, connect func() kv.Engine) (*spread.Store, error) {
	return spread.Open(ctx, n, clk, func() (kv.Engine, error) { return connect(), nil })
}

// The suite on three stores, each of which makes every third call, and raises its marks. Their engines have a clock.
func TestConformanceOfSeveralStores(t *testing.T) {
	const (
		noClock = "each store keeps its own latest time, like stores in several processes without a clock in common"
		noJump  = "a store that has not seen that the clock was ahead looks for such leases twice a minute"
		noRoom  = "a store tells of room under a limit in its own process: servers elsewhere find it when they look"
	)
	exclude := maps.Clone(excluded)
	maps.Copy(exclude, map[string]string{
		"Time/NowStandsStillWhileTheClockIsBehindALittle": noClock, "Time/FollowsToTheMicrosecond": noClock, "Ahead/ByWhenItWasGivenToTheMicrosecond": noClock,
		"Ahead/LeaseOfAClockThatWasAheadRunsFromNow": noJump,
		"Notify/FollowsRoom":                         noRoom, "Notify/FollowsRoomUnderARate": noRoom,
	})
	a := raising(t, 3, func(w *watched, clk clock.Clock) func() kv.Engine {
		return func() kv.Engine {
			e := w.connect()
			return struct {
				timed
				kv.Watcher
			}{timed{e, clk.Now}, e.(kv.Watcher)}
		}
	})
	a.Exclude = exclude
	jqtest.Cases(t, a)
}

func TestHistoriesOnSeveralStores(t *testing.T) {
	jqtest.Linear(t, jqtest.Adapter{New: newSpread, Exclude: excluded}, 50)
	jqtest.Linear(t, raising(t, 3, nil), 50)
}

func newSpread(ctx context.Context, clk clock.Clock) (*jqtest.Instance, error) {
	db := memkv.New()
	return jqtest.Reopened(ctx, func(ctx context.Context) (contract.Store, error) { return openSeveral(ctx, 3, clk, db.Connect) }, nil)
}

// Stores that know nothing of each other claim, finish and lose the same jobs at once. Each pair of id and token is given once, and each job
// succeeds once.
func TestStoresOnOneEngineShareTheirJobs(t *testing.T) {
	const jobs, stores, each = 600, 3, 2
	clk := clock.NewMock()
	s, err := openSeveral(t.Context(), stores, clk, memkv.New().Connect)
	require.NoError(t, err)
	defer func() { assert.NoError(t, s.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	r := &run{given: map[contract.Lease]string{}, ended: map[int64]int{}, want: jobs}
	r.share(ctx, t, s.Stores, each, clk)
	counts, err := s.Count(ctx, contract.Filter{})
	require.NoError(t, err)
	require.Len(t, counts.Queues, 1)
	assert.Equal(t, map[contract.State]int64{contract.Succeeded: jobs}, counts.Queues[0].Jobs)
}

// A late clock is behind another one.
type lateClock struct {
	clock.Clock
	by time.Duration
}

func (c lateClock) Now() time.Time { return c.Clock.Now().Add(-c.by) }

// Clocks that differ by more than marks are behind the time put jobs and leases before them.
func TestStoresWithMarksAndOtherClocksShareTheirJobs(t *testing.T) {
	const jobs, each = 300, 2
	clk := clock.NewMock()
	w := &watched{t: t, DB: memkv.New()}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var stores []*kv.Store
	for i := range 3 {
		s, err := kv.Open(ctx, w.connect(), &kv.Options{Clock: lateClock{clk, time.Duration(2*i) * time.Second}})
		require.NoError(t, err)
		defer func() { assert.NoError(t, s.Close()) }()
		s.RaiseAlways()
		stores = append(stores, s)
	}
	one := contract.EnqueueRequest{Jobs: []contract.NewJob{{Queue: "before", Kind: "k", Payload: []byte(`1`)}}}
	for _, s := range []*kv.Store{stores[0], stores[2]} { // the first one raises a mark, which the last one takes away, whatever happens later
		_, err := s.Enqueue(ctx, one)
		require.NoError(t, err)
		require.NoError(t, s.Ping(ctx)) // so that it knows the line
		_, err = s.FetchAndClaim(ctx, claimOf("before", 1))
		require.NoError(t, err)
	}
	require.Positive(t, w.held.Load(), "marks that held")
	require.Positive(t, w.taken.Load(), "marks that were taken away")
	r := &run{given: map[contract.Lease]string{}, ended: map[int64]int{}, want: jobs}
	r.share(ctx, t, stores, each, clk)
}

// share lets the stores produce and do all jobs, each by a number of workers.
func (r *run) share(ctx context.Context, t *testing.T, stores []*kv.Store, each int, clk *clock.Mock) {
	t.Helper()
	var all sync.WaitGroup
	for i, one := range stores {
		for n := range each {
			name := fmt.Sprintf("store %d, worker %d", i, n)
			all.Go(func() { assert.NoError(t, r.produce(ctx, one, name, r.want/len(stores)/each)) })
			all.Go(func() { assert.NoError(t, r.consume(ctx, one, clk, name)) })
		}
	}
	all.Wait()
	assert.Empty(t, r.twice, "leases that were given twice")
	assert.Len(t, r.ended, r.want)
	for id, times := range r.ended {
		assert.Equal(t, 1, times, "how often job %d succeeded", id)
	}
}

// A run is what workers of several stores saw.
type run struct {
	want int

	mu    sync.Mutex
	given map[contract.Lease]string // to whom
	twice []string
	ended map[int64]int // how often each job succeeded
}

func (r *run) produce(ctx context.Context, s contract.Store, name string, jobs int) error {
	for i := range jobs {
		req := contract.EnqueueRequest{Jobs: []contract.NewJob{{
			Queue: "q", Kind: "k", Payload: []byte(`1`), MaxRetries: 1000, UniqueKey: fmt.Sprint(name, " ", i), Backoff: contract.Backoff{},
		}}}
		if _, err := s.Enqueue(ctx, req); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// consume claims until all jobs have succeeded. It loses every seventh lease on purpose.
func (r *run) consume(ctx context.Context, s contract.Store, clk *clock.Mock, name string) error {
	for round := 0; ; round++ {
		claimed, err := s.FetchAndClaim(ctx, contract.ClaimRequest{Queue: "q", Limit: 1 + round%4, Worker: name, TTL: time.Second})
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		r.note(name, claimed)
		for i, j := range claimed {
			if (round+i)%7 == 6 {
				continue
			}
			outcomes, err := s.Ack(ctx, []contract.Ack{{Lease: j.Lease()}})
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if outcomes[0].Status == contract.StatusOK {
				r.succeeded(j.ID)
			}
		}
		if len(claimed) == 0 {
			if r.done() {
				return nil
			}
			clk.Add(time.Second)
			if _, err := s.RecoverExpiredLeases(ctx, contract.RecoverRequest{Limit: 100}); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
}

func (r *run) note(name string, claimed []contract.Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, j := range claimed {
		if before, known := r.given[j.Lease()]; known {
			r.twice = append(r.twice, fmt.Sprintf("%v to %s, then to %s", j.Lease(), before, name))
		}
		r.given[j.Lease()] = name
	}
}

func (r *run) succeeded(id int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended[id]++
}

func (r *run) done() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ended) == r.want
}

// Two claims on a queue that may have one job in flight commit at once, each in a store of its own. One of them gets a job.
func TestClaimsUnderALimitConflict(t *testing.T) {
	assert.Equal(t, 1, claimedAtOnce(t, func(*memkv.DB) *odd { return &odd{} }))
}

// claimedAtOnce returns how many jobs both claims got.
func claimedAtOnce(t *testing.T, engine func(*memkv.DB) *odd) (total int) {
	t.Helper()
	db := memkv.New()
	shared := engine(db)
	var armed atomic.Bool
	var both sync.WaitGroup
	both.Add(2)
	s, err := openSeveral(t.Context(), 2, clock.NewMock(), func() kv.Engine {
		o, first := *shared, true
		o.Engine = db.Connect()
		commit := o.commit
		o.commit = func(ctx context.Context, v kv.View, c kv.Change) error {
			if armed.Load() && first {
				first = false
				both.Done()
				both.Wait() // the other claim has decided too
			}
			if commit == nil {
				return v.Commit(ctx, c)
			}
			return commit(ctx, v, c)
		}
		return &o
	})
	require.NoError(t, err)
	defer func() { assert.NoError(t, s.Close()) }()
	one := contract.NewJob{Queue: "q", Kind: "k", Payload: []byte(`1`), MaxRetries: 1}
	_, err = s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: []contract.NewJob{one, one}})
	require.NoError(t, err)
	_, err = s.SetPolicy(t.Context(), "q", contract.Policy{MaxInFlight: 1})
	require.NoError(t, err)
	// A claim before them, so that one of the jobs is a retry, and the key that such claims write is there.
	before, err := s.FetchAndClaim(t.Context(), contract.ClaimRequest{Queue: "q", Limit: 1, Worker: "w", TTL: time.Second})
	require.NoError(t, err)
	require.Len(t, before, 1)
	_, err = s.NAck(t.Context(), []contract.NAck{{Lease: before[0].Lease(), Form: contract.Fail}})
	require.NoError(t, err)

	armed.Store(true)
	var all sync.WaitGroup
	var claimed atomic.Int64
	for i, one := range s.Stores {
		all.Go(func() {
			// One takes the retry and the other one the fresh job, so that only the limit is between them.
			jobs, err := one.FetchAndClaim(t.Context(), contract.ClaimRequest{Queue: "q", Limit: 1, RetryQuota: i, Worker: "w", TTL: time.Second})
			assert.NoError(t, err)
			claimed.Add(int64(len(jobs)))
		})
	}
	all.Wait()
	return int(claimed.Load())
}

// A unique key is taken, its window ends, and it is forgotten, all while a slow call believes that it is free. The slow call must not hold the key from before that window.
func TestUniqueKeyCameAndWentDuringACall(t *testing.T) {
	job := contract.NewJob{Queue: "q", Kind: "k", Payload: []byte(`{}`), UniqueKey: "u", UniqueFor: time.Minute}
	enqueue := func(s *kv.Store) contract.Enqueued {
		added, err := s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: []contract.NewJob{job}})
		require.NoError(t, err)
		return added[0]
	}
	for name, add := range map[string]func(s *kv.Store, by contract.Schedule) contract.Enqueued{
		"Enqueue": func(s *kv.Store, _ contract.Schedule) contract.Enqueued { return enqueue(s) },
		"Fire": func(s *kv.Store, by contract.Schedule) contract.Enqueued {
			fired, err := s.Fire(t.Context(), []contract.Firing{{Name: by.Name, Revision: by.Revision, For: by.NextAt, Next: by.NextAt.Add(time.Hour)}})
			require.NoError(t, err)
			require.NotNil(t, fired[0].Job, fired[0].Reason)
			return *fired[0].Job
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, func(kv.Change, kv.Item) bool { return false })
			by, err := p.one.SetSchedule(t.Context(), contract.Schedule{Name: "s", Cron: "@every 1h", Job: job, NextAt: p.clk.Now()})
			require.NoError(t, err)
			when := func(s *kv.Store, added contract.Enqueued) time.Time {
				require.False(t, added.Duplicate)
				j, err := s.Get(t.Context(), added.ID)
				require.NoError(t, err)
				return j.EnqueuedAt
			}
			p.enqueue(p.one, contract.NewJob{Queue: "another", Kind: "k", Payload: []byte(`{}`)}) // so that the first job is not what the calls conflict about
			var quick, slow time.Time
			p.between(anyChange, func(s *kv.Store) { slow = when(s, add(s, by)) }, func(s *kv.Store) {
				p.clk.Add(time.Second)
				quick = when(s, enqueue(s))
				require.Equal(t, 1, keysIn(t, p.db, "u"))
				p.clk.Add(time.Minute)
				_, err := s.RecoverExpiredLeases(t.Context(), contract.RecoverRequest{Limit: 1})
				require.NoError(t, err)
				require.Zero(t, keysIn(t, p.db, "u"), "the key must be forgotten")
			})
			assert.False(t, slow.Before(quick.Add(time.Minute)), "enqueued at %v, within the window of the key that began at %v", slow, quick)
		})
	}
}
