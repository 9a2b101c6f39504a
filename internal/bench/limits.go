package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/store"
)

// Parts of the workload limits, by the number of claimers.
const (
	OneClaimer   = "1-claimer"
	SomeClaimers = "8-claimers"
	ManyClaimers = "32-claimers"
)

// Names of the policies of the workload limits.
const (
	MaxInFlight = "max_in_flight"
	MaxPerKey   = "max_per_key"
)

// A limiting is a policy that never binds, and how many keys the jobs have in turn.
type limiting struct {
	name   string
	policy jq.Policy
	keys   int
}

// limitings returns the policies. The first one is none.
func limitings() []limiting {
	return []limiting{
		{name: "free"},
		{name: MaxInFlight, policy: jq.Policy{MaxInFlight: store.MaxLimit}},
		{name: MaxPerKey, policy: jq.Policy{MaxPerKey: 50}, keys: 1_000},
	}
}

// limited measures claims and acks without a policy and with limits that never bind.
func limited(ctx context.Context, r *run) ([]Part, error) {
	var parts []Part
	for _, p := range []struct {
		name     string
		claimers int
	}{{OneClaimer, 1}, {SomeClaimers, 8}, {ManyClaimers, 32}} {
		part, err := r.limits(ctx, p.name, p.claimers)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// limits measures each policy twice, in an order from which none gains more: the store grows meanwhile. What comes first also opens
// connections and files, so it is not counted.
func (r *run) limits(ctx context.Context, name string, claimers int) (Part, error) {
	free, inFlight, perKey := 0, 1, 2
	policies := limitings()
	figures := make([][][]Figure, len(policies))
	for i, policy := range []int{free, free, inFlight, perKey, perKey, inFlight, free} {
		l := policies[policy]
		other := r.beside(fmt.Sprintf("%s-%s-%d", name, l.name, i))
		other.o.Jobs = max(1, r.o.Jobs/2)
		if i == 0 {
			other.o.Jobs = max(1, r.o.Jobs/10)
		}
		some, err := other.underLimit(ctx, l, claimers)
		if err != nil {
			return Part{}, fmt.Errorf("%s: %w", l.name, err)
		}
		if i > 0 {
			figures[policy] = append(figures[policy], some)
		}
	}
	part := Part{name, mean(figures[free])}
	for i, l := range policies[1:] {
		part = withRate(part, l.name, Part{Figures: mean(figures[i+1])})
	}
	return part, nil
}

// withRate adds the rate under a policy, and its share of the rate without one.
func withRate(free Part, policy string, under Part) Part {
	all, _ := free.Figure(Rate)
	mine, _ := under.Figure(Rate)
	mine.Name = policy + " " + Rate
	free.Figures = append(free.Figures, mine)
	if all.Value > 0 {
		free.Figures = append(free.Figures, Figure{policy + " to free", "%", 100 * mine.Value / all.Value})
	}
	return free
}

// underLimit measures claimers until they have claimed and acked all jobs.
func (r *run) underLimit(ctx context.Context, l limiting, claimers int) (figures []Figure, err error) {
	defer func() { err = errors.Join(err, r.lift(ctx, l.policy), r.remove(ctx)) }()
	if err := r.limit(ctx, l.policy); err != nil {
		return nil, err
	}
	if err := r.fillKeys(ctx, 0, r.o.Jobs, l.keys); err != nil {
		return nil, err
	}
	var claimed, done atomic.Int64
	m, err := r.measure(ctx, done.Load, ofJobs("claiming with "+l.name, done.Load, int64(r.o.Jobs)))
	if err != nil {
		return nil, err
	}
	defer m.halt()
	use := newUse(l.policy)
	group, inTime := errgroup.WithContext(ctx)
	for range claimers {
		group.Go(func() error { return r.claimAll(inTime, use, &claimed, &done) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if figures, err = m.stop(ctx); err != nil {
		return nil, err
	}
	return figures, errors.Join(r.verify(ctx, map[jq.State]int64{jq.Succeeded: int64(r.o.Jobs)}), r.stillLimited(ctx, l.policy))
}

// claimAll claims and acks until all jobs were claimed. It counts them for all claimers.
func (r *run) claimAll(ctx context.Context, use *use, claimed, done *atomic.Int64) error {
	for since := time.Now(); claimed.Load() < int64(r.o.Jobs); {
		jobs, err := r.claim(ctx, r.o.Batch)
		if err == nil {
			err = use.begin(jobs)
		}
		if err != nil {
			return err
		}
		claimed.Add(int64(len(jobs)))
		if len(jobs) == 0 { // other claimers may hold what is left
			if time.Since(since) >= stuck {
				return fmt.Errorf("the run does not count: %d of %d jobs are done, and claims have found nothing for %v", done.Load(), r.o.Jobs, stuck)
			}
			if err := sleep(ctx, watched); err != nil {
				return err
			}
			continue
		}
		use.end(jobs)
		if err := r.ack(ctx, jobs); err != nil {
			return err
		}
		done.Add(int64(len(jobs)))
		since = time.Now()
	}
	return nil
}

// A use watches that no more jobs are in flight than a policy allows. Jobs count from after their claim until before their ack, so it
// never sees more than there are.
type use struct {
	policy jq.Policy

	mu   sync.Mutex // guards the fields below
	all  int
	keys map[string]int
}

func newUse(p jq.Policy) *use { return &use{policy: p, keys: map[string]int{}} }

func (u *use) begin(jobs []jq.Job) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.all += len(jobs)
	if limit := u.policy.MaxInFlight; limit > 0 && u.all > limit {
		return fmt.Errorf("the run does not count: %d jobs are in flight where %d may be", u.all, limit)
	}
	for _, j := range jobs {
		key := j.LimitKey()
		if key == "" {
			continue
		}
		u.keys[key]++
		if limit := u.policy.MaxPerKey; limit > 0 && u.keys[key] > limit {
			return fmt.Errorf("the run does not count: %d jobs of the key %s are in flight where %d may be", u.keys[key], key, limit)
		}
	}
	return nil
}

func (u *use) end(jobs []jq.Job) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.all -= len(jobs)
	for _, j := range jobs {
		u.keys[j.LimitKey()]--
	}
}

// limit sets the policy of the queue, if there is one.
func (r *run) limit(ctx context.Context, p jq.Policy) error {
	if !p.Sets() {
		return nil
	}
	_, err := r.client().SetPolicy(ctx, r.queue, p)
	return err
}

// stillLimited checks that the queue has that policy.
func (r *run) stillLimited(ctx context.Context, want jq.Policy) error {
	got, err := r.client().Policy(ctx, r.queue)
	if err != nil {
		return fmt.Errorf("cannot verify the policy: %w", err)
	}
	if got.Fair != want.Fair {
		return fmt.Errorf("the run does not count: the queue is fair: %t, where %t should be", got.Fair, want.Fair)
	}
	if got.MaxInFlight != want.MaxInFlight || got.MaxPerKey != want.MaxPerKey {
		return fmt.Errorf("the run does not count: the queue has max_in_flight %d and max_per_key %d where %d and %d should be",
			got.MaxInFlight, got.MaxPerKey, want.MaxInFlight, want.MaxPerKey)
	}
	return nil
}

// lift takes the policy back that was set, even if the context has ended. Like the jobs, the policy stays if they are to be kept.
func (r *run) lift(ctx context.Context, set jq.Policy) error {
	if r.o.Keep || !set.Sets() {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	current, err := r.client().Policy(ctx, r.queue)
	if err == nil && current.Sets() {
		_, err = r.client().SetPolicy(ctx, r.queue, jq.Policy{Version: current.Version})
	}
	if err != nil {
		return fmt.Errorf("the queue %s is still limited: %w", r.queue, err)
	}
	return nil
}

// fillKeys enqueues jobs of the keys in turn, from the key with that number on, in large calls, one after the other. If there are no keys, the
// jobs have none.
func (r *run) fillKeys(ctx context.Context, first, jobs, keys int) error {
	if keys == 0 {
		return r.fill(ctx, jobs, nil)
	}
	client, next, done := r.client(), upTo(jobs, r.o.most()), atomic.Int64{}
	defer r.telling(ofJobs("filling the queue", done.Load, int64(jobs)))()
	for n := next(); n > 0; n = next() {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprint("key-", (first+int(done.Load())+i)%keys)
		}
		if _, err := client.EnqueueMany(ctx, r.ofKeys(names), nil); err != nil {
			return err
		}
		done.Add(int64(n))
	}
	return nil
}

// ofKeys returns a job for each key. An empty one is none.
func (r *run) ofKeys(keys []string) []jq.Item {
	items := slices.Grow([]jq.Item(nil), len(keys))
	for _, key := range keys {
		items = append(items, jq.Item{Payload: r.payload, Options: &jq.EnqueueOptions{LimitKey: key}})
	}
	return items
}
