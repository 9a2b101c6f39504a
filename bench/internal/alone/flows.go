package alone

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/bench/internal/cost"
	"github.com/seed-ed332417/jq/bench/internal/peer"
	"github.com/seed-ed332417/jq/bench/internal/report"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/bench"
	"github.com/seed-ed332417/jq/postgres"
)

// flows is P15: jobs of a batch beside jobs without one, jobs that wait for others, and the cancellation of a job that many need.
func flows(ctx context.Context, p *play) ([]report.Goal, error) {
	results, err := p.results(ctx, p.openMetered, bench.Options{Workload: bench.Flows, Jobs: p.batch(), Duration: p.Duration})
	if err != nil {
		return nil, err
	}
	return p.flowGoals(results)
}

// batch returns how many jobs a batch has.
func (p *play) batch() int { return max(1, p.Jobs/10) }

// flowGoals returns the lines of the goal.
func (p *play) flowGoals(results []bench.Result) ([]report.Goal, error) {
	for _, r := range results {
		if err := compareLives(r.Parts); err != nil {
			return nil, err
		}
	}
	f := figuresOf(bench.Summarize(results))
	var goals []report.Goal
	for _, line := range []func(*play, figures) (report.Goal, error){
		(*play).members, (*play).callback, (*play).waiters, (*play).fanOut, (*play).chain, (*play).probed,
	} {
		goal, err := line(p, f)
		if err != nil {
			return nil, err
		}
		goals = append(goals, goal)
	}
	return goals, nil
}

// lifeCosts are the costs of a job that the goal shows.
var lifeCosts = []struct{ name, title string }{
	{allCPU, "CPU time in µs"}, {"time", "time in µs"}, {"WAL", "WAL bytes"}, {string(cost.Statements), "statements"},
}

// allCPU is the CPU time of a job in its process and in the server of the database.
const allCPU = "all CPU"

// compareLives adds to each round the sums of CPU time, and what a job of a batch costs beside one without, in percent.
func compareLives(parts []bench.Part) error {
	single, batch := &parts[0], &parts[1]
	if single.Name != bench.Single || batch.Name != bench.Batched {
		return fmt.Errorf("the first parts are %s and %s", single.Name, batch.Name)
	}
	for _, part := range []*bench.Part{single, batch} {
		own, _ := part.Figure("cpu")
		server, _ := part.Figure(string(cost.Server))
		part.Figures = append(part.Figures, bench.Figure{Name: allCPU, Unit: own.Unit, Value: own.Value + server.Value})
	}
	for _, c := range lifeCosts {
		alone, known := single.Figure(c.name)
		mine, _ := batch.Figure(c.name)
		if known && alone.Value > 0 {
			batch.Figures = append(batch.Figures, bench.Figure{Name: c.name + " to single", Unit: "%", Value: 100 * mine.Value / alone.Value})
		}
	}
	return nil
}

// members is about what a batch costs each of its jobs.
func (p *play) members(f figures) (report.Goal, error) {
	var titles, costs, ratios []string
	for _, c := range lifeCosts {
		value, err := f.get(bench.Batched, c.name)
		if err != nil {
			continue // this kind of store does not tell
		}
		ratio, err := f.get(bench.Batched, c.name+" to single")
		if err != nil {
			return report.Goal{}, err
		}
		if c.name == "time" {
			jobs, err := f.get(bench.Batched, "jobs")
			if err != nil {
				return report.Goal{}, err
			}
			value *= 1e6 / jobs
		}
		titles, costs, ratios = append(titles, c.title), append(costs, report.Amount(value)), append(ratios, fmt.Sprintf("%.0f %%", ratio))
	}
	return report.Goal{
		Work:   fmt.Sprintf("%s: a job of a batch of %s with a callback, beside one without a batch: %s", p.store, report.Thousands(float64(p.batch())), strings.Join(titles, "; ")),
		Target: "< 110 % of CPU time and time", JQ: strings.Join(costs, "; "), Ratio: strings.Join(ratios, "; "),
	}, nil
}

func (p *play) callback(f figures) (report.Goal, error) {
	longest, err := f.get(bench.Batched, "callback max")
	return report.Goal{
		Work:   fmt.Sprintf("%s: from the Ack of the last of %s jobs of a batch to the claim of its callback", p.store, report.Thousands(float64(p.batch()))),
		Target: "< 1 s", JQ: inTime(longest / 1000),
	}, err
}

func (p *play) waiters(f figures) (report.Goal, error) {
	v, err := f.all([2]string{bench.Waiters, "jobs"}, [2]string{bench.Waiters, bench.P50}, [2]string{bench.Waiters, bench.Max})
	if err != nil {
		return report.Goal{}, err
	}
	return report.Goal{
		Work:   fmt.Sprintf("%s: from the Ack of a job to the claim of the last of %s that wait for it, p50 and longest", p.store, report.Thousands(v[0])),
		Target: "< 2 s", JQ: inTime(v[1]/1000) + "; " + inTime(v[2]/1000),
	}, nil
}

func (p *play) fanOut(f figures) (report.Goal, error) {
	return p.cancelled(f, bench.FanOut, "of a job that %s need: the call; until all are cancelled")
}

func (p *play) chain(f figures) (report.Goal, error) {
	return p.cancelled(f, bench.Chained, "of a job with a chain of %s that need it: the call; until all are cancelled")
}

func (p *play) cancelled(f figures, part, of string) (report.Goal, error) {
	v, err := f.all([2]string{part, "jobs"}, [2]string{part, "cancel"}, [2]string{part, "settled"})
	if err != nil {
		return report.Goal{}, err
	}
	return report.Goal{
		Work:   fmt.Sprintf("%s: cancellation "+of, p.store, report.Thousands(v[0])),
		Target: "< 1 s; < 3 min", JQ: inTime(v[1]/1000) + "; " + inTime(v[2]),
	}, nil
}

// probed is about other jobs while these are cancelled.
func (p *play) probed(f figures) (report.Goal, error) {
	var shown, ratios []string
	var rest []float64
	for _, part := range []string{bench.Rest, bench.FanOut, bench.Chained} {
		v, err := f.all([2]string{part, bench.P50}, [2]string{part, bench.P99})
		if err != nil {
			return report.Goal{}, err
		}
		shown = append(shown, fmt.Sprintf("%.1f/%.1f ms", v[0], v[1]))
		if rest == nil {
			rest = v
			continue
		}
		ratios = append(ratios, fmt.Sprintf("%.0f/%.0f %%", 100*v[0]/rest[0], 100*v[1]/rest[1]))
	}
	return report.Goal{
		Work: fmt.Sprintf("%s: another job, from its enqueue to its Ack, p50/p99: at rest; during the cancellation of all that need one job; "+
			"and of the chain", p.store),
		Target: "≤ 200 % of those at rest", JQ: strings.Join(shown, "; "), Ratio: strings.Join(ratios, "; "),
	}, nil
}

// inTime writes seconds in the unit that fits.
func inTime(seconds float64) string {
	if seconds < 1 {
		return fmt.Sprintf("%.0f ms", 1000*seconds)
	}
	return fmt.Sprintf("%.1f s", seconds)
}

// metered is a store that also tells what its server has spent for it.
type metered struct {
	*postgres.Store
	meter *cost.Meter
}

// openMetered opens a store that tells all of its costs. The meter comes first, because only sessions that begin later count statements.
func (p *play) openMetered(ctx context.Context, place peer.Place) (jq.Store, error) {
	if place.DSN == "" {
		return p.open(ctx, place)
	}
	return openOnPostgres(ctx, place, true)
}

func openOnPostgres(ctx context.Context, place peer.Place, statements bool) (jq.Store, error) {
	meter, err := cost.New(ctx, peer.Peer{}, place, statements)
	if err != nil {
		return nil, err
	}
	s, err := postgres.Open(ctx, place.DSN, nil)
	if err != nil {
		return nil, errors.Join(err, meter.Close())
	}
	return &metered{s, meter}, nil
}

// Spent is part of the contract.
func (m *metered) Spent(ctx context.Context) ([]contract.Cost, error) {
	costs, err := m.Store.Spent(ctx)
	if err != nil {
		return nil, err
	}
	more, err := spentBy(ctx, m.meter)
	return append(costs, more...), err
}

// spentBy returns what a server has spent.
func spentBy(ctx context.Context, meter *cost.Meter) (costs []contract.Cost, err error) {
	spent, err := meter.Spent(ctx)
	for _, kind := range []cost.Kind{cost.Server, cost.Statements} {
		if total, known := spent[kind]; known {
			unit := ""
			if kind == cost.Server {
				unit = "µs"
			}
			costs = append(costs, contract.Cost{Name: string(kind), Unit: unit, Total: int64(total)})
		}
	}
	return costs, err
}

// Close is part of the contract.
func (m *metered) Close() error { return errors.Join(m.Store.Close(), m.meter.Close()) }
