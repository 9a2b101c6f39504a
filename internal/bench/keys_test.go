package bench

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/bubble"
)

// A dawdler takes its time for claims from a queue, and for acks.
type dawdler struct {
	jq.Store
	contract.PolicyKeeper
	claim func(queue string) time.Duration
	ack   time.Duration
	late  func(queue string) bool // claims find nothing yet
	fails error                   // or fail
}

func dawdling(s jq.Store, ack time.Duration, claim func(queue string) time.Duration) *dawdler {
	return &dawdler{s, s.(contract.PolicyKeeper), claim, ack, func(string) bool { return false }, nil}
}

func (d *dawdler) FetchAndClaim(ctx context.Context, req contract.ClaimRequest) ([]jq.Job, error) {
	if err := sleep(ctx, d.claim(req.Queue)); err != nil {
		return nil, err
	}
	if d.late(req.Queue) {
		return nil, d.fails
	}
	return d.Store.FetchAndClaim(ctx, req)
}

func (d *dawdler) Ack(ctx context.Context, acks []contract.Ack) ([]jq.Outcome, error) {
	if err := sleep(ctx, d.ack); err != nil {
		return nil, err
	}
	return d.Store.Ack(ctx, acks)
}

// Only the claim counts for the first ratio, and the jobs that are enqueued again for none.
func TestClaimsAreComparedWithThoseFromAPlainQueue(t *testing.T) {
	for _, scene := range KeyScenes() {
		t.Run(scene, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := dawdling(stores()["memory"](t), 20*time.Millisecond, func(queue string) time.Duration {
					if strings.HasSuffix(queue, "limited") {
						return 30 * time.Millisecond
					}
					return 20 * time.Millisecond
				})
				p, err := NewKeyPair(t.Context(), s, small(Keys), scene)
				require.NoError(t, err)
				for range 2 {
					result, err := p.Measure(t.Context())
					require.NoError(t, err)
					for name, want := range map[string]float64{
						"claim p50": 30, "plain claim p50": 20, "claim p50 to plain": 150,
						"claim and ack p50": 50, "plain claim and ack p50": 40, "claim and ack p50 to plain": 125,
					} {
						assert.InDelta(t, want, figure(t, result.Parts, scene, name), 0, name)
					}
					require.NoError(t, p.Verify(t.Context()))
				}
			})
		})
	}
}

// Both queues of a pair have as many jobs in each state, and only one of them has a limit and keys.
func TestScenesOfKeys(t *testing.T) {
	for scene, want := range map[string]map[jq.State]int64{
		OneEach:  {jq.Ready: 60, jq.Succeeded: 70},
		FewEach:  {jq.Ready: 300, jq.Succeeded: 70},
		BigKey:   {jq.Ready: 61, jq.InFlight: 1, jq.Succeeded: 7},
		FullKeys: {jq.Ready: 61, jq.InFlight: 60, jq.Succeeded: 7},
	} {
		t.Run(scene, func(t *testing.T) {
			s := stores()["memory"](t)
			client := jq.NewClient(s, nil)
			p, err := NewKeyPair(t.Context(), s, small(Keys), scene)
			require.NoError(t, err)
			for _, q := range p.queues() {
				counts, err := s.Count(t.Context(), jq.Filter{Queue: q.run.queue})
				require.NoError(t, err)
				require.Len(t, counts.Queues, 1)
				assert.Equal(t, want, counts.Queues[0].Jobs, q.run.queue)
				policy, err := client.Policy(t.Context(), q.run.queue)
				require.NoError(t, err)
				assert.Equal(t, q == p.limited, policy.MaxPerKey == 1, "a limit of %s", q.run.queue)
				keys := map[string]int{}
				for job, err := range client.Jobs(t.Context(), jq.Filter{Queue: q.run.queue, States: []jq.State{jq.Ready}}) {
					require.NoError(t, err)
					keys[job.LimitKey()]++
				}
				if q == p.plain {
					assert.Len(t, keys, 1)
					assert.Contains(t, keys, "")
					continue
				}
				assert.Len(t, keys, map[string]int{OneEach: 60, FewEach: 60, BigKey: 2, FullKeys: 61}[scene])
			}
		})
	}
}

// A store that is late has time until it finds all jobs, before anything is measured, and no more than a minute.
func TestLateStoreSettlesFirst(t *testing.T) {
	const never = "for 1m0s, each claim has found fewer than the 10 jobs that have room, the last one 0"
	for _, c := range []struct {
		late  time.Duration
		fails error
		want  string
	}{
		{late: 3 * time.Second}, {3 * time.Second, jq.ErrUnavailable, ""},
		{61 * time.Second, nil, never}, {61 * time.Second, jq.ErrUnavailable, never + "\njq: store unavailable"},
		{3 * time.Second, jq.ErrInvalid, "jq: invalid"},
	} {
		bubble.Test(t, func(t *testing.T) {
			began := time.Now()
			s := dawdling(stores()["memory"](t), 0, func(string) time.Duration { return 0 })
			s.late = func(queue string) bool { return strings.HasSuffix(queue, "limited") && time.Since(began) < c.late }
			s.fails = c.fails
			p, err := NewKeyPair(t.Context(), s, small(Keys), OneEach)
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.late, p.Settled())
			require.NoError(t, p.Verify(t.Context()))
		})
	}
}

// The rates are those of all claimers together, and those under a policy are compared with those without one.
func TestRatesUnderLimitsAreSharesOfTheFreeOne(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := dawdling(stores()["memory"](t), 40*time.Millisecond, func(queue string) time.Duration {
			switch {
			case strings.Contains(queue, MaxInFlight):
				return 60 * time.Millisecond
			case strings.Contains(queue, MaxPerKey):
				return 160 * time.Millisecond
			}
			return 10 * time.Millisecond
		})
		o := small(Limits)
		o.Jobs = 160
		result, err := Run(t.Context(), s, o)
		require.NoError(t, err)
		for name, want := range map[string]float64{
			Rate: 200, "max_in_flight rate": 100, "max_in_flight to free": 50, "max_per_key rate": 50, "max_per_key to free": 25,
		} {
			assert.InDelta(t, want, figure(t, result.Parts, OneClaimer, name), 0.01, name)
			if !strings.HasSuffix(name, "to free") {
				want *= 8
			}
			assert.InDelta(t, want, figure(t, result.Parts, SomeClaimers, name), 0.01, name)
		}
	})
}

// Policies go with the jobs.
func TestRunLiftsItsLimits(t *testing.T) {
	for _, workload := range []string{Keys, Limits, Fairness} {
		s := stores()["memory"](t)
		kept := &listener{Store: s, PolicyKeeper: s.(contract.PolicyKeeper)}
		_, err := Run(t.Context(), kept, small(workload))
		require.NoError(t, err)
		require.NotEmpty(t, kept.queues, "queues of %s", workload)
		for queue := range kept.queues {
			policy, err := kept.Policy(t.Context(), queue)
			require.NoError(t, err)
			assert.False(t, policy.Sets(), "policy of %s", queue)
		}
	}
}

// A listener remembers which queues had a policy.
type listener struct {
	jq.Store
	contract.PolicyKeeper
	queues map[string]bool
}

func (l *listener) SetPolicy(ctx context.Context, queue string, p jq.Policy) (jq.Policy, error) {
	if l.queues == nil {
		l.queues = map[string]bool{}
	}
	l.queues[queue] = true
	return l.PolicyKeeper.SetPolicy(ctx, queue, p)
}

// No claim is needed to see a limit broken: several workers may hold the jobs.
func TestUseSeesBrokenLimits(t *testing.T) {
	of := func(keys ...string) (jobs []jq.Job) {
		for _, key := range keys {
			j := jq.Job{}
			if key != "" {
				j.Extras = &jq.Extras{LimitKey: key}
			}
			jobs = append(jobs, j)
		}
		return jobs
	}
	u := newUse(jq.Policy{MaxPerKey: 2})
	require.NoError(t, u.begin(of("a", "a", "b", "", "", "")))
	assert.ErrorContains(t, u.begin(of("b", "a")), "3 jobs of the key a are in flight where 2 may be")
	u.end(of("a", "a", "b"))
	assert.NoError(t, u.begin(of("a")))
	u = newUse(jq.Policy{MaxInFlight: 3})
	require.NoError(t, u.begin(of("a", "")))
	assert.ErrorContains(t, u.begin(of("", "")), "4 jobs are in flight where 3 may be")
	u.end(of("", "", ""))
	assert.NoError(t, u.begin(of("", "")))
}
