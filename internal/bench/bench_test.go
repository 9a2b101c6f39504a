package bench

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/bubble"
)

// parts are what each workload measures.
var parts = map[string][]string{
	Enqueue:      {"enqueue"},
	Drain:        {"drain"},
	Continuous:   {"continuous"},
	Latency:      {"latency"},
	Backlog:      {"few", "waiting", "scheduled", "finished"},
	HeldSnapshot: {"free", "held"},
	HTTP:         {"direct", "http"},
	Idle:         {"idle", "in flight"},
	Flows:        {"single", "batch", "waiters", "rest", "fan-out", "chain"},
	Keys:         {"one-each", "few-each", "big-key", "full-keys"},
	Limits:       {"1-claimer", "8-claimers", "32-claimers"},
	Fairness:     {"no-flood", "fair", "plain"},
}

// unrated are parts about other things than the rate and the costs of jobs.
var unrated = []string{"in flight", "waiters", "rest", "fan-out", "chain", "one-each", "few-each", "big-key", "full-keys"}

// Each workload runs on each kind of store, and leaves it as it was.
func TestWorkloads(t *testing.T) {
	for kind, open := range stores() {
		t.Run(kind, func(t *testing.T) {
			s := open(t)
			alone := stranger(t, s)
			for name, parts := range parts {
				t.Run(name, func(t *testing.T) {
					if name == HeldSnapshot && kind == "memory" {
						t.Skip("the store in memory has no snapshots")
					}
					result, err := Run(t.Context(), s, small(name))
					require.NoError(t, err)
					assert.Equal(t, name, result.Workload)
					require.Len(t, result.Parts, len(parts))
					for i, part := range result.Parts {
						assert.Equal(t, parts[i], part.Name)
						checkFigures(t, name, part)
						checkCosts(t, kind, part)
					}
					alone()
				})
			}
		})
	}
}

// measured is how many jobs a part is about, where that is known beforehand: half of those that wait are claimed.
var measured = map[string]float64{"enqueue": 60, "drain": 60, "latency": 30, "few": 20, "waiting": 20, "scheduled": 20, "finished": 20, "in flight": 60,
	"single": 60, "batch": 60, "waiters": 60, "fan-out": 60, "chain": 6, "one-each": 60, "few-each": 60, "big-key": 6, "full-keys": 6,
	"1-claimer": 30, "8-claimers": 30, "32-claimers": 30}

// told are figures of a part. Those that are about time alone may be zero on a machine that is busy.
var told = map[string][]string{
	"enqueue": {Rate, "call p50"}, "drain": {Rate}, "latency": {P50, P95, P99, Max}, "few": {"claim p50", "claim and ack p50"},
	"finished": {"claim p50 to few", "claim and ack p50 to few"}, "in flight": {"memory"},
	"batch": {"callback max", "rate to single"}, "waiters": {P50, Max}, "rest": {P50, P99}, "fan-out": {"cancel", Settled}, "chain": {"cancel", Settled},
	"one-each": {"claim p50", "plain claim p50", "claim p50 to plain"}, "few-each": {"claim p50 to plain"},
	"big-key": {"claim p50 to plain"}, "full-keys": {"claim p50 to plain", "claim and ack p50 to plain"},
	"1-claimer":   {"max_in_flight rate", "max_in_flight to free", "max_per_key rate", "max_per_key to free"},
	"32-claimers": {"max_in_flight to free", "max_per_key to free"},
	"no-flood":    {P50, P95}, "fair": {P50, P95, P95ToAllowed, Rate}, "plain": {P50, P95, "flood jobs before p50"},
}

func checkFigures(t *testing.T, workload string, part Part) {
	t.Helper()
	if want, known := measured[part.Name]; known {
		jobs, _ := part.Figure("jobs")
		assert.InDelta(t, want, jobs.Value, 0, "jobs of %s", part.Name)
	}
	for _, name := range told[part.Name] {
		f, _ := part.Figure(name)
		assert.Positive(t, f.Value, "%s of %s", name, part.Name)
	}
	if workload != Idle && !slices.Contains(unrated, part.Name) {
		_, rated := part.Figure(Rate)
		assert.True(t, rated, "rate of %s", part.Name)
		f, _ := part.Figure("allocations")
		assert.Positive(t, f.Value, "allocations of %s", part.Name)
	}
}

// checkCosts looks for what the kind of store tells of its own costs.
func checkCosts(t *testing.T, kind string, part Part) {
	t.Helper()
	cost := map[string]string{"sqlite": "commits", "postgres": "WAL"}[kind]
	f, told := part.Figure(cost)
	assert.Equal(t, cost != "" && !slices.Contains(unrated, part.Name), told, "%s of %s", cost, part.Name)
	if told && part.Name != "idle" {
		assert.Positive(t, f.Value, "%s of %s", cost, part.Name)
		assert.Regexp(t, "/job$", f.Unit)
	}
}

func TestEveryWorkloadIsTried(t *testing.T) {
	for _, name := range Workloads() {
		assert.Contains(t, parts, name)
		assert.NotEmpty(t, About(name))
	}
}

func TestKeepLeavesTheJobs(t *testing.T) {
	s := stores()["memory"](t)
	o := small(Drain)
	o.Keep = true
	result, err := Run(t.Context(), s, o)
	require.NoError(t, err)
	counts, err := s.Count(t.Context(), jq.Filter{})
	require.NoError(t, err)
	require.Len(t, counts.Queues, 1)
	assert.Equal(t, result.Queue, counts.Queues[0].Queue)
	assert.Equal(t, map[jq.State]int64{jq.Succeeded: 60}, counts.Queues[0].Jobs)
}

// A pile is as high before each round as before the first, and says what was lost in any of them.
func TestPileIsMeasuredAgainAndAgain(t *testing.T) {
	for _, scene := range Scenes() {
		t.Run(scene, func(t *testing.T) {
			s := &loser{Store: stores()["memory"](t)}
			s.calls.Add(1) // it loses nothing yet
			p, err := NewPile(t.Context(), s, small(Backlog), scene)
			require.NoError(t, err)
			for range 3 {
				before := p.scene.waiting - p.taken
				result, err := p.Measure(t.Context())
				require.NoError(t, err)
				require.Len(t, result.Parts, 1)
				assert.Equal(t, scene, result.Parts[0].Name)
				f, ok := result.Parts[0].Figure("claim p50")
				assert.True(t, ok)
				assert.Positive(t, f.Value)
				assert.Equal(t, before, p.scene.waiting-p.taken)
				require.NoError(t, p.Verify(t.Context()))
			}
			assert.Positive(t, p.taken)
			s.calls.Store(0)
			_, err = p.Measure(t.Context())
			require.NoError(t, err)
			assert.ErrorContains(t, p.Verify(t.Context()), "1 jobs are missing")
		})
	}
}

// A run that is interrupted ends with the error of its context, and deletes its jobs all the same.
func TestInterruptedRunDeletesItsJobs(t *testing.T) {
	for _, name := range []string{Enqueue, Drain, Continuous, Latency, Backlog, HTTP, Idle, Flows, Keys, Limits, Fairness} {
		t.Run(name, func(t *testing.T) {
			s := stores()["memory"](t)
			alone := stranger(t, s)
			ctx, cancel := context.WithCancel(t.Context())
			o := small(name)
			o.Duration = time.Minute
			b := &breaker{Store: s, PolicyKeeper: s.(contract.PolicyKeeper), after: 3, cut: cancel}
			_, err := Run(ctx, b, o)
			assert.ErrorIs(t, err, context.Canceled)
			alone()
		})
	}
}

// A faulty store is one on which a run does not count.
func TestRunOnAFaultyStoreDoesNotCount(t *testing.T) {
	const (
		lost   = "1 jobs are missing"
		doubt  = "the run does not count"
		halted = "59 of 60 jobs have succeeded, and nothing has happened for 1m0s"
	)
	for name, c := range map[string]struct {
		workload string
		store    func(jq.Store) jq.Store
		want     string
	}{
		"Enqueue/LosesAJob":       {Enqueue, losing, lost},
		"Drain/LosesAJob":         {Drain, losing, lost},
		"Continuous/LosesAJob":    {Continuous, losing, lost},
		"Latency/LosesAJob":       {Latency, losing, lost},
		"Backlog/LosesAJob":       {Backlog, losing, doubt},
		"HTTP/LosesAJob":          {HTTP, losing, lost},
		"Idle/LosesAJob":          {Idle, losing, "not all jobs have begun"},
		"Flows/LosesAJob":         {Flows, losing, lost},
		"Flows/LosesAMember":      {Flows, losingAMember, lost},
		"Keys/LosesAJob":          {Keys, losing, lost},
		"Keys/LosesAnAck":         {Keys, forgetting, "1 in_flight where 0 should be"},
		"Keys/KnowsNoLimits":      {Keys, boundless, "2 jobs of the key "},
		"Keys/LosesItsPolicy":     {Keys, lax, "the queue has max_in_flight 0 and max_per_key 2 where 0 and 1 should be"},
		"Limits/LosesAJob":        {Limits, losing, "5 of 6 jobs are done, and claims have found nothing for 1m0s"},
		"Limits/LosesAnAck":       {Limits, forgetting, "1 in_flight where 0 should be"},
		"Limits/LosesItsLimit":    {Limits, lax, "the queue has max_in_flight 10001 and max_per_key 0 where 10000 and 0 should be"},
		"Fairness/LosesAJob":      {Fairness, losing, lost},
		"Fairness/LosesAnAck":     {Fairness, forgetting, "1 in_flight where 0 should be"},
		"Fairness/KnowsNoTurns":   {Fairness, unfair, "keys take no turns: half of the jobs have waited for "},
		"Fairness/LosesItsPolicy": {Fairness, moody, "the queue is fair: false, where true should be"},
		"Drain/LosesUncounted":    {Drain, losingAndShort, lost},
		"Drain/LosesAnAck":        {Drain, forgetting, "1 in_flight where 0 should be"},
		"Drain/HidesAJob":         {Drain, hiding, halted},
	} {
		t.Run(name, func(t *testing.T) {
			if c.workload == HTTP { // sockets are not of the bubble
				runFaulty(t, c.workload, c.store, c.want)
				return
			}
			bubble.Test(t, func(t *testing.T) { runFaulty(t, c.workload, c.store, c.want) })
		})
	}
}

// Jobs that are too many to be counted in the time of a call are gone through.
func TestRunCountsWithoutCount(t *testing.T) {
	s := stores()["memory"](t)
	alone := stranger(t, s)
	o := small(Drain)
	o.Jobs = portion + 1
	_, err := Run(t.Context(), short{s}, o)
	assert.NoError(t, err)
	alone()
}

func runFaulty(t *testing.T, workload string, faulty func(jq.Store) jq.Store, want string) {
	t.Helper()
	s := stores()["memory"](t)
	alone := stranger(t, s)
	_, err := Run(t.Context(), faulty(s), small(workload))
	assert.ErrorContains(t, err, want)
	alone()
}

// A profile covers the measurement and nothing else, and its failure is one of the run.
func TestProfileBeginsAndEndsWithTheMeasurement(t *testing.T) {
	s := stores()["memory"](t)
	var atStart, atEnd map[jq.State]int64
	o := small(Drain)
	count := func() map[jq.State]int64 {
		counts, err := s.Count(t.Context(), jq.Filter{})
		require.NoError(t, err)
		require.Len(t, counts.Queues, 1)
		return counts.Queues[0].Jobs
	}
	full := errors.New("no space left on device")
	o.Profile = func() (func() error, error) {
		atStart = count()
		return func() error {
			atEnd = count()
			return full
		}, nil
	}
	_, err := Run(t.Context(), s, o)
	assert.ErrorIs(t, err, full)
	assert.Equal(t, map[jq.State]int64{jq.Ready: 60}, atStart, "the queue was filled before")
	assert.Equal(t, map[jq.State]int64{jq.Succeeded: 60}, atEnd, "and is emptied after")
	o.Profile = func() (func() error, error) { return nil, full }
	_, err = Run(t.Context(), s, o)
	assert.ErrorIs(t, err, full)
}

func TestStoreWithoutSnapshotsSaysSo(t *testing.T) {
	_, err := Run(t.Context(), stores()["memory"](t), small(HeldSnapshot))
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.EqualError(t, err, "held-snapshot: this kind of store has no snapshots that could be held open: unsupported operation")
}
