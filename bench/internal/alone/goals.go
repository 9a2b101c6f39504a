package alone

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"

	"github.com/seed-ed332417/jq/bench/internal/peer"
	"github.com/seed-ed332417/jq/bench/internal/report"
	"github.com/seed-ed332417/jq/internal/bench"
)

// crowd is how many times as many finished jobs lie beside a claim as others.
const crowd = 10

// backlog is P8: a claim beside many jobs, against one beside few.
func backlog(ctx context.Context, p *play) (report.Goal, error) {
	const each, to = "claim p50", "claim p50 to few"
	finished, err := p.besideFinished(ctx, each)
	if err != nil {
		return report.Goal{}, err
	}
	figures, err := p.rounds(ctx, p.Rounds, bench.Options{Workload: bench.Backlog, Jobs: p.Jobs})
	if err != nil {
		return report.Goal{}, err
	}
	v, err := figures.all([2]string{"few", each}, [2]string{"waiting", to}, [2]string{"scheduled", to})
	if err != nil {
		return report.Goal{}, err
	}
	many := report.Thousands(float64(p.Jobs))
	return report.Goal{
		Work: fmt.Sprintf("%s: claim of 100 with %s waiting, %s scheduled, %s finished, beside one with 50,000 waiting",
			p.store, many, many, report.Thousands(float64(crowd*p.Jobs))),
		Target: "within 15 %", JQ: fmt.Sprintf("p50 %.2f ms with 50,000", v[0]), Ratio: fmt.Sprintf("%.0f %%, %.0f %%, %.0f %%", v[1], v[2], finished),
	}, nil
}

// besideFinished measures a claim beside the finished jobs in per cent of one without them. Those lie in a store of their own,
// which is filled once, and the two stores are measured in turn.
func (p *play) besideFinished(ctx context.Context, figure string) (percent float64, err error) {
	bare, err := p.try(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, bare.close()) }()
	crowded, err := p.try(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, crowded.close()) }()
	for range crowd {
		if _, err := bench.Run(ctx, crowded, bench.Options{Workload: bench.Drain, Jobs: p.Jobs, Keep: true}); err != nil {
			return 0, err
		}
		fmt.Fprintf(p.Progress, "%s jobs finished  %s\n", report.Thousands(float64(p.Jobs)), p.store)
	}
	for range p.Rounds {
		for _, t := range []*try{bare, crowded} {
			if err := t.run(ctx, bench.Options{Workload: bench.Backlog, Jobs: 1}); err != nil {
				return 0, err
			}
		}
	}
	without, err := bare.figures().get("few", figure)
	if err != nil {
		return 0, err
	}
	with, err := crowded.figures().get("few", figure)
	return 100 * with / without, err
}

// http is P9: through a server on loopback, against the store itself.
func http(ctx context.Context, p *play) (report.Goal, error) {
	figures, err := p.rounds(ctx, p.Rounds, bench.Options{
		Workload: bench.HTTP, Duration: p.Duration, Concurrency: 1000, Buffer: 4000, Producers: 2, Batch: 1000,
	})
	if err != nil {
		return report.Goal{}, err
	}
	v, err := figures.all([2]string{"http", bench.Rate}, [2]string{"direct", bench.Rate}, [2]string{"http", "rate to direct"})
	if err != nil {
		return report.Goal{}, err
	}
	return report.Goal{
		Work: p.store + ": through the HTTP API in batches, beside the same store used directly", Target: "≥ 50 %",
		JQ: report.Thousands(v[0]) + " jobs/s, directly " + report.Thousands(v[1]), Ratio: fmt.Sprintf("%.0f %%", v[2]),
	}, nil
}

// idle is P10: a worker that has nothing to do, and jobs that wait in handlers.
func idle(ctx context.Context, p *play) (report.Goal, error) {
	figures, err := p.rounds(ctx, p.Rounds, bench.Options{Workload: bench.Idle, Duration: p.Duration})
	if err != nil {
		return report.Goal{}, err
	}
	v, err := figures.all([2]string{"idle", "cpu"}, [2]string{"in flight", "memory"})
	if err != nil {
		return report.Goal{}, err
	}
	g := report.Goal{
		Work:   p.store + ", idle worker: CPU of a core; memory of 1,000 jobs in flight",
		Target: "< 1 %; ≤ 10 MiB", JQ: fmt.Sprintf("%.2f %%; %.1f MiB", v[0], v[1]),
	}
	if trips, err := figures.get("idle", "round trips"); err == nil { // of a store that tells
		g.Work, g.Target, g.JQ = g.Work+"; messages a second", g.Target+"; ≤ 2", fmt.Sprintf("%s; %.1f", g.JQ, trips)
	}
	return g, nil
}

// steady is P12: whether a store keeps its speed.
func steady(ctx context.Context, p *play) (report.Goal, error) {
	long := 60 * p.Duration
	figures, err := p.rounds(ctx, 1, bench.Options{
		Workload: bench.Continuous, Duration: long, Concurrency: 1000, Buffer: 4000, Producers: 2, Batch: 1000,
	})
	if err != nil {
		return report.Goal{}, err
	}
	v, err := figures.all([2]string{"continuous", bench.Rate}, [2]string{"continuous", "last to first"})
	if err != nil {
		return report.Goal{}, err
	}
	return report.Goal{
		Work: fmt.Sprintf("%s: last third of %v of continuous work, beside the first", p.store, long), Target: "≥ 90 %",
		JQ: report.Thousands(v[0]) + " jobs/s", Ratio: fmt.Sprintf("%.0f %%", v[1]),
	}, nil
}

var more = regexp.MustCompile(`BenchmarkHistory\S*\s.*\s(-?[0-9.]+) %-more`)

// history is P11, which a benchmark of the adapter measures: from outside, the history can not be switched off.
func history(ctx context.Context, p *play) (g report.Goal, err error) {
	place, remove, err := p.site.Place(ctx, peer.Peer{Store: p.store})
	if err != nil {
		return report.Goal{}, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	test := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^BenchmarkHistory$",
		"-timeout", "0", "-benchtime", p.Duration.String(), "-count", strconv.Itoa(p.Rounds), "./internal/store/adapters/"+p.store)
	test.Dir, test.Env = "..", append(os.Environ(), "JQ_TEST_POSTGRES="+place.DSN)
	said, err := test.CombinedOutput()
	if err != nil {
		return report.Goal{}, fmt.Errorf("go test: %w\n%s", err, said)
	}
	var costs []float64
	for _, found := range more.FindAllSubmatch(said, -1) {
		cost, err := strconv.ParseFloat(string(found[1]), 64)
		if err != nil {
			return report.Goal{}, err
		}
		costs = append(costs, cost)
	}
	if len(costs) != p.Rounds {
		return report.Goal{}, fmt.Errorf("%d rounds, of which %d have a figure:\n%s", p.Rounds, len(costs), said)
	}
	slices.Sort(costs)
	middle := (costs[(len(costs)-1)/2] + costs[len(costs)/2]) / 2
	return report.Goal{
		Work: p.store + ": what the attempt history costs where nothing fails", Target: "≤ 10 %",
		JQ: fmt.Sprintf("%.1f %% (%.1f–%.1f)", middle, costs[0], costs[len(costs)-1]),
	}, nil
}
