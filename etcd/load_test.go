//go:build unix

package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/etcd"
	"github.com/seed-ed332417/jq/etcd/internal/etcdtest"
	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/kv"
)

// A load is producers and workers on two stores, and what they were told. It judges the store: nothing answered is lost, and no lease is given twice.
type load struct {
	t      *testing.T
	stores []*kv.Store
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu       sync.Mutex // guards what follows
	idle     bool       // producers make no more jobs
	maybe    int        // jobs whose Enqueue is in doubt
	enqueued map[int64]bool
	given    map[contract.Lease]bool
	ended    map[int64]int // how often an Ack of the job was answered with ok
	wrong    []string
	failed   map[string]int // calls that failed, by the contract's error
	commits  int            // calls that changed something and were answered
	latest   time.Time      // when the last of them was answered
	longest  time.Duration  // the longest time between two of them
	broken   time.Time      // when the test broke something
}

const (
	producers = 2
	workers   = 4
	batch     = 10
	backlog   = 500 // producers wait if so many jobs have not ended
	lease     = 3 * time.Second
	callTime  = 15 * time.Second // bounds a call of the load
	drainTime = 2 * time.Minute  // bounds what is waited for
	look      = 5 * time.Millisecond
)

// begin starts a load on the cluster, at some endpoints, or at those of all members.
func begin(t *testing.T, c *etcdtest.Cluster, endpoints ...string) *load {
	t.Helper()
	if endpoints == nil {
		endpoints = c.Endpoints()
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{t: t, cancel: cancel, enqueued: map[int64]bool{}, given: map[contract.Lease]bool{}, ended: map[int64]int{}, failed: map[string]int{}}
	t.Cleanup(func() {
		cancel()
		l.all.Wait()
		for _, s := range l.stores {
			assert.NoError(t, s.Close())
		}
	})
	for range 2 {
		e, err := etcd.New(t.Context(), clientv3.Config{Endpoints: endpoints}, "load")
		require.NoError(t, err)
		s, err := kv.Open(t.Context(), e, &kv.Options{Logger: slog.New(slog.DiscardHandler)}) // of lost watches
		require.NoError(t, err)
		l.stores = append(l.stores, s)
	}
	for i := range producers {
		l.all.Go(func() { l.loop(ctx, func(ctx context.Context) bool { return l.produce(ctx, l.stores[i%2]) }) })
	}
	for i := range workers {
		name := fmt.Sprint("worker ", i)
		l.all.Go(func() { l.loop(ctx, func(ctx context.Context) bool { return l.work(ctx, l.stores[i%2], name) }) })
	}
	l.all.Go(func() { l.loop(ctx, func(ctx context.Context) bool { return l.recover(ctx, l.stores[0]) }) })
	return l
}

// loop calls until the load ends. If a call had nothing to do or failed, it waits a little.
func (l *load) loop(ctx context.Context, call func(context.Context) bool) {
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, callTime)
		done := call(limited)
		cancel()
		if done {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(look):
		}
	}
}

// answered notes how a call ended, and reports whether it took effect.
func (l *load) answered(err error, changed bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil && changed:
		now := time.Now()
		if !l.latest.IsZero() {
			l.longest = max(l.longest, now.Sub(l.latest))
		}
		l.commits++
		l.latest = now
	case err == nil:
	case errors.Is(err, contract.ErrInDoubt):
		l.failed["in doubt"]++
	case errors.Is(err, contract.ErrUnavailable):
		l.failed["unavailable"]++
	default:
		l.wrong = append(l.wrong, err.Error())
	}
	return err == nil && changed
}

func (l *load) produce(ctx context.Context, s *kv.Store) bool {
	l.mu.Lock()
	rest := l.idle || len(l.enqueued)-len(l.ended) > backlog
	l.mu.Unlock()
	if rest {
		return false
	}
	one := contract.NewJob{Queue: "q", Kind: "k", Payload: []byte(`{"to":"ada@example.org"}`), MaxRetries: 1000}
	added, err := s.Enqueue(ctx, contract.EnqueueRequest{Jobs: slices.Repeat([]contract.NewJob{one}, batch)})
	l.mu.Lock()
	if errors.Is(err, contract.ErrInDoubt) {
		l.maybe += batch
	}
	for _, j := range added {
		if l.enqueued[j.ID] {
			l.wrong = append(l.wrong, fmt.Sprintf("the id %d was given twice", j.ID))
		}
		l.enqueued[j.ID] = true
	}
	l.mu.Unlock()
	return l.answered(err, true)
}

func (l *load) work(ctx context.Context, s *kv.Store, name string) bool {
	jobs, err := s.FetchAndClaim(ctx, contract.ClaimRequest{Queue: "q", Limit: batch, RetryQuota: batch, Worker: name, TTL: lease})
	if !l.answered(err, len(jobs) > 0) {
		return false
	}
	acks := make([]contract.Ack, len(jobs))
	l.mu.Lock()
	for i, j := range jobs {
		if l.given[j.Lease()] {
			l.wrong = append(l.wrong, fmt.Sprintf("the lease %v was given twice", j.Lease()))
		}
		l.given[j.Lease()] = true
		acks[i].Lease = j.Lease()
	}
	l.mu.Unlock()
	outcomes, err := s.Ack(ctx, acks)
	l.mu.Lock()
	for _, o := range outcomes {
		if o.Status == contract.StatusOK {
			l.ended[o.ID]++
		}
	}
	l.mu.Unlock()
	return l.answered(err, true)
}

func (l *load) recover(ctx context.Context, s *kv.Store) bool {
	recovered, err := s.RecoverExpiredLeases(ctx, contract.RecoverRequest{Limit: 100})
	l.answered(err, len(recovered) > 0)
	select {
	case <-ctx.Done():
	case <-time.After(lease / 10):
	}
	return true
}

// serves waits until some more calls were answered.
func (l *load) serves() {
	l.t.Helper()
	until := l.count() + calls
	l.await("calls are answered", func() bool { return l.count() >= until })
}

// eachServes waits until each store has answered a read, and returns how long that took.
func (l *load) eachServes() time.Duration {
	l.t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(l.t.Context(), drainTime)
	defer cancel()
	for _, s := range l.stores {
		require.NoError(l.t, s.Ping(ctx), "a store that is not served")
	}
	return time.Since(began).Round(10 * time.Millisecond)
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.commits
}

// await waits for a condition.
func (l *load) await(what string, is func() bool) {
	l.t.Helper()
	deadline, tick := time.After(drainTime), time.NewTicker(look)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline:
			l.mu.Lock()
			defer l.mu.Unlock()
			require.Fail(l.t, "waited too long until "+what, "%d calls were answered; failed: %v; %v", l.commits, l.failed, l.wrong)
		}
	}
}

// without begins to look for the longest time without service.
func (l *load) without() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.longest, l.broken = 0, time.Now()
	l.latest = l.broken
}

// since returns how long ago that was.
func (l *load) since() time.Duration { return time.Since(l.broken).Round(10 * time.Millisecond) }

// outage returns the longest time without service.
func (l *load) outage() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.longest, time.Since(l.latest)).Round(10 * time.Millisecond)
}

// finish lets all jobs end and judges.
func (l *load) finish(what string) {
	l.t.Helper()
	l.mu.Lock()
	l.idle = true
	l.mu.Unlock()
	ctx := l.t.Context()
	live := contract.Filter{States: []contract.State{contract.Ready, contract.Retrying, contract.InFlight}}
	l.await("all jobs have ended", func() bool {
		counts, err := l.stores[0].Count(ctx, live)
		return err == nil && len(counts.Queues) == 0
	})
	l.cancel()
	l.all.Wait()

	assert.Empty(l.t, l.wrong)
	ids, lost := slices.Sorted(maps.Keys(l.enqueued)), 0
	for some := range slices.Chunk(ids, 100) {
		page, err := l.stores[0].List(ctx, contract.Filter{IDs: some, States: []contract.State{contract.Succeeded}}, contract.Page{Limit: 100})
		require.NoError(l.t, err)
		lost += len(some) - len(page.Jobs)
	}
	for id, times := range l.ended {
		assert.Equal(l.t, 1, times, "how often job %d succeeded", id)
	}
	counts, err := l.stores[0].Count(ctx, contract.Filter{})
	require.NoError(l.t, err)
	require.Len(l.t, counts.Queues, 1)
	assert.LessOrEqual(l.t, int(counts.Queues[0].Jobs[contract.Succeeded]), len(ids)+l.maybe, "jobs that nobody has enqueued")
	assert.Zero(l.t, lost, "jobs whose Enqueue was answered, and which have not succeeded")
	figures.Print(l.t, "%s: %d jobs, %d acks and %d leases were answered, %d jobs lost; failed calls: %d in doubt, %d with nothing applied",
		what, len(ids), len(l.ended), len(l.given), lost, l.failed["in doubt"], l.failed["unavailable"])
	figures.Count(l.t, "jobs", len(ids))
	figures.Count(l.t, figures.Lost, lost)
}
