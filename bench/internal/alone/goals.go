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

// http is P9: through a server on loopback, compared with the store itself.
func http(ctx context.Context, p *play) (report.Goal, error) {
	figures, err := p.rounds(ctx, bench.Options{
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

// idle is P10: a worker without work, and jobs that wait in handlers.
func idle(ctx context.Context, p *play) (report.Goal, error) {
	figures, err := p.rounds(ctx, bench.Options{Workload: bench.Idle, Duration: p.Duration})
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
	if trips, err := figures.get("idle", "round trips"); err == nil { // if the store counts them
		g.Work, g.Target, g.JQ = g.Work+"; messages a second", g.Target+"; ≤ 2", fmt.Sprintf("%s; %.1f", g.JQ, trips)
	}
	return g, nil
}

// steady is P12: whether a store keeps its speed.
func steady(ctx context.Context, p *play) (report.Goal, error) {
	long := 60 * p.Duration
	figures, err := p.rounds(ctx, bench.Options{
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

// history is P11, which a benchmark of the adapter measures, because users cannot turn the history off.
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
