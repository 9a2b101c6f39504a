package alone

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/bench/internal/peer"
	"github.com/seed-ed332417/jq/bench/internal/peers"
	"github.com/seed-ed332417/jq/bench/internal/report"
	"github.com/seed-ed332417/jq/internal/bench"
)

// slots is how many handlers run at once beside a flood.
const slots = 10

// fairness is R95: how long the jobs of 49 tenants wait alone, and beside another one who floods the queue, on a fair queue and on a plain one. On
// Postgres, River has the same flood.
func fairness(ctx context.Context, p *play) ([]report.Goal, error) {
	f, err := p.rounds(ctx, bench.Options{Workload: bench.Fairness, Duration: p.Duration, Concurrency: slots})
	if err != nil {
		return nil, err
	}
	var beside figures
	if p.store == peer.Postgres {
		if beside, err = p.riverRounds(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", river, err)
		}
	}
	goal, err := p.fairGoal(f, beside)
	return []report.Goal{goal}, err
}

// fairGoal returns the line of the goal, with River's figures if there are any.
func (p *play) fairGoal(f, beside figures) (report.Goal, error) {
	v, err := f.all([2]string{bench.NoFlood, bench.P95}, [2]string{bench.Fair, bench.P95}, [2]string{bench.Plain, bench.P95},
		[2]string{bench.Fair, bench.P95ToAllowed})
	if err != nil {
		return report.Goal{}, err
	}
	g := report.Goal{
		Work: fmt.Sprintf("%s: how long the jobs of %d tenants wait, p95: alone; beside one more, whose jobs are %d %% of all, on a fair queue; and on a plain queue",
			p.store, bench.Tenants-1, 100*bench.FloodRatio/(1+bench.FloodRatio)),
		Target: fmt.Sprintf("on a fair queue ≤ 2 × alone + %v", bench.HandlerTime),
		JQ:     waited(v[0]) + "; " + waited(v[1]) + "; " + waited(v[2]),
		Ratio:  fmt.Sprintf("%.0f %% of the goal", v[3]),
	}
	if beside != nil {
		p95, err := beside.get(river, bench.P95)
		if err != nil {
			return report.Goal{}, err
		}
		g.Peer = river + ", beside the flood, " + waited(p95)
	}
	return g, nil
}

// waited writes milliseconds in the unit that fits.
func waited(ms float64) string {
	if ms < 1000 {
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.1f s", ms/1000)
}

const river = "river"

// riverRounds measures River beside the flood several times. It has no turns, and takes jobs in the order in which they were added.
func (p *play) riverRounds(ctx context.Context) (figures, error) {
	all := peers.All()
	at := slices.IndexFunc(all, func(one peer.Peer) bool { return one.Name == river && one.Store == p.store })
	if at < 0 {
		return nil, errors.New("there is no such peer")
	}
	var rounds []bench.Result
	for i := range p.Rounds {
		result, err := p.flooded(ctx, all[at])
		if err != nil {
			return nil, err
		}
		rounds = append(rounds, result)
		fmt.Fprintf(p.Progress, "round %d of %d  %s beside the flood on %s\n", i+1, p.Rounds, river, p.store)
	}
	return figuresOf(bench.Summarize(rounds)), nil
}

// flooded measures a peer as [bench.Fairness] measures jq beside a flood: the jobs of the other tenants have the first numbers.
func (p *play) flooded(ctx context.Context, one peer.Peer) (r bench.Result, err error) {
	place, remove, err := p.site.Place(ctx, one)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	steady := bench.SteadyJobs(slots, p.Duration)
	ledger := peer.NewLedger(steady)
	q, err := one.Open(ctx, place, func(ctx context.Context, job peer.Job) error {
		ledger.Begin(job.Number)
		return bench.Work(ctx, job.Number)
	})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, q.Close(context.WithoutCancel(ctx))) }()
	if err := q.Enqueue(ctx, peer.Load{First: int64(steady), Jobs: bench.FloodRatio * steady, Callers: 1, Batch: 1000}); err != nil {
		return r, err
	}
	if err := q.Work(ctx, slots); err != nil {
		return r, err
	}
	called, err := peer.Steadily(ctx, q, peer.Load{Jobs: steady}, int(bench.SteadyRate(slots)))
	if err != nil {
		return r, err
	}
	if err := peer.Until(ctx, func() (bool, error) { return ledger.Missing(int64(steady)) < 0, nil }); err != nil {
		return r, err
	}
	if again := ledger.Again(); again > 0 {
		return r, fmt.Errorf("the run does not count: %d jobs have run twice", again)
	}
	return bench.Result{Parts: []bench.Part{{Name: one.Name, Figures: []bench.Figure{{Name: bench.P95, Unit: "ms", Value: p95(called, ledger)}}}}}, nil
}

// p95 returns how long 95 % of the jobs have waited at most, in milliseconds. The first tenth opens connections, and is left out.
func p95(called []time.Time, ledger *peer.Ledger) float64 {
	var waits []time.Duration
	for i := len(called) / 10; i < len(called); i++ {
		waits = append(waits, ledger.Began(i).Sub(called[i]))
	}
	slices.Sort(waits)
	return waits[(95*len(waits)+99)/100-1].Seconds() * 1000
}
