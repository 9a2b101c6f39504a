package alone

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/bench/internal/report"
	"github.com/seed-ed332417/jq/internal/bench"
)

// keys is R91: claims from queues with MaxPerKey beside claims from plain queues, and the throughput under limits that never bind.
func keys(ctx context.Context, p *play) (goals []report.Goal, err error) {
	for _, scene := range bench.KeyScenes() {
		f, err := p.keyScene(ctx, scene)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", scene, err)
		}
		goal, err := p.keyGoal(f, scene)
		if err != nil {
			return nil, err
		}
		goals = append(goals, goal)
	}
	f, err := p.rounds(ctx, bench.Options{Workload: bench.Limits, Jobs: min(p.Jobs, mostLimited)})
	if err != nil {
		return nil, err
	}
	for _, policy := range []string{bench.MaxInFlight, bench.MaxPerKey} {
		goal, err := p.limitGoal(f, policy)
		if err != nil {
			return nil, err
		}
		goals = append(goals, goal)
	}
	return goals, nil
}

// mostLimited is how many jobs are claimed under each limit at most.
const mostLimited = 20_000

// keyScene measures all rounds of a scene. It has a store of its own and is set up once.
func (p *play) keyScene(ctx context.Context, scene string) (f figures, err error) {
	t, err := p.try(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	pair, err := bench.NewKeyPair(ctx, t.store, bench.Options{Jobs: p.Jobs}, scene)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(p.Progress, "jobs are laid out, and found within %v  %s on %s\n", pair.Settled().Round(time.Millisecond), scene, p.store)
	for i := range p.Rounds {
		if err := t.round(func() (bench.Result, error) { return pair.Measure(ctx) }); err != nil {
			return nil, err
		}
		fmt.Fprintf(p.Progress, "round %d of %d  %s on %s\n", i+1, p.Rounds, scene, p.store)
	}
	return t.figures(), pair.Verify(ctx)
}

// keyGoal returns the line of a scene.
func (p *play) keyGoal(f figures, scene string) (report.Goal, error) {
	v, err := f.all([2]string{scene, "claim p50"}, [2]string{scene, "plain claim p50"}, [2]string{scene, "claim p50 to plain"})
	if err != nil {
		return report.Goal{}, err
	}
	jobs := bench.KeyJobs(p.Jobs, scene)
	keys, waiting := report.Thousands(float64(jobs.Keys)), report.Thousands(float64(jobs.Waiting))
	work := map[string]string{
		bench.OneEach:  fmt.Sprintf("claim of 10 with a job of each of %s keys waiting", keys),
		bench.FewEach:  fmt.Sprintf("claim of 10 with %s jobs of %s keys waiting", waiting, keys),
		bench.BigKey:   fmt.Sprintf("claim that finds one job, behind %s of a key that is full", waiting),
		bench.FullKeys: fmt.Sprintf("claim that finds one job, behind those of %s keys that are full", keys),
	}[scene]
	return report.Goal{
		Work:   p.store + ", MaxPerKey: " + work + ", beside a plain queue with as many jobs",
		Target: "≤ 200 %",
		JQ:     fmt.Sprintf("p50 %.2f ms, plain %.2f ms", v[0], v[1]), Ratio: fmt.Sprintf("%.0f %%", v[2]),
	}, nil
}

// limitGoal returns the line of a policy.
func (p *play) limitGoal(f figures, policy string) (report.Goal, error) {
	var rates, ratios []string
	for _, part := range []string{bench.OneClaimer, bench.SomeClaimers, bench.ManyClaimers} {
		v, err := f.all([2]string{part, policy + " " + bench.Rate}, [2]string{part, bench.Rate}, [2]string{part, policy + " to free"})
		if err != nil {
			return report.Goal{}, err
		}
		rates = append(rates, report.Thousands(v[0])+" of "+report.Thousands(v[1]))
		ratios = append(ratios, fmt.Sprintf("%.0f %%", v[2]))
	}
	name := map[string]string{bench.MaxInFlight: "MaxInFlight", bench.MaxPerKey: "MaxPerKey and 1,000 keys"}[policy]
	return report.Goal{
		Work:   fmt.Sprintf("%s: claims and acks of 10 with %s, never full, beside none: jobs/s of 1, 8 and 32 claimers", p.store, name),
		Target: "≥ 80 % with one claimer",
		JQ:     strings.Join(rates, "; "), Ratio: strings.Join(ratios, "; "),
	}, nil
}
