package alone

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/bench/internal/report"
	"github.com/seed-ed332417/jq/internal/bench"
)

// round is one of the workload flows, on a store whose server tells of its CPU time, with that of a job alone and of one in a batch.
func round(single, batched float64) bench.Result {
	life := func(name string, cpu float64) bench.Part {
		return bench.Part{Name: name, Figures: []bench.Figure{
			{Name: "jobs", Value: 1000}, {Name: "time", Unit: "s", Value: cpu / 100}, {Name: "cpu", Unit: "µs/job", Value: cpu},
			{Name: "server_cpu_us", Unit: "µs/job", Value: 3 * cpu}, {Name: "WAL", Unit: "B/job", Value: 50 * cpu},
		}}
	}
	probed := func(name string, p50, p99 float64, more ...bench.Figure) bench.Part {
		return bench.Part{Name: name, Figures: append(more, bench.Figure{Name: bench.P50, Value: p50}, bench.Figure{Name: bench.P99, Value: p99})}
	}
	figure := func(name string, value float64) bench.Figure { return bench.Figure{Name: name, Value: value} }
	batch := life(bench.Batched, batched)
	batch.Figures = append(batch.Figures, figure("callback max", 12))
	return bench.Result{Workload: bench.Flows, Parts: []bench.Part{
		life(bench.Single, single), batch,
		{Name: bench.Waiters, Figures: []bench.Figure{figure("jobs", 1000), figure(bench.P50, 80), figure(bench.Max, 1500)}},
		probed(bench.Rest, 4, 10),
		probed(bench.FanOut, 5, 30, figure("jobs", 1000), figure("cancel", 70), figure(bench.Settled, 12.34)),
		probed(bench.Chained, 8, 20, figure("jobs", 100), figure("cancel", 400), figure(bench.Settled, 0.4)),
	}}
}

// Jobs of a batch are compared with others of the same round, because rounds differ more.
func TestGoalsOfFlows(t *testing.T) {
	p := &play{store: "postgres", Options: Options{Jobs: 10_000}}
	goals, err := p.flowGoals([]bench.Result{round(10, 20), round(30, 36), round(20, 44)})
	require.NoError(t, err)
	line := func(work, target, jq, ratio string) report.Goal {
		return report.Goal{Work: "postgres: " + work, Target: target, JQ: jq, Ratio: ratio}
	}
	require.Equal(t, []report.Goal{
		line("a job of a batch of 1,000 with a callback, beside one without a batch: CPU time in µs; time in µs; WAL bytes",
			"< 110 % of CPU time and time", "144; 360; 1,800", "200 %; 200 %; 200 %"),
		line("from the Ack of the last of 1,000 jobs of a batch to the claim of its callback", "< 1 s", "12 ms", ""),
		line("from the Ack of a job to the claim of the last of 1,000 that wait for it, p50 and longest", "< 2 s", "80 ms; 1.5 s", ""),
		line("cancellation of a job that 1,000 need: the call; until all are cancelled", "< 1 s; < 3 min", "70 ms; 12.3 s", ""),
		line("cancellation of a job with a chain of 100 that need it: the call; until all are cancelled", "< 1 s; < 3 min", "400 ms; 400 ms", ""),
		line("another job, from its enqueue to its Ack, p50/p99: at rest; during the cancellation of all that need one job; and of the chain",
			"≤ 200 % of those at rest", "4.0/10.0 ms; 5.0/30.0 ms; 8.0/20.0 ms", "125/300 %; 200/200 %"),
	}, goals)
}

// Rounds of which a part is missing have no goals.
func TestGoalsOfFlowsNeedAllParts(t *testing.T) {
	p := &play{store: "sqlite", Options: Options{Jobs: 10_000}}
	for missing := range round(10, 20).Parts {
		r := round(10, 20)
		r.Parts[missing].Name = "another"
		_, err := p.flowGoals([]bench.Result{r})
		require.Error(t, err, "part %d", missing)
	}
}
