package alone

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/bench/internal/cost"
	"github.com/seed-ed332417/jq/bench/internal/peer"
	"github.com/seed-ed332417/jq/bench/internal/report"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/etcd"
	"github.com/seed-ed332417/jq/internal/bench"
	"github.com/seed-ed332417/jq/kv"
)

// machines are the stores of P16, the first of which the others are compared with.
var machines = []struct{ store, title string }{
	{peer.Postgres, "Postgres"},
	{peer.Replicated, "Postgres with a synchronous standby"},
	{peer.Etcd, "three members of etcd"},
}

// lives are what is measured on each of them.
func (p *play) lives() []struct {
	title   string
	options bench.Options
} {
	return []struct {
		title   string
		options bench.Options
	}{
		{"1,000 jobs an enqueue, enqueued, worked and finished at once", bench.Options{Workload: bench.Continuous, Duration: p.Duration, Concurrency: 1000, Buffer: 4000, Producers: 2, Batch: 1000}},
		{"enqueued one by one by 16 goroutines", bench.Options{Workload: bench.Enqueue, Jobs: max(100, p.Jobs/200)}},
	}
}

// stores is P16: what it costs to survive the loss of a machine. Each round has every store, in turns from either end.
func stores(ctx context.Context, p *play) (goals []report.Goal, err error) {
	for _, life := range p.lives() {
		results := make([][]bench.Result, len(machines))
		for round := range p.Rounds {
			order := []int{0, 1, 2}
			if round%2 == 1 {
				slices.Reverse(order)
			}
			for _, i := range order {
				on := &play{Options: p.Options, site: p.site, store: machines[i].store}
				on.Rounds = 1
				some, err := on.results(ctx, on.openServed, life.options)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", machines[i].title, err)
				}
				results[i] = append(results[i], some...)
			}
		}
		some, err := storeGoals(life.title, results)
		if err != nil {
			return nil, err
		}
		goals = append(goals, some...)
	}
	return goals, nil
}

// storeGoals returns a line for each store, from its rounds.
func storeGoals(title string, results [][]bench.Result) (goals []report.Goal, err error) {
	var first []float64
	for i, rounds := range results {
		part := rounds[0].Parts[0].Name
		v, err := figuresOf(bench.Summarize(rounds)).all([2]string{part, bench.Rate}, [2]string{part, string(cost.Server)})
		if err != nil {
			return nil, err
		}
		if i == 0 {
			first = v
		}
		goal := report.Goal{Work: machines[i].title + ": " + title + ": jobs/s; CPU of all servers in µs", Target: "–",
			JQ: fmt.Sprintf("%s; %s", report.Thousands(v[0]), report.Thousands(v[1]))}
		if i > 0 {
			goal.Ratio = fmt.Sprintf("%.0f %%; %.1f× of Postgres alone", 100*v[0]/first[0], v[1]/first[1])
		}
		goals = append(goals, goal)
	}
	return goals, nil
}

// openServed opens a store that tells what all its servers have spent.
func (p *play) openServed(ctx context.Context, place peer.Place) (jq.Store, error) {
	if p.store != peer.Etcd {
		return openOnPostgres(ctx, place, false)
	}
	meter, err := cost.New(ctx, peer.Peer{}, place, false)
	if err != nil {
		return nil, err
	}
	s, err := etcd.Open(ctx, place.Etcd, nil)
	if err != nil {
		return nil, errors.Join(err, meter.Close())
	}
	return &served{s, meter}, nil
}

// served is a store on etcd that also tells what its members have spent for it.
type served struct {
	*kv.Store
	meter *cost.Meter
}

// Spent is part of the contract.
func (s *served) Spent(ctx context.Context) ([]contract.Cost, error) {
	return spentBy(ctx, s.meter)
}

// Close is part of the contract.
func (s *served) Close() error { return errors.Join(s.Store.Close(), s.meter.Close()) }
